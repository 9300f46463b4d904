"""Columns of what surrounds pods: nodes, namespaces, events, quotas, leases, configuration, rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.server.tables.ages import UNKNOWN, since
from dray.server.tables.columns import (
    AGE,
    CREATED_AT,
    NAME,
    NONE,
    Cell,
    Column,
    Scene,
    ago,
    at,
    condition,
    count,
    entries,
    items,
    joined,
    shows,
    text,
)

_ROLE: Final = "node-role.kubernetes.io/"


def _node_status(node: Any, _: Scene) -> str:
    ready = text(condition(node, "Ready"), "status")
    word = {"True": "Ready", "": "Unknown"}.get(ready, "NotReady")
    return f"{word},SchedulingDisabled" if at(node, "spec.unschedulable") is True else word


def _roles(node: Any, _: Scene) -> str:
    labels = entries(node, "metadata.labels")
    named = {name.removeprefix(_ROLE) for name in labels if name.startswith(_ROLE)}
    return joined(sorted(filter(None, {*named, str(labels.get("kubernetes.io/role", ""))})))


def _node_address(kind: str) -> Cell:
    def cell(node: Any, _: Scene) -> str:
        found = (text(one, "address") for one in items(node, "status.addresses") if text(one, "type") == kind)
        return next(found, NONE)

    return cell


NODES: Final = (
    NAME,
    Column("Status", _node_status, about="Whether it is ready, and takes new pods"),
    Column("Roles", _roles, about="What it is there for"),
    AGE,
    Column("Version", shows("status.nodeInfo.kubeletVersion"), about="The version of its agent"),
    Column("Internal-IP", _node_address("InternalIP"), wide=True),
    Column("External-IP", _node_address("ExternalIP"), wide=True),
    Column("OS-Image", shows("status.nodeInfo.osImage", UNKNOWN), wide=True),
    Column("Kernel-Version", shows("status.nodeInfo.kernelVersion", UNKNOWN), wide=True),
    Column("Container-Runtime", shows("status.nodeInfo.containerRuntimeVersion", UNKNOWN), wide=True),
)

NAMESPACES: Final = (
    NAME,
    Column("Status", shows("status.phase", "Active"), about="Whether it is being emptied"),
    AGE,
)


def _first_seen(event: Any, scene: Scene) -> str:
    return since(at(event, "firstTimestamp") or at(event, "eventTime"), scene.now)


def _times(event: Any, _: Scene) -> int:
    return count(event, "series.count") or count(event, "count") or 1


def _last_seen(event: Any, scene: Scene) -> str:
    first = _first_seen(event, scene)
    moment = at(event, "series.lastObservedTime") or at(event, "lastTimestamp")
    last = since(moment, scene.now) if moment else first
    times = _times(event, scene)
    return f"{last} (x{times} over {first})" if times > 1 else last


def _object(event: Any, _: Scene) -> str:
    name = text(event, "involvedObject.name")
    kind = text(event, "involvedObject.kind").lower()
    return f"{kind}/{name}" if name else kind


def _source(event: Any, _: Scene) -> str:
    component = text(event, "source.component") or text(event, "reportingComponent")
    host = text(event, "source.host") or text(event, "reportingInstance")
    return ", ".join(filter(None, (component, host)))


EVENTS: Final = (
    Column("Last Seen", _last_seen, about="How long ago it happened last"),
    Column("Type", shows("type"), about="Normal, or a warning"),
    Column("Reason", shows("reason"), about="What happened, in one word"),
    Column("Object", _object, about="What it happened to"),
    Column("Subobject", shows("involvedObject.fieldPath"), wide=True, about="Which part of that"),
    Column("Source", _source, wide=True, about="Who tells it"),
    Column("Message", lambda event, _: text(event, "message").strip(), about="What happened, in a sentence"),
    Column("First Seen", _first_seen, wide=True, about="How long ago it happened first"),
    Column("Count", _times, wide=True, about="How often it happened"),
    Column("Name", NAME.cell, wide=True, about=NAME.about, format="name"),
)

LEASES: Final = (NAME, Column("Holder", shows("spec.holderIdentity"), about="Who has it"), AGE)
LEASE_CANDIDATES: Final = (
    NAME,
    Column("LeaseName", shows("spec.leaseName")),
    Column("BinaryVersion", shows("spec.binaryVersion")),
    Column("EmulationVersion", shows("spec.emulationVersion")),
    AGE,
)


def _quota(wanted: Callable[[str], bool]) -> Cell:
    def cell(quota: Any, _: Scene) -> str:
        hard = entries(quota, "status.hard") or entries(quota, "spec.hard")
        used = entries(quota, "status.used")
        names = (name for name in sorted(hard) if wanted(name))
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return cell


def _is_limit(name: str) -> bool:
    return name.startswith("limits.")


QUOTAS: Final = (
    NAME,
    Column(
        "Request", _quota(lambda name: not _is_limit(name)), about="What is used of what may be asked for"
    ),
    Column("Limit", _quota(_is_limit), about="What is used of what may be had at most"),
    AGE,
)

SERVICE_ACCOUNTS: Final = (
    NAME,
    Column("Secrets", lambda account, _: len(items(account, "secrets")), type="integer"),
    AGE,
)
CONFIG_MAPS: Final = (
    NAME,
    Column(
        "Data",
        lambda config, _: len(entries(config, "data")) + len(entries(config, "binaryData")),
        about="How many entries there are",
        type="integer",
    ),
    AGE,
)
SECRETS: Final = (
    NAME,
    Column("Type", shows("type", "Opaque"), about="What it is for"),
    Column(
        "Data",
        lambda secret, _: len(entries(secret, "data")),
        about="How many entries there are",
        type="integer",
    ),
    AGE,
)


def _subjects(kind: str, *, in_namespace: bool = False) -> Cell:
    def cell(binding: Any, _: Scene) -> str:
        found = (one for one in items(binding, "subjects") if text(one, "kind") == kind)
        if in_namespace:
            return ", ".join(f"{text(one, 'namespace')}/{text(one, 'name')}" for one in found)
        return ", ".join(text(one, "name") for one in found)

    return cell


def _role(binding: Any, _: Scene) -> str:
    return f"{text(binding, 'roleRef.kind')}/{text(binding, 'roleRef.name')}"


BINDINGS: Final = (
    NAME,
    Column("Role", _role, about="What is allowed"),
    AGE,
    Column("Users", _subjects("User"), wide=True),
    Column("Groups", _subjects("Group"), wide=True),
    Column("ServiceAccounts", _subjects("ServiceAccount", in_namespace=True), wide=True),
)
ROLES: Final = (NAME, CREATED_AT)
PRIORITY_CLASSES: Final = (
    NAME,
    Column("Value", lambda one, _: count(one, "value"), type="integer"),
    Column("Global-Default", shows("globalDefault", "false"), type="boolean"),
    AGE,
    Column("PreemptionPolicy", shows("preemptionPolicy", "PreemptLowerPriority")),
)
RUNTIME_CLASSES: Final = (NAME, Column("Handler", shows("handler")), AGE)


def _signing_state(request: Any, _: Scene) -> str:
    words = [text(one, "type") for one in items(request, "status.conditions")]
    return ",".join(words or ["Pending"]) + (",Issued" if text(request, "status.certificate") else "")


SIGNING_REQUESTS: Final = (
    NAME,
    AGE,
    Column("SignerName", shows("spec.signerName")),
    Column("Requestor", shows("spec.username")),
    Column("Condition", _signing_state),
)
API_SERVICES: Final = (
    NAME,
    Column("Service", shows("spec.service.name", "Local")),
    Column("Available", lambda one, _: text(condition(one, "Available"), "status", "Unknown")),
    Column("Age", ago("metadata.creationTimestamp")),
)
