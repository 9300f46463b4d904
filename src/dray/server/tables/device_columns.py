"""Columns of claims, slices, classes, templates and what belongs to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind, known_kind
from dray.claims.ledger.rows import DeviceId, device_key
from dray.server.objects.stored_object import Held
from dray.server.tables.ages import since
from dray.server.tables.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    Scene,
    at,
    condition,
    count,
    items,
    shortened,
    shows,
    text,
)
from dray.server.watch.cache import Cache

ANY_NODE: Final = "<any>"
SOME_NODES: Final = "<some>"

PODS_LOOKED_AT: Final = 2_000
"""A claim that was not made for one pod says why it waits only where there are no more pods than this: the
row of a watch must not cost a walk through a large cluster."""


def claim_state(claim: Any, _: Scene) -> str:
    """The words of Kubernetes, which scripts look for."""
    deleted = at(claim, "metadata.deletionTimestamp") is not None
    allocated = at(claim, "status.allocation") is not None
    words = [
        "deleted" if deleted else "",
        "pending" if not (deleted or allocated) else "",
        "allocated" if allocated else "",
        "reserved" if allocated and items(claim, "status.reservedFor") else "",
    ]
    return ",".join(filter(None, words))


def _claim_node(claim: Any, _: Scene) -> str:
    if at(claim, "status.allocation") is None:
        return NONE
    return _nodes(at(claim, "status.allocation.nodeSelector"))


def _nodes(selector: Any) -> str:
    """The node a selector names, when it names one."""
    if selector is None:
        return ANY_NODE
    terms = items(selector, "nodeSelectorTerms")
    fields = items(terms[0], "matchFields") if len(terms) == 1 else []
    named = [field for field in fields if text(field, "key") == "metadata.name"]
    values = items(named[0], "values") if named else []
    return str(values[0]) if len(values) == 1 else SOME_NODES


def _claim_devices(claim: Any, _: Scene) -> str:
    results = items(claim, "status.allocation.devices.results")
    return shortened(list(dict.fromkeys(text(result, "device") for result in results)))


def _consumers(claim: Any, _: Scene) -> str:
    return shortened([text(one, "name") for one in items(claim, "status.reservedFor")])


def _claim_reason(claim: Any, scene: Scene) -> str:
    """Why the claim is not further: what holds its end up, what ails its devices, why nobody allocated it."""
    if at(claim, "metadata.deletionTimestamp") is not None:
        return _why_still_there(claim)
    if at(claim, "status.allocation") is None:
        return _why_pending(claim, scene)
    for device in items(claim, "status.devices"):
        for one in items(device, "conditions"):
            if text(one, "status") == "False":
                what = text(one, "message") or text(one, "reason")
                return f"{text(device, 'device')}: {text(one, 'type')} is False: {what}".removesuffix(": ")
    return ""


def _why_still_there(claim: Any) -> str:
    users = [text(one, "name") for one in items(claim, "status.reservedFor")]
    if users:
        return f"in use by {shortened(users)}"
    finalizers = [str(one) for one in items(claim, "metadata.finalizers")]
    return f"waits for {shortened(finalizers)}" if finalizers else ""


def _why_pending(claim: Any, scene: Scene) -> str:
    if scene.cache is None:
        return ""
    namespace, name = text(claim, "metadata.namespace"), text(claim, "metadata.name")
    pods = known_kind("", "Pod")
    owners = [
        text(owner, "name")
        for owner in items(claim, "metadata.ownerReferences")
        if text(owner, "kind") == "Pod"
    ]
    if owners:
        held = scene.cache.get(pods, namespace, owners[0])
        return _why_unplaced(held.document) if held is not None else ""
    if namespace not in scene.noted:
        scene.noted[namespace] = _why_claims_wait(scene.cache, pods, namespace)
    return scene.noted[namespace].get(name, "")


def _why_claims_wait(cache: Cache, pods: Kind, namespace: str) -> dict[str, str]:
    """For every claim that an unplaced pod of a namespace uses, why the pod is not placed."""
    found: dict[str, str] = {}
    if cache.count(pods) > PODS_LOOKED_AT:
        return found
    for held in cache.all(pods, namespace):
        if b'"resourceClaims"' in held.value and b'"PodScheduled"' in held.value:
            pod = held.document
            why = _why_unplaced(pod)
            found |= dict.fromkeys(claims_of(pod), why) if why else {}
    return found


def _why_unplaced(pod: Any) -> str:
    scheduled = condition(pod, "PodScheduled")
    if text(scheduled, "status") != "False":
        return ""
    return text(scheduled, "message") or text(scheduled, "reason")


def claims_of(pod: Any) -> list[str]:
    """The names of a pod's claims, as far as they are known: those it names, and those made for it."""
    made = {
        text(one, "name"): text(one, "resourceClaimName")
        for one in items(pod, "status.resourceClaimStatuses")
    }
    names = (
        text(one, "resourceClaimName") or made.get(text(one, "name"), "")
        for one in items(pod, "spec.resourceClaims")
    )
    return [name for name in names if name]


