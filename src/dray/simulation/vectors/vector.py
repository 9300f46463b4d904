"""Vectors: questions to the allocator with an answer on record, and the answer we give.

Theory of operation: a vector is a JSON object: features, node, classes, slices, claims, what is taken, and
what an allocator of Kubernetes answered. Three spellings of the record are understood: `runs` (per channel,
with everything about the run), `upstream` per channel, and `upstream` alone. Objects are taken as they
are, without defaults.

Rules for this file: no opinions about differences (see verdicts), no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

from dray.allocator.allocate import outcome
from dray.allocator.allocation_results import assemble
from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Stock, View
from dray.allocator.inventory.device_profiles import Judge
from dray.allocator.inventory.usage import Usage
from dray.allocator.refusals import Reason
from dray.allocator.requests import ask_of
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
from dray.errors import AllocationFault, DecodeError, InputError
from dray.simulation.vectors.answers import Answer, Kind
from dray.values.quantity import Quantity

CHANNEL = "experimental"
"""The channel of Kubernetes whose answers count: the one that knows every feature."""

SWITCHES: Mapping[str, str] = MappingProxyType(
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
"""Features as vectors name them, and the gates they are; what is not here is not built."""

_SHARE = "f0000000-0000-4000-8000-{:012x}"
"""Ids of new shares; those that are held begin otherwise."""


class VectorError(InputError):
    """A document that is no vector."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What a question says that dray's objects do not hold; slices and devices by their numbers.

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
        """Whether the question uses a feature that dray does not have."""
        return bool(self.groups or self.skipping or self.derived)

    def groups_of(self, number: int, device: int) -> Mapping[str, frozenset[str]]:
        """The compatibility groups of a device."""
        return self.groups.get((number, device), {})

    def has_groups(self, number: int) -> bool:
        """Whether a slice has a device with compatibility groups."""
        return any(slice_number == number for slice_number, _ in self.groups)


@dataclass(frozen=True, slots=True)
class Vector:
    """One question with the answer on record; `features` are those of Kubernetes, `switches` our gates."""

    name: str
    switches: Mapping[str, bool]
    node: Node
    classes: tuple[DeviceClass, ...]
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    held: tuple[ResourceClaim, ...]
    recorded: Answer
    features: Mapping[str, bool]
    extras: Extras


# --- reading ---


def read_vector(document: Any) -> Vector:
    """A vector from its document; raises `VectorError` for what is none."""
    if not isinstance(document, Mapping) or "claimsToAllocate" not in document:
        raise VectorError("not a vector: expected an object with `claimsToAllocate`, `slices`, `classes`")
    name = str(document.get("name", ""))
    try:
        features = {str(feature): bool(on) for feature, on in document.get("features", {}).items()}
        return Vector(
            name=name,
            switches={SWITCHES[feature]: on for feature, on in features.items() if feature in SWITCHES},
            node=decode_document(document.get("effectiveNode") or document.get("node")).object,
            classes=tuple(_objects(document, "classes")),
            slices=tuple(_objects(document, "slices")),
            claims=tuple(_objects(document, "claimsToAllocate")),
            held=held_claims(document),
            recorded=_recorded(document),
            features=features,
            extras=_extras(document),
        )
    except (DecodeError, KeyError, TypeError, AttributeError, ValueError) as wrong:
        raise VectorError(f"vector `{name}` cannot be read: {wrong}") from None


def _objects(document: Mapping[str, Any], field: str) -> Iterator[Any]:
    for item in document.get(field) or ():
        yield decode_document(item).object


def _extras(document: Mapping[str, Any]) -> Extras:
    """What only the document knows."""
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
    return Extras(
        groups=groups,
        skipping=frozenset(skipping),
        skips_declared="DRAOptionalNodeOperations" in declared,
        empty_conditions=frozenset(empty),
        derived=frozenset(_derived(document.get("claimsToAllocate") or ())),
    )


