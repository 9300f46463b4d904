"""Columns of claims, slices, classes, templates, preparations and taint rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind, get_kind
from dray.claims.ledger.rows import DeviceId, build_device_key
from dray.server.objects.stored_object import StoredObject
from dray.server.tables.ages import format_age
from dray.server.tables.columns import (
    AGE,
    NAME,
    NONE,
    TableColumn,
    TableContext,
    build_text_cell,
    find_condition,
    get_list,
    get_number,
    get_path,
    get_text,
    shorten_names,
)
from dray.server.watch.cache import WatchCache

ANY_NODE: Final = "<any>"
SOME_NODES: Final = "<some>"

MAX_PODS_SCANNED: Final = 2_000
"""A claim that was not generated for one pod shows why it waits only where there are no more pods than this:
the row of a watch must not cost a scan of a large cluster.
"""


def render_claim_state(claim: Any, _: TableContext) -> str:
    """Return the state in the words of Kubernetes, which scripts look for."""
    deleted = get_path(claim, "metadata.deletionTimestamp") is not None
    allocated = get_path(claim, "status.allocation") is not None
    states = [
        "deleted" if deleted else "",
        "pending" if not (deleted or allocated) else "",
        "allocated" if allocated else "",
        "reserved" if allocated and get_list(claim, "status.reservedFor") else "",
    ]
    return ",".join(filter(None, states))


def _render_claim_node(claim: Any, _: TableContext) -> str:
    if get_path(claim, "status.allocation") is None:
        return NONE
    return _render_node_selector(get_path(claim, "status.allocation.nodeSelector"))


def _render_node_selector(selector: Any) -> str:
    """Return the node a selector names, when it names one."""
    if selector is None:
        return ANY_NODE
    terms = get_list(selector, "nodeSelectorTerms")
    fields = get_list(terms[0], "matchFields") if len(terms) == 1 else []
    named = [field for field in fields if get_text(field, "key") == "metadata.name"]
    values = get_list(named[0], "values") if named else []
    return str(values[0]) if len(values) == 1 else SOME_NODES


def _render_claim_devices(claim: Any, _: TableContext) -> str:
    results = get_list(claim, "status.allocation.devices.results")
    return shorten_names(list(dict.fromkeys(get_text(result, "device") for result in results)))


def _render_consumers(claim: Any, _: TableContext) -> str:
    return shorten_names([get_text(one, "name") for one in get_list(claim, "status.reservedFor")])


def _render_claim_reason(claim: Any, context: TableContext) -> str:
    """Explain the state of a claim: what delays its deletion, what is wrong with its devices, why it is not
    allocated.
    """
    if get_path(claim, "metadata.deletionTimestamp") is not None:
        return _explain_terminating(claim)
    if get_path(claim, "status.allocation") is None:
        return _explain_pending(claim, context)
    for device in get_list(claim, "status.devices"):
        for one in get_list(device, "conditions"):
            if get_text(one, "status") == "False":
                what = get_text(one, "message") or get_text(one, "reason")
                return f"{get_text(device, 'device')}: {get_text(one, 'type')} is False: {what}".removesuffix(
                    ": "
                )
    return ""


def _explain_terminating(claim: Any) -> str:
    users = [get_text(one, "name") for one in get_list(claim, "status.reservedFor")]
    if users:
        return f"in use by {shorten_names(users)}"
    finalizers = [str(one) for one in get_list(claim, "metadata.finalizers")]
    return f"waits for {shorten_names(finalizers)}" if finalizers else ""


def _explain_pending(claim: Any, context: TableContext) -> str:
    if context.cache is None:
        return ""
    namespace, name = get_text(claim, "metadata.namespace"), get_text(claim, "metadata.name")
    pods = get_kind("", "Pod")
    owners = [
        get_text(owner, "name")
        for owner in get_list(claim, "metadata.ownerReferences")
        if get_text(owner, "kind") == "Pod"
    ]
    if owners:
        stored = context.cache.get(pods, namespace, owners[0])
        return _explain_unscheduled(stored.document) if stored is not None else ""
    if namespace not in context.pending_reasons:
        context.pending_reasons[namespace] = _explain_waiting_claims(context.cache, pods, namespace)
    return context.pending_reasons[namespace].get(name, "")


def _explain_waiting_claims(cache: WatchCache, pods: Kind, namespace: str) -> dict[str, str]:
    """Return, for every claim that an unscheduled pod of a namespace uses, why the pod is not scheduled."""
    found: dict[str, str] = {}
    if cache.count(pods) > MAX_PODS_SCANNED:
        return found
    for stored in cache.list_objects(pods, namespace):
        if b'"resourceClaims"' in stored.value and b'"PodScheduled"' in stored.value:
            pod = stored.document
            why = _explain_unscheduled(pod)
            found |= dict.fromkeys(list_claim_names(pod), why) if why else {}
    return found


def _explain_unscheduled(pod: Any) -> str:
    scheduled = find_condition(pod, "PodScheduled")
    if get_text(scheduled, "status") != "False":
        return ""
    return get_text(scheduled, "message") or get_text(scheduled, "reason")


def list_claim_names(pod: Any) -> list[str]:
    """Return the names of a pod's claims, as far as they are known: those it names, and those generated for
    it.
    """
    made = {
        get_text(one, "name"): get_text(one, "resourceClaimName")
        for one in get_list(pod, "status.resourceClaimStatuses")
    }
    names = (
        get_text(one, "resourceClaimName") or made.get(get_text(one, "name"), "")
        for one in get_list(pod, "spec.resourceClaims")
    )
    return [name for name in names if name]


CLAIMS: Final = (
    NAME,
    TableColumn("State", render_claim_state, about="Whether devices are allocated and reserved"),
    TableColumn("Node", _render_claim_node, about="The node where the devices can be used"),
    TableColumn("Devices", _render_claim_devices, about="What was allocated"),
    TableColumn("Consumers", _render_consumers, about="The consumers the devices are reserved for"),
    AGE,
    TableColumn("Reason", _render_claim_reason, wide=True, about="Why the claim is in this state"),
)


class _NameOnly(msgspec.Struct, frozen=True):
    name: str = ""


class _SliceSpecView(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: _NameOnly = _NameOnly()
    node_name: str | None = None
    all_nodes: bool | None = None
    devices: tuple[_NameOnly, ...] = ()


class _SliceMetadataView(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    creation_timestamp: str | None = None


class SliceSummary(msgspec.Struct, frozen=True):
    """What a row shows of a slice; the rest of a slice is large and not decoded."""

    metadata: _SliceMetadataView = _SliceMetadataView()
    spec: _SliceSpecView = _SliceSpecView()

    @classmethod
    def from_stored(cls, stored: StoredObject) -> SliceSummary:
        return _SUMMARY_DECODER.decode(stored.value)


_SUMMARY_DECODER = msgspec.json.Decoder(SliceSummary)


def _render_slice_node(summary: SliceSummary, _: TableContext) -> str:
    spec = summary.spec
    if spec.node_name:
        return spec.node_name
    return ANY_NODE if spec.all_nodes else SOME_NODES


def count_free_devices(summary: SliceSummary, context: TableContext) -> int:
    """Count the devices of a slice without a row in the ledger: those that nobody
    has, in whole or in part.
    """
    if context.cache is None:
        return len(summary.spec.devices)
    spec, row = summary.spec, context.cache.get_row
    ids = (DeviceId(spec.driver, spec.pool.name, device.name) for device in spec.devices)
    return sum(row(build_device_key(device)) is None for device in ids)


SLICES: Final = (
    TableColumn("Name", lambda summary, _: summary.metadata.name, about=NAME.about, format="name"),
    TableColumn("Node", _render_slice_node, about="The node that reaches the devices"),
    TableColumn(
        "Driver",
        lambda summary, _: summary.spec.driver,
        about="The driver that publishes and prepares the devices",
    ),
    TableColumn("Pool", lambda summary, _: summary.spec.pool.name, about="The pool this slice is a part of"),
    TableColumn(
        "Devices", lambda summary, _: len(summary.spec.devices), about="Number of devices", type="integer"
    ),
    TableColumn("Free", count_free_devices, about="Number of devices that nobody has", type="integer"),
    TableColumn(
        "Age",
        lambda summary, context: format_age(summary.metadata.creation_timestamp, context.now),
        about=AGE.about,
    ),
)


def _render_selectors(device_class: Any, _: TableContext) -> str:
    return (
        " && ".join(get_text(one, "cel.expression") for one in get_list(device_class, "spec.selectors"))
        or NONE
    )


def _render_requests(template: Any, _: TableContext) -> str:
    return shorten_names([_format_request(one) for one in get_list(template, "spec.spec.devices.requests")])


def _format_request(request: Any) -> str:
    """Format a request as `gpu=2×gpu.example.com`; a bar separates alternatives."""
    exactly = get_path(request, "exactly")
    alternatives = [exactly] if isinstance(exactly, Mapping) else get_list(request, "firstAvailable")
    return f"{get_text(request, 'name')}=" + "|".join(_format_alternative(one) for one in alternatives)


def _format_alternative(one: Any) -> str:
    number = "all" if get_text(one, "allocationMode") == "All" else str(get_number(one, "count") or 1)
    return f"{number}×{get_text(one, 'deviceClassName')}"


CLASSES: Final = (
    NAME,
    AGE,
    TableColumn(
        "Selectors", _render_selectors, wide=True, about="What a device must be to belong to the class"
    ),
)
TEMPLATES: Final = (
    NAME,
    AGE,
    TableColumn(
        "Requests", _render_requests, wide=True, about="How many devices of which class each claim asks for"
    ),
)


def _render_classic_state(claim: Any, context: TableContext) -> str:
    deleted = ["deleted"] if get_path(claim, "metadata.deletionTimestamp") is not None else []
    return ",".join([*deleted, get_text(claim, "status.phase", "Pending").lower()])


def _render_classic_node(claim: Any, _: TableContext) -> str:
    reach = get_path(claim, "status.availableOnNodes") or get_path(
        claim, "status.scheduling.driver.availableOnNodes"
    )
    if reach is not None:
        return _render_node_selector(reach)
    return get_text(claim, "status.scheduling.scheduler.selectedNode", NONE)


CLASSIC_CLAIMS: Final = (
    NAME,
    TableColumn("State", _render_classic_state, about="State of the allocation by the driver"),
    TableColumn("Class", build_text_cell("spec.resourceClassName"), about="The class that names the driver"),
    TableColumn(
        "Node", _render_classic_node, about="Where the resource can be used, or the node that was proposed"
    ),
    TableColumn("Consumers", _render_consumers, about="The consumers the resource is reserved for"),
    AGE,
    TableColumn(
        "Driver", build_text_cell("status.driverName", NONE), wide=True, about="The driver that allocated it"
    ),
)
CLASSIC_CLASSES: Final = (
    NAME,
    TableColumn("Driver", build_text_cell("driverName"), about="Who allocates"),
    AGE,
)


def _render_prepared_claim(preparation: Any, _: TableContext) -> str:
    return f"{get_text(preparation, 'spec.claim.namespace')}/{get_text(preparation, 'spec.claim.name')}"


PREPARATIONS: Final = (
    NAME,
    TableColumn("Node", build_text_cell("spec.nodeName"), about="The node that has prepared the devices"),
    TableColumn("Claim", _render_prepared_claim, about="The claim of the devices"),
    AGE,
)


def _render_selected_devices(rule: Any, _: TableContext) -> str:
    selector = get_path(rule, "spec.deviceSelector")
    if selector is None:
        return NONE
    return "/".join(get_text(selector, part, "*") for part in ("driver", "pool", "device"))


def _render_taint(rule: Any, _: TableContext) -> str:
    value = get_text(rule, "spec.taint.value")
    key, effect = get_text(rule, "spec.taint.key"), get_text(rule, "spec.taint.effect")
    return f"{key}{f'={value}' if value else ''}:{effect}"


def _render_evicting(rule: Any, _: TableContext) -> str:
    return get_text(find_condition(rule, "EvictionInProgress"), "status", "Unknown")


RULES: Final = (
    NAME,
    TableColumn("Devices", _render_selected_devices, about="Which devices it selects: driver, pool, device"),
    TableColumn("Taint", _render_taint, about="The taint it adds"),
    TableColumn("Evicting", _render_evicting, about="Whether pods are still being evicted"),
    AGE,
    TableColumn(
        "Reach",
        lambda rule, _: get_text(find_condition(rule, "EvictionInProgress"), "message", NONE),
        wide=True,
        about="The devices and pods it affects",
    ),
)
