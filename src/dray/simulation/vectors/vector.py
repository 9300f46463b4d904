"""Vectors: recorded inputs of the allocator with the answer of Kubernetes, and our answer to them.

Theory of operation: a vector is a JSON object: features, node, classes, slices, claims, existing allocations,
and what an allocator of Kubernetes answered. Three formats of the record are understood: `runs` (per channel,
with everything about the run), `upstream` per channel, and `upstream` alone. Objects are taken as they are,
without defaults.

This module must not contain file access or the comparison of answers (see comparison).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

from dray.allocator.allocate import run_search
from dray.allocator.allocation_results import build_allocations
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import normalize_claims
from dray.allocator.search.resumable import TimeLimit
from dray.allocator.search.trace import Exhausted, Faulted, Solved
from dray.api.codec import decode_document
from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from dray.errors import DecodeError, InputError, UnanswerableClaimError
from dray.simulation.vectors.answers import AllocatorAnswer, AnswerKind
from dray.values.quantity import Quantity

CHANNEL = "experimental"
"""The channel of Kubernetes whose answers count: the one that knows every feature."""

GATES_BY_FEATURE: Mapping[str, str] = MappingProxyType(
    {
        "AdminAccess": "DRAAdminAccess",
        "ConsumableCapacity": "DRAConsumableCapacity",
        "DeviceBindingAndStatus": "DRADeviceBindingConditions",
        "DeviceTaints": "DRADeviceTaints",
        "ListTypeAttributes": "DRAListTypeAttributes",
        "PartitionableDevices": "DRAPartitionableDevices",
        "PrioritizedList": "DRAPrioritizedList",
    }
)
"""Features as vectors name them, with their gates; other features are not implemented."""

_SHARE_ID = "f0000000-0000-4000-8000-{:012x}"
"""Share IDs of new shares; those of existing shares start differently."""


class VectorError(InputError):
    """A document that is not a vector."""


@dataclass(frozen=True, slots=True)
class VectorExtras:
    """What a query says that dray's objects do not hold; slices and devices by their numbers.

    `groups` are compatibility groups by counter set, `skipping` slices with `skipNodeOperations` (and
    `skips_declared` whether the node knows them), `empty_conditions` slices with an empty list of binding
    conditions, `derived` the names of derived attributes.
    """

    groups: Mapping[tuple[int, int], Mapping[str, frozenset[str]]]
    skipping: frozenset[int]
    skips_declared: bool
    empty_conditions: frozenset[int]
    derived: frozenset[str]

    @property
    def needs_unbuilt(self) -> bool:
        """Whether the query uses a feature that dray does not have."""
        return bool(self.groups or self.skipping or self.derived)

    def get_groups(self, number: int, device: int) -> Mapping[str, frozenset[str]]:
        """The compatibility groups of a device."""
        return self.groups.get((number, device), {})

    def has_groups(self, number: int) -> bool:
        """Whether a slice has a device with compatibility groups."""
        return any(slice_number == number for slice_number, _ in self.groups)


@dataclass(frozen=True, slots=True)
class Vector:
    """One recorded problem and answer; `features` are those of Kubernetes, `gate_overrides` our gates."""

    name: str
    gate_overrides: Mapping[str, bool]
    node: Node
    classes: tuple[DeviceClass, ...]
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    held: tuple[ResourceClaim, ...]
    recorded: AllocatorAnswer
    features: Mapping[str, bool]
    extras: VectorExtras


# --- reading ---


def read_vector(document: Any) -> Vector:
    """A vector from its document; raises `VectorError` for what is none."""
    if not isinstance(document, Mapping) or "claimsToAllocate" not in document:
        raise VectorError(
            "not a vector: expected an object with `claimsToAllocate`, `admit_slices`, `classes`"
        )
    name = str(document.get("name", ""))
    try:
        features = {str(feature): bool(on) for feature, on in document.get("features", {}).items()}
        return Vector(
            name=name,
            gate_overrides={
                GATES_BY_FEATURE[feature]: on
                for feature, on in features.items()
                if feature in GATES_BY_FEATURE
            },
            node=decode_document(document.get("effectiveNode") or document.get("node")).object,
            classes=tuple(_decode_objects(document, "classes")),
            slices=tuple(_decode_objects(document, "slices")),
            claims=tuple(_decode_objects(document, "claimsToAllocate")),
            held=build_held_claims(document),
            recorded=_read_recorded(document),
            features=features,
            extras=_read_extras(document),
        )
    except (DecodeError, KeyError, TypeError, AttributeError, ValueError) as wrong:
        raise VectorError(f"vector `{name}` cannot be read: {wrong}") from None


def _decode_objects(document: Mapping[str, Any], field: str) -> Iterator[Any]:
    for item in document.get(field) or ():
        yield decode_document(item).object


def _read_extras(document: Mapping[str, Any]) -> VectorExtras:
    """Read what only the document contains."""
    groups: dict[tuple[int, int], dict[str, frozenset[str]]] = {}
    skipping, empty = set(), set()
    for number, item in enumerate(document.get("slices") or ()):
        if item["spec"].get("skipNodeOperations"):
            skipping.add(number)
        for position, device in enumerate(item["spec"].get("devices") or ()):
            if device.get("bindingConditions") == []:
                empty.add(number)
            for drawn in device.get("consumesCounters") or ():
                if drawn.get("compatibilityGroups"):
                    sets = groups.setdefault((number, position), {})
                    sets[drawn["counterSet"]] = frozenset(drawn["compatibilityGroups"])
    node = document.get("effectiveNode") or document.get("node") or {}
    declared = (node.get("status") or {}).get("declaredFeatures") or ()
    return VectorExtras(
        groups=groups,
        skipping=frozenset(skipping),
        skips_declared="DRAOptionalNodeOperations" in declared,
        empty_conditions=frozenset(empty),
        derived=frozenset(_find_derived(document.get("claimsToAllocate") or ())),
    )


def _find_derived(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for claim in claims:
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            for spec in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
                for attribute in spec.get("derivedAttributes") or ():
                    yield str(attribute["name"])


def build_held_claims(document: Mapping[str, Any]) -> tuple[ResourceClaim, ...]:
    """Existing allocations as claims: whole devices, shares, amounts summed per device."""
    amounts: dict[tuple[str, str, str], dict[str, Quantity]] = {}
    for summed in document.get("allocatedCapacityDevices") or ():
        total = amounts.setdefault(_get_device_path(summed), {})
        for name, text in (summed.get("consumedCapacity") or {}).items():
            amount = Quantity.parse(text)
            total[name] = (
                amount if name not in total else Quantity(total[name].nanos + amount.nanos, amount.form)
            )
    results: list[DeviceRequestAllocationResult] = []
    for whole in document.get("allocatedDevices") or ():
        results.append(_build_held_result(_get_device_path(whole)))
    for share in document.get("allocatedSharedDeviceIDs") or ():
        # Which share consumes how much is not on record, so the first one carries the sum.
        device = _get_device_path(share)
        results.append(_build_held_result(device, str(share["shareID"]), amounts.pop(device, {})))
    # A share without an id; without amounts, too, nothing but an id would tell it from a whole device.
    results += [
        _build_held_result(device, None if consumed else "", consumed) for device, consumed in amounts.items()
    ]
    return tuple(_build_holder(number, result) for number, result in enumerate(results))


def _get_device_path(held: Mapping[str, Any]) -> tuple[str, str, str]:
    return held["driver"], held["pool"], held["device"]


def _build_held_result(
    device: tuple[str, str, str], share_id: str | None = None, consumed: dict[str, Quantity] | None = None
) -> DeviceRequestAllocationResult:
    driver, pool, name = device
    return DeviceRequestAllocationResult(
        driver=driver, pool=pool, device=name, share_id=share_id, consumed_capacity=consumed or {}
    )


def _build_holder(number: int, result: DeviceRequestAllocationResult) -> ResourceClaim:
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return ResourceClaim(
        metadata=ObjectMeta(name=f"earlier-{number}"), status=ResourceClaimStatus(allocation=allocation)
    )


def _read_recorded(document: Mapping[str, Any]) -> AllocatorAnswer:
    """The answer of the channel that counts, whichever way it is written."""
    if "runs" in document:
        run = document["runs"][CHANNEL]
        if run["error"]:
            return _read_error(run["error"], bool(run.get("errorIsFailedAllocationOnNode")))
        return (
            AllocatorAnswer(AnswerKind.REFUSED)
            if run.get("resultsIsNil")
            else _read_allocated(run["results"])
        )
    recorded = document["upstream"]
    if isinstance(recorded, Mapping) and CHANNEL in recorded:
        recorded = recorded[CHANNEL]
    if isinstance(recorded, str):
        return AllocatorAnswer(AnswerKind.CRASH, text=recorded)
    if isinstance(recorded, Mapping):
        if recorded.get("error"):
            return _read_error(recorded["error"], bool(recorded.get("onNode")))
        recorded = recorded.get("results") or ()
    return (
        _read_allocated(recorded)
        if recorded or not document["claimsToAllocate"]
        else AllocatorAnswer(AnswerKind.REFUSED)
    )


def _read_error(text: str, on_node: bool) -> AllocatorAnswer:
    if text.lower().startswith("panic"):
        return AllocatorAnswer(AnswerKind.CRASH, text=text)
    return AllocatorAnswer(AnswerKind.INVALID_POOLS if on_node else AnswerKind.FAULT, text=text)


def _read_allocated(results: Any) -> AllocatorAnswer:
    read = []
    unknown: set[str] = set()
    for result in results:
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "status": {"allocation": result},
        }
        decoded = decode_document(claim)
        unknown.update(field.name for field in decoded.unknown_fields)
        read.append(decoded.object.status.allocation)
    return AllocatorAnswer(AnswerKind.ALLOCATED, tuple(read), unknown=frozenset(unknown))


# --- answering ---


def answer_vector(
    vector: Vector, evaluator: DeviceSelectorEvaluator, limit: TimeLimit | None = None
) -> AllocatorAnswer:
    """Our answer to a vector; within a limit in time, or the default number of steps."""
    gate_filter = AllocatorGateFilter.from_overrides(vector.gate_overrides)
    try:
        inventory = DeviceInventory(
            gate_filter.admit_slices(vector.slices),
            vector.classes,
            DeviceUsage.from_claims(vector.held),
            evaluator,
        )
        allocation_request = normalize_claims(gate_filter.admit_claims(vector.claims), inventory.classes.get)
    except UnanswerableClaimError as fault:
        return AllocatorAnswer(AnswerKind.FAULT, text=str(fault))
    view = inventory.get_node_view(vector.node)
    ending = run_search(allocation_request, view.shape, limit=limit)
    match ending:
        case Solved(picks=picks):
            numbers = count()
            results = build_allocations(
                allocation_request, view, picks, new_share_id=lambda: _SHARE_ID.format(next(numbers))
            )
            return AllocatorAnswer(AnswerKind.ALLOCATED, results)
        case Faulted(candidate=candidate, refusal=refusal):
            device = _format_device(view, candidate)
            return AllocatorAnswer(AnswerKind.FAULT, text=f"{refusal.reason} on {device}", about=device)
        case Exhausted():
            flaws = [pool_view.flaw.reason for pool_view in view.pool_views if pool_view.flaw is not None]
            return AllocatorAnswer(
                AnswerKind.INVALID_POOLS if RefusalReason.POOL_INVALID in flaws else AnswerKind.REFUSED
            )
        case _:
            return AllocatorAnswer(AnswerKind.GAVE_UP)


def _format_device(view: NodeView, candidate: int) -> str:
    pool_view, position = view.locate_device(candidate)
    return "/".join((*pool_view.pool, pool_view.names[position]))