def _derived(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for claim in claims:
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            for said in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
                for attribute in said.get("derivedAttributes") or ():
                    yield str(attribute["name"])


def held_claims(document: Mapping[str, Any]) -> tuple[ResourceClaim, ...]:
    """What is taken already, as claims that hold it: whole devices, shares, amounts summed per device."""
    amounts: dict[tuple[str, str, str], dict[str, Quantity]] = {}
    for summed in document.get("allocatedCapacityDevices") or ():
        total = amounts.setdefault(_device_id(summed), {})
        for name, text in (summed.get("consumedCapacity") or {}).items():
            amount = Quantity.parse(text)
            total[name] = (
                amount if name not in total else Quantity(total[name].nanos + amount.nanos, amount.form)
            )
    results: list[DeviceRequestAllocationResult] = []
    for whole in document.get("allocatedDevices") or ():
        results.append(_held(_device_id(whole)))
    for share in document.get("allocatedSharedDeviceIDs") or ():
        # Which share consumes how much is not on record, so the first one carries the sum.
        device = _device_id(share)
        results.append(_held(device, str(share["shareID"]), amounts.pop(device, {})))
    # A share without an id; without amounts, too, nothing but an id would tell it from a whole device.
    results += [_held(device, None if consumed else "", consumed) for device, consumed in amounts.items()]
    return tuple(_holder(number, result) for number, result in enumerate(results))


def _device_id(held: Mapping[str, Any]) -> tuple[str, str, str]:
    return held["driver"], held["pool"], held["device"]


def _held(
    device: tuple[str, str, str], share_id: str | None = None, consumed: dict[str, Quantity] | None = None
) -> DeviceRequestAllocationResult:
    driver, pool, name = device
    return DeviceRequestAllocationResult(
        driver=driver, pool=pool, device=name, share_id=share_id, consumed_capacity=consumed or {}
    )


def _holder(number: int, result: DeviceRequestAllocationResult) -> ResourceClaim:
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return ResourceClaim(
        metadata=ObjectMeta(name=f"earlier-{number}"), status=ResourceClaimStatus(allocation=allocation)
    )


def _recorded(document: Mapping[str, Any]) -> Answer:
    """The answer of the channel that counts, whichever way it is written."""
    if "runs" in document:
        run = document["runs"][CHANNEL]
        if run["error"]:
            return _error(run["error"], bool(run.get("errorIsFailedAllocationOnNode")))
        return Answer(Kind.REFUSED) if run.get("resultsIsNil") else _allocated(run["results"])
    said = document["upstream"]
    if isinstance(said, Mapping) and CHANNEL in said:
        said = said[CHANNEL]
    if isinstance(said, str):
        return Answer(Kind.CRASH, text=said)
    if isinstance(said, Mapping):
        if said.get("error"):
            return _error(said["error"], bool(said.get("onNode")))
        said = said.get("results") or ()
    return _allocated(said) if said or not document["claimsToAllocate"] else Answer(Kind.REFUSED)


def _error(text: str, on_node: bool) -> Answer:
    if text.lower().startswith("panic"):
        return Answer(Kind.CRASH, text=text)
    return Answer(Kind.INVALID_POOLS if on_node else Kind.FAULT, text=text)


def _allocated(results: Any) -> Answer:
    read = []
    unknown: set[str] = set()
    for result in results:
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "status": {"allocation": result},
        }
        decoded = decode_document(claim)
        unknown.update(field.name for field in decoded.unknown)
        read.append(decoded.object.status.allocation)
    return Answer(Kind.ALLOCATED, tuple(read), unknown=frozenset(unknown))


# --- answering ---


def answer(vector: Vector, judge: Judge, limit: TimeLimit | None = None) -> Answer:
    """What our allocator says to a vector; within a limit in time, or the usual number of steps."""
    door = Admission.switched(vector.switches)
    try:
        stock = Stock(door.slices(vector.slices), vector.classes, Usage.of(vector.held), judge)
        ask = ask_of(door.claims(vector.claims), stock.classes.get)
    except AllocationFault as fault:
        return Answer(Kind.FAULT, text=str(fault))
    view = stock.seen_from(vector.node)
    ending = outcome(ask, view.shape, limit=limit)
    match ending:
        case Solved(picks=picks):
            numbers = count()
            results = assemble(ask, view, picks, new_share_id=lambda: _SHARE.format(next(numbers)))
            return Answer(Kind.ALLOCATED, results)
        case Faulted(candidate=candidate, refusal=refusal):
            device = _device(view, candidate)
            return Answer(Kind.FAULT, text=f"{refusal.reason} on {device}", about=device)
        case Exhausted():
            flaws = [shelf.flaw.reason for shelf in view.shelves if shelf.flaw is not None]
            return Answer(Kind.INVALID_POOLS if Reason.POOL_INVALID in flaws else Kind.REFUSED)
        case _:
            return Answer(Kind.GAVE_UP)


def _device(view: View, candidate: int) -> str:
    shelf, position = view.device(candidate)
    return "/".join((*shelf.pool, shelf.names[position]))
