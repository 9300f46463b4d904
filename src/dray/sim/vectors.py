"""Vectors: questions to the allocator with an answer on record, and the answer we give.

Theory of operation: a vector is a JSON object: features, node, classes, slices, claims, what is taken, and
what an allocator of Kubernetes answered. Three spellings of the record are understood: `runs` (per channel,
with everything about the run), `upstream` per channel, and `upstream` alone. Objects are taken as they
are, without defaults. Both answers are brought to one form, in which share ids are only present or absent
and the order of values in a node selector does not count; then they are equal or not.

Rules for this file: no opinions about differences (see verdicts), no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from types import MappingProxyType
from typing import Any

import msgspec

from dray.allocator.admit import Admission
from dray.allocator.assemble import assemble
from dray.allocator.beats import DeadEnd, Ending, Exhausted, Faulted, Solved, Took
from dray.allocator.contents import Judge
from dray.allocator.reasons import Reason, Refusal
from dray.allocator.search import search
from dray.allocator.stock import Stock, View
from dray.allocator.usage import Usage
from dray.allocator.wants import Ask, ask_of
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
from dray.values.nodeselector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
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

_ANY_SHARE = "any"


class VectorError(InputError):
    """A document that is no vector."""


class Kind(StrEnum):
    """How an attempt ended."""

    ALLOCATED = "allocated"
    REFUSED = "refused"
    INVALID_POOLS = "refused: invalid pools"
    FAULT = "fault"
    GAVE_UP = "gave up"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question; `told` are the reasons met on the way and what they were about."""

    kind: Kind
    results: tuple[AllocationResult, ...] = ()
    text: str = ""
    told: frozenset[tuple[str, str]] = frozenset()

    @property
    def words(self) -> str:
        """The answer in a line: devices by request, or why there are none."""
        if self.kind is Kind.ALLOCATED:
            return "; ".join(_shown(result) for result in self.results) or "nothing asked"
        return f"{self.kind.value}: {self.text}" if self.text else self.kind.value

    def equals(self, recorded: Answer) -> bool:
        """Whether it is the answer on record; the texts of faults are our own."""
        if self.kind is not recorded.kind or len(self.results) != len(recorded.results):
            return False
        pairs = zip(self.results, recorded.results, strict=True)
        return all(plain(ours) == plain(theirs) for ours, theirs in pairs)


@dataclass(frozen=True, slots=True)
class Vector:
    """One question with the answer on record; `unknown` are fields that dray does not have."""

    name: str
    switches: Mapping[str, bool]
    node: Node
    classes: tuple[DeviceClass, ...]
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    held: tuple[ResourceClaim, ...]
    recorded: Answer
    unknown: frozenset[str] = frozenset()


# --- reading ---


def read_vector(document: Any) -> Vector:
    """A vector from its document; raises `VectorError` for what is none."""
    if not isinstance(document, Mapping) or "claimsToAllocate" not in document:
        raise VectorError("not a vector: expected an object with `claimsToAllocate`, `slices`, `classes`")
    name = str(document.get("name", ""))
    unknown: set[str] = set()
    try:
        return Vector(
            name=name,
            switches={SWITCHES[f]: on for f, on in document.get("features", {}).items() if f in SWITCHES},
            node=decode_document(document.get("effectiveNode") or document.get("node")).object,
            classes=tuple(_objects(document, "classes", unknown)),
            slices=tuple(_objects(document, "slices", unknown)),
            claims=tuple(_objects(document, "claimsToAllocate", unknown)),
            held=held_claims(document),
            recorded=_recorded(document),
            unknown=frozenset(unknown),
        )
    except (DecodeError, KeyError, TypeError, AttributeError, ValueError) as wrong:
        raise VectorError(f"vector `{name}` cannot be read: {wrong}") from None


def _objects(document: Mapping[str, Any], field: str, unknown: set[str]) -> Iterator[Any]:
    for item in document.get(field) or ():
        decoded = decode_document(item)
        unknown.update(found.name for found in decoded.unknown)
        yield decoded.object


def held_claims(document: Mapping[str, Any]) -> tuple[ResourceClaim, ...]:
    """What is taken already, as claims that hold it: whole devices, shares, amounts summed per device."""
    amounts: dict[tuple[str, str, str], dict[str, Quantity]] = {}
    for summed in document.get("allocatedCapacityDevices") or ():
        consumed = (summed.get("consumedCapacity") or {}).items()
        amounts[_device_id(summed)] = {name: Quantity.parse(amount) for name, amount in consumed}
    results: list[DeviceRequestAllocationResult] = []
    for whole in document.get("allocatedDevices") or ():
        results.append(_held(_device_id(whole)))
    for share in document.get("allocatedSharedDeviceIDs") or ():
        # Which share consumes how much is not on record, so the first one carries the sum.
        device = _device_id(share)
        results.append(_held(device, str(share["shareID"]), amounts.pop(device, {})))
    results += [_held(device, None, consumed) for device, consumed in amounts.items()]
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
    return Answer(Kind.INVALID_POOLS if on_node else Kind.FAULT, text=text)


