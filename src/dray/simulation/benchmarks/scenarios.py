"""Scenarios: queries to the allocator that are worth timing, with the answer they must get.

A scenario is a JSON object like a vector, for one node (`micro`, `hard`) or for many (`nodes`), with what is
expected of it: whether devices are found, and which. A vector is a scenario, too (`vector`): the answer on
record is expected, and `goMicros` is the time of the other allocator. Other reference times stand in a file
of their own, together with a calibration: what a fixed loop took where they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.codec import decode_document
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.errors import DecodeError, InputError
from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.comparison import TIMEOUTS
from dray.simulation.vectors.vector import GATES_BY_FEATURE, Vector, build_held_claims, read_vector

ALLOCATED = "allocated"
VECTOR_KIND = "vector"
"""The kind of a scenario that is a vector."""

RECORDED_CALIBRATION = 0.2076
"""Seconds the calibration loop took where the times inside vectors were recorded; they do not say it."""

_ANSWERED = (ALLOCATED, "none")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question, and the answer it must get; `devices` are those on the last node, where known.

    `documents` are the claims as they were read. Only vectors have `vector` and `reference` (microseconds).
    """

    name: str
    family: str
    kind: str
    gate_overrides: Mapping[str, bool]
    nodes: tuple[Node, ...]
    classes: tuple[DeviceClass, ...]
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    held: tuple[ResourceClaim, ...]
    found: bool
    devices: tuple[str, ...]
    documents: tuple[Any, ...]
    vector: Vector | None = None
    reference: float | None = None

    def build_inventory(self, evaluator: DeviceSelectorEvaluator) -> DeviceInventory:
        """A fresh stock for it."""
        slices = AllocatorGateFilter.from_overrides(self.gate_overrides).admit_slices(self.slices)
        return DeviceInventory(slices, self.classes, DeviceUsage.from_claims(self.held), evaluator)

    def decode_claims(self) -> tuple[ResourceClaim, ...]:
        """The claims, decoded once more: objects that nobody can have remembered anything about."""
        return _decode_objects(self.documents)


def read_scenario(document: Any, family: str = "") -> Scenario | None:
    """A scenario from its document, None for a document that is something else.

    `family` is that of a vector, which does not name one.
    """
    if not isinstance(document, Mapping) or "claimsToAllocate" not in document:
        return None
    if "family" not in document:
        return _build_from_vector(document, family) if "upstream" in document or "runs" in document else None
    name = str(document.get("name"))
    try:
        return Scenario(
            name=name,
            family=str(document["family"]),
            kind=str(document["kind"]),
            gate_overrides={
                GATES_BY_FEATURE[f]: on
                for f, on in document.get("features", {}).items()
                if f in GATES_BY_FEATURE
            },
            nodes=_decode_objects(document.get("nodes") or [document["node"]]),
            classes=_decode_objects(document["classes"]),
            slices=_decode_objects(document["slices"]),
            claims=_decode_objects(document["claimsToAllocate"]),
            held=build_held_claims(document),
            found=document["expected"]["outcome"].startswith(ALLOCATED),
            devices=tuple(document["expected"]["devices"]),
            documents=tuple(document["claimsToAllocate"]),
        )
    except (DecodeError, KeyError, TypeError, AttributeError) as wrong:
        raise InputError(f"scenario `{name}` cannot be read: {type(wrong).__name__}: {wrong}") from None


def _build_from_vector(document: Mapping[str, Any], family: str) -> Scenario:
    vector = read_vector(document)
    recorded = vector.recorded
    try:
        micros = float(document["goMicros"]) if "goMicros" in document else None
    except (TypeError, ValueError):
        micros = 0.0
    if micros is not None and not 0 < micros < float("inf"):
        raise InputError(
            f"vector `{vector.name}`: goMicros: expected a number above 0, got `{document['goMicros']}`"
        )
    # An error that is no answer has no time either.
    answered = not any(words in recorded.text for words in TIMEOUTS)
    return Scenario(
        name=vector.name,
        family=family,
        kind=VECTOR_KIND,
        gate_overrides=vector.gate_overrides,
        nodes=(vector.node,),
        classes=vector.classes,
        slices=vector.slices,
        claims=vector.claims,
        held=vector.held,
        found=recorded.kind is AnswerKind.ALLOCATED,
        devices=(),
        documents=tuple(document["claimsToAllocate"]),
        vector=vector,
        reference=micros if answered else None,
    )


def _decode_objects(documents: Any) -> tuple[Any, ...]:
    return tuple(decode_document(item).object for item in documents)


@dataclass(frozen=True, slots=True)
class ReferenceTimes:
    """Times of another allocator in microseconds, by scenario, each with how long its calibration took."""

    times: Mapping[str, tuple[float, float]]

    @classmethod
    def parse(cls, document: Any) -> ReferenceTimes:
        """The best time of any channel; raises `InputError` when it is no such file."""
        try:
            times = {
                name: _find_best_time(channels, "allocate_us", 1.0)
                for name, channels in document["micro"].items()
            }
            times |= {
                name: _find_best_time(channels, "seconds", 1e6) for name, channels in document["hard"].items()
            }
            calibration = float(document["calibration"]["seconds"])
            if calibration <= 0:
                raise ValueError(f"calibration of {calibration} seconds")
            return cls({name: (time, calibration) for name, time in times.items() if time is not None})
        except (KeyError, TypeError, AttributeError, ValueError) as wrong:
            raise InputError(f"not a file of reference times: {type(wrong).__name__}: {wrong}") from None

    def scale_time(self, scenario: Scenario, calibration: float) -> float | None:
        """The time of a scenario on a machine whose calibration takes so many seconds, where one is known."""
        found = self.times.get(scenario.name)
        if found is None and scenario.reference is not None:
            found = scenario.reference, RECORDED_CALIBRATION
        return None if found is None else found[0] * calibration / found[1]


def _find_best_time(channels: Mapping[str, Any], field: str, scale: float) -> float | None:
    """The best time of the channels that came to an answer."""
    times = [
        float(run[field]) * scale
        for run in channels.values()
        if run.get(field) and str(run.get("outcome")).startswith(_ANSWERED)
    ]
    return min(times, default=None)
