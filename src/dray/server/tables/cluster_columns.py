"""Columns of nodes, namespaces, events, quotas, leases, configuration and RBAC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.server.tables.ages import UNKNOWN, format_age
from dray.server.tables.columns import (
    AGE,
    CREATED_AT,
    NAME,
    NONE,
    RenderCell,
    TableColumn,
    TableContext,
    build_age_cell,
    build_text_cell,
    find_condition,
    get_list,
    get_map,
    get_number,
    get_path,
    get_text,
    join_names,
)

_ROLE: Final = "node-role.kubernetes.io/"


def _render_node_status(node: Any, _: TableContext) -> str:
    ready = get_text(find_condition(node, "Ready"), "status")
    word = {"True": "Ready", "": "Unknown"}.get(ready, "NotReady")
    return f"{word},SchedulingDisabled" if get_path(node, "spec.unschedulable") is True else word


def _render_node_roles(node: Any, _: TableContext) -> str:
    labels = get_map(node, "metadata.labels")
    named = {name.removeprefix(_ROLE) for name in labels if name.startswith(_ROLE)}
    return join_names(sorted(filter(None, {*named, str(labels.get("kubernetes.io/role", ""))})))


def _build_address_cell(kind: str) -> RenderCell:
    def render_address(node: Any, _: TableContext) -> str:
        found = (
            get_text(one, "address")
            for one in get_list(node, "status.addresses")
            if get_text(one, "type") == kind
        )
        return next(found, NONE)

    return render_address


NODES: Final = (
    NAME,
    TableColumn("Status", _render_node_status, about="Whether the node is ready, and accepts new pods"),
    TableColumn("Roles", _render_node_roles, about="Roles of the node"),
    AGE,
    TableColumn(
        "Version", build_text_cell("status.nodeInfo.kubeletVersion"), about="The version of its agent"
    ),
    TableColumn("Internal-IP", _build_address_cell("InternalIP"), wide=True),
    TableColumn("External-IP", _build_address_cell("ExternalIP"), wide=True),
    TableColumn("OS-Image", build_text_cell("status.nodeInfo.osImage", UNKNOWN), wide=True),
    TableColumn("Kernel-Version", build_text_cell("status.nodeInfo.kernelVersion", UNKNOWN), wide=True),
    TableColumn(
        "Container-Runtime", build_text_cell("status.nodeInfo.containerRuntimeVersion", UNKNOWN), wide=True
    ),
)

NAMESPACES: Final = (
    NAME,
    TableColumn(
        "Status", build_text_cell("status.phase", "Active"), about="Whether the namespace is being deleted"
    ),
    AGE,
)


def _render_first_seen(event: Any, context: TableContext) -> str:
    return format_age(get_path(event, "firstTimestamp") or get_path(event, "eventTime"), context.now)


def _count_occurrences(event: Any, _: TableContext) -> int:
    return get_number(event, "series.count") or get_number(event, "count") or 1


def _render_last_seen(event: Any, context: TableContext) -> str:
    first = _render_first_seen(event, context)
    moment = get_path(event, "series.lastObservedTime") or get_path(event, "lastTimestamp")
    last = format_age(moment, context.now) if moment else first
    times = _count_occurrences(event, context)
    return f"{last} (x{times} over {first})" if times > 1 else last


def _render_object(event: Any, _: TableContext) -> str:
    name = get_text(event, "involvedObject.name")
    kind = get_text(event, "involvedObject.kind").lower()
    return f"{kind}/{name}" if name else kind


def _render_source(event: Any, _: TableContext) -> str:
    component = get_text(event, "source.component") or get_text(event, "reportingComponent")
    host = get_text(event, "source.host") or get_text(event, "reportingInstance")
    return ", ".join(filter(None, (component, host)))


EVENTS: Final = (
    TableColumn("Last Seen", _render_last_seen, about="How long ago it happened last"),
    TableColumn("Type", build_text_cell("type"), about="Normal, or a warning"),
    TableColumn("Reason", build_text_cell("reason"), about="What happened, in one word"),
    TableColumn("Object", _render_object, about="The object of the event"),
    TableColumn(
        "Subobject", build_text_cell("involvedObject.fieldPath"), wide=True, about="The part of that object"
    ),
    TableColumn("Source", _render_source, wide=True, about="The component that reports it"),
    TableColumn(
        "Message", lambda event, _: get_text(event, "message").strip(), about="What happened, in a sentence"
    ),
    TableColumn("First Seen", _render_first_seen, wide=True, about="How long ago it happened first"),
    TableColumn("Count", _count_occurrences, wide=True, about="How often it happened"),
    TableColumn("Name", NAME.render, wide=True, about=NAME.about, format="name"),
)

LEASES: Final = (
    NAME,
    TableColumn("Holder", build_text_cell("spec.holderIdentity"), about="The current holder"),
    AGE,
)
LEASE_CANDIDATES: Final = (
    NAME,
    TableColumn("LeaseName", build_text_cell("spec.leaseName")),
    TableColumn("BinaryVersion", build_text_cell("spec.binaryVersion")),
    TableColumn("EmulationVersion", build_text_cell("spec.emulationVersion")),
    AGE,
)


def _build_quota_cell(is_included: Callable[[str], bool]) -> RenderCell:
    def render_quota(quota: Any, _: TableContext) -> str:
        hard = get_map(quota, "status.hard") or get_map(quota, "spec.hard")
        used = get_map(quota, "status.used")
        names = (name for name in sorted(hard) if is_included(name))
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return render_quota


def _is_limit(name: str) -> bool:
    return name.startswith("limits.")


QUOTAS: Final = (
    NAME,
    TableColumn(
        "Request",
        _build_quota_cell(lambda name: not _is_limit(name)),
        about="Used and hard limits of requests",
    ),
    TableColumn("Limit", _build_quota_cell(_is_limit), about="Used and hard limits of limits"),
    AGE,
)

SERVICE_ACCOUNTS: Final = (
    NAME,
    TableColumn("Secrets", lambda account, _: len(get_list(account, "secrets")), type="integer"),
    AGE,
)
CONFIG_MAPS: Final = (
    NAME,
    TableColumn(
        "Data",
        lambda config, _: len(get_map(config, "data")) + len(get_map(config, "binaryData")),
        about="How many entries there are",
        type="integer",
    ),
    AGE,
)
SECRETS: Final = (
    NAME,
    TableColumn("Type", build_text_cell("type", "Opaque"), about="What it is for"),
    TableColumn(
        "Data",
        lambda secret, _: len(get_map(secret, "data")),
        about="How many entries there are",
        type="integer",
    ),
    AGE,
)


def _build_subjects_cell(kind: str, *, in_namespace: bool = False) -> RenderCell:
    def render_subjects(binding: Any, _: TableContext) -> str:
        found = (one for one in get_list(binding, "subjects") if get_text(one, "kind") == kind)
        if in_namespace:
            return ", ".join(f"{get_text(one, 'namespace')}/{get_text(one, 'name')}" for one in found)
        return ", ".join(get_text(one, "name") for one in found)

    return render_subjects


def _render_role_ref(binding: Any, _: TableContext) -> str:
    return f"{get_text(binding, 'roleRef.kind')}/{get_text(binding, 'roleRef.name')}"


BINDINGS: Final = (
    NAME,
    TableColumn("Role", _render_role_ref, about="What is allowed"),
    AGE,
    TableColumn("Users", _build_subjects_cell("User"), wide=True),
    TableColumn("Groups", _build_subjects_cell("Group"), wide=True),
    TableColumn("ServiceAccounts", _build_subjects_cell("ServiceAccount", in_namespace=True), wide=True),
)
ROLES: Final = (NAME, CREATED_AT)
PRIORITY_CLASSES: Final = (
    NAME,
    TableColumn("Value", lambda one, _: get_number(one, "value"), type="integer"),
    TableColumn("Global-Default", build_text_cell("globalDefault", "false"), type="boolean"),
    AGE,
    TableColumn("PreemptionPolicy", build_text_cell("preemptionPolicy", "PreemptLowerPriority")),
)
RUNTIME_CLASSES: Final = (NAME, TableColumn("Handler", build_text_cell("handler")), AGE)


def _render_signing_state(request: Any, _: TableContext) -> str:
    conditions = [get_text(one, "type") for one in get_list(request, "status.conditions")]
    return ",".join(conditions or ["Pending"]) + (
        ",Issued" if get_text(request, "status.certificate") else ""
    )


SIGNING_REQUESTS: Final = (
    NAME,
    AGE,
    TableColumn("SignerName", build_text_cell("spec.signerName")),
    TableColumn("Requestor", build_text_cell("spec.username")),
    TableColumn("Condition", _render_signing_state),
)
API_SERVICES: Final = (
    NAME,
    TableColumn("Service", build_text_cell("spec.service.name", "Local")),
    TableColumn("Available", lambda one, _: get_text(find_condition(one, "Available"), "status", "Unknown")),
    TableColumn("Age", build_age_cell("metadata.creationTimestamp")),
)