def _allocated(results: Any) -> Answer:
    read = []
    for result in results:
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "status": {"allocation": result},
        }
        read.append(decode_document(claim).object.status.allocation)
    return Answer(Kind.ALLOCATED, tuple(read))


# --- answering ---


def answer(vector: Vector, judge: Judge) -> Answer:
    """What our allocator says to a vector."""
    door = Admission.switched(vector.switches)
    try:
        stock = Stock(door.slices(vector.slices), vector.classes, Usage.of(vector.held), judge)
        ask = ask_of(door.claims(vector.claims), stock.classes.get)
    except AllocationFault as fault:
        return Answer(Kind.FAULT, text=str(fault))
    view = stock.seen_from(vector.node)
    told = set(_flaws(view))
    ending: Ending | None = None
    for beat in search(ask, view.shape):
        if isinstance(beat, Took | DeadEnd):
            told.update(_told(view, beat))
        else:
            ending = beat
    assert ending is not None
    return _ended(ask, view, ending, frozenset(told))


def _ended(ask: Ask, view: View, ending: Ending, told: frozenset[tuple[str, str]]) -> Answer:
    match ending:
        case Solved(picks=picks):
            numbers = count()
            results = assemble(
                ask, view, picks, new_share_id=lambda: f"00000000-0000-4000-8000-{next(numbers):012x}"
            )
            return Answer(Kind.ALLOCATED, results, "", told)
        case Faulted(candidate=candidate, refusal=refusal):
            return Answer(Kind.FAULT, (), f"{refusal.reason} on {_device(view, candidate)}", told)
        case Exhausted():
            invalid = any(reason == Reason.POOL_INVALID for reason, _ in told)
            return Answer(Kind.INVALID_POOLS if invalid else Kind.REFUSED, (), "", told)
        case _:
            return Answer(Kind.GAVE_UP, (), "", told)


def _flaws(view: View) -> Iterator[tuple[str, str]]:
    for shelf in view.shelves:
        if shelf.flaw is not None:
            yield shelf.flaw.reason.value, "/".join(shelf.pool)


def _told(view: View, beat: Took | DeadEnd) -> Iterator[tuple[str, str]]:
    met: tuple[tuple[int, Refusal], ...] = beat.passed_over if isinstance(beat, Took) else beat.refused
    for candidate, refusal in met:
        yield refusal.reason.value, _device(view, candidate)
    if isinstance(beat, DeadEnd) and beat.short is not None:
        yield beat.short.reason.value, ""


def _device(view: View, candidate: int) -> str:
    shelf, position = view.device(candidate)
    return "/".join((*shelf.pool, shelf.names[position]))


# --- one form ---


def plain(result: AllocationResult) -> AllocationResult:
    """An allocation without what may differ: the text of share ids, the order in node selectors."""
    results = tuple(
        msgspec.structs.replace(
            device,
            share_id=None if device.share_id is None else _ANY_SHARE,
            admin_access=device.admin_access or None,
        )
        for device in result.devices.results
    )
    devices = msgspec.structs.replace(result.devices, results=results)
    selector = None if result.node_selector is None else _sorted(result.node_selector)
    return msgspec.structs.replace(result, devices=devices, node_selector=selector)


def _sorted(selector: NodeSelector) -> NodeSelector:
    def ordered(items: tuple[NodeSelectorRequirement, ...]) -> tuple[NodeSelectorRequirement, ...]:
        each = [msgspec.structs.replace(item, values=tuple(sorted(item.values))) for item in items]
        return tuple(sorted(each, key=lambda item: (item.key, item.operator, item.values)))

    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=ordered(term.match_expressions), match_fields=ordered(term.match_fields)
            )
            for term in selector.node_selector_terms
        )
    )


def _shown(result: AllocationResult) -> str:
    """The devices of a claim in a line, with what shares consume."""
    shown = []
    for device in result.devices.results:
        amounts = ", ".join(f"{name}={amount}" for name, amount in sorted(device.consumed_capacity.items()))
        text = f"{device.request}={device.driver}/{device.pool}/{device.device}"
        shown.append(f"{text} ({amounts})" if amounts else text)
    return " ".join(shown) or "no device"