CLAIMS: Final = (
    NAME,
    Column("State", claim_state, about="Whether devices are allocated, and reserved for somebody"),
    Column("Node", _claim_node, about="The node where the devices can be used"),
    Column("Devices", _claim_devices, about="What was allocated"),
    Column("Consumers", _consumers, about="Who may use the devices now"),
    AGE,
    Column("Reason", _claim_reason, wide=True, about="Why the claim is not further than it is"),
)


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _SlicePart(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: _Named = _Named()
    node_name: str | None = None
    all_nodes: bool | None = None
    devices: tuple[_Named, ...] = ()


class _Life(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    creation_timestamp: str | None = None


class SliceGlance(msgspec.Struct, frozen=True):
    """What a row shows of a slice; the rest of a slice is large and not looked at."""

    metadata: _Life = _Life()
    spec: _SlicePart = _SlicePart()

    @classmethod
    def of(cls, held: Held) -> SliceGlance:
        return _GLANCE.decode(held.value)


_GLANCE = msgspec.json.Decoder(SliceGlance)


def _slice_node(glance: SliceGlance, _: Scene) -> str:
    spec = glance.spec
    if spec.node_name:
        return spec.node_name
    return ANY_NODE if spec.all_nodes else SOME_NODES


def free_devices(glance: SliceGlance, scene: Scene) -> int:
    """How many devices of a slice have no row in the ledger: nobody has them, wholly or in part."""
    if scene.cache is None:
        return len(glance.spec.devices)
    spec, row = glance.spec, scene.cache.row
    ids = (DeviceId(spec.driver, spec.pool.name, device.name) for device in spec.devices)
    return sum(row(device_key(device)) is None for device in ids)


SLICES: Final = (
    Column("Name", lambda glance, _: glance.metadata.name, about=NAME.about, format="name"),
    Column("Node", _slice_node, about="The node that reaches the devices"),
    Column("Driver", lambda glance, _: glance.spec.driver, about="Who publishes and prepares the devices"),
    Column("Pool", lambda glance, _: glance.spec.pool.name, about="The pool this slice is a part of"),
    Column("Devices", lambda glance, _: len(glance.spec.devices), about="How many there are", type="integer"),
    Column("Free", free_devices, about="How many of them nobody has", type="integer"),
    Column(
        "Age", lambda glance, scene: since(glance.metadata.creation_timestamp, scene.now), about=AGE.about
    ),
)


def _selectors(device_class: Any, _: Scene) -> str:
    return " && ".join(text(one, "cel.expression") for one in items(device_class, "spec.selectors")) or NONE


def _requests(template: Any, _: Scene) -> str:
    return shortened([_request(one) for one in items(template, "spec.spec.devices.requests")])


def _request(request: Any) -> str:
    """`gpu=2×gpu.example.com`; alternatives with a bar between them."""
    exactly = at(request, "exactly")
    alternatives = [exactly] if isinstance(exactly, Mapping) else items(request, "firstAvailable")
    return f"{text(request, 'name')}=" + "|".join(_wanted(one) for one in alternatives)


def _wanted(one: Any) -> str:
    number = "all" if text(one, "allocationMode") == "All" else str(count(one, "count") or 1)
    return f"{number}×{text(one, 'deviceClassName')}"


CLASSES: Final = (
    NAME,
    AGE,
    Column("Selectors", _selectors, wide=True, about="What a device must be to belong to the class"),
)
TEMPLATES: Final = (
    NAME,
    AGE,
    Column("Requests", _requests, wide=True, about="How many devices of which class each claim asks for"),
)


def _classic_state(claim: Any, scene: Scene) -> str:
    deleted = ["deleted"] if at(claim, "metadata.deletionTimestamp") is not None else []
    return ",".join([*deleted, text(claim, "status.phase", "Pending").lower()])


def _classic_node(claim: Any, _: Scene) -> str:
    reach = at(claim, "status.availableOnNodes") or at(claim, "status.scheduling.driver.availableOnNodes")
    if reach is not None:
        return _nodes(reach)
    return text(claim, "status.scheduling.scheduler.selectedNode", NONE)


CLASSIC_CLAIMS: Final = (
    NAME,
    Column("State", _classic_state, about="How far the driver has come"),
    Column("Class", shows("spec.resourceClassName"), about="The class that names the driver"),
    Column("Node", _classic_node, about="Where the resource can be used, or the node that was proposed"),
    Column("Consumers", _consumers, about="Who may use the resource now"),
    AGE,
    Column("Driver", shows("status.driverName", NONE), wide=True, about="Who allocated it"),
)
CLASSIC_CLASSES: Final = (NAME, Column("Driver", shows("driverName"), about="Who allocates"), AGE)


def _prepared_claim(preparation: Any, _: Scene) -> str:
    return f"{text(preparation, 'spec.claim.namespace')}/{text(preparation, 'spec.claim.name')}"


PREPARATIONS: Final = (
    NAME,
    Column("Node", shows("spec.nodeName"), about="Who has the devices in its hands"),
    Column("Claim", _prepared_claim, about="Whose devices these are"),
    AGE,
)


def _selected_devices(rule: Any, _: Scene) -> str:
    selector = at(rule, "spec.deviceSelector")
    if selector is None:
        return NONE
    return "/".join(text(selector, part, "*") for part in ("driver", "pool", "device"))


def _rule_taint(rule: Any, _: Scene) -> str:
    value = text(rule, "spec.taint.value")
    return f"{text(rule, 'spec.taint.key')}{f'={value}' if value else ''}:{text(rule, 'spec.taint.effect')}"


def _evicting(rule: Any, _: Scene) -> str:
    return text(condition(rule, "EvictionInProgress"), "status", "Unknown")


RULES: Final = (
    NAME,
    Column("Devices", _selected_devices, about="Which devices it selects: driver, pool, device"),
    Column("Taint", _rule_taint, about="What it puts on them"),
    Column("Evicting", _evicting, about="Whether pods still have to go"),
    AGE,
    Column(
        "Reach",
        lambda rule, _: text(condition(rule, "EvictionInProgress"), "message", NONE),
        wide=True,
        about="Whom it reaches",
    ),
)
