"""Scenarios: questions to the allocator that are worth timing, with the answer they must get.

A scenario is a JSON object like a vector, for one node (`micro`, `hard`) or for many (`nodes`), with what is
expected of it: whether devices are found, and which. Reference times of another allocator stand in a file of
their own, together with a calibration: what a fixed loop took where they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.allocator.admit import Admission
from dray.allocator.contents import Judge
from dray.allocator.stock import Stock
from dray.allocator.usage import Usage
from dray.api.codec import decode_document
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.errors import DecodeError, InputError
from dray.sim.vectors import SWITCHES, held_claims

FOUND = "allocated"
_ANSWERS = (FOUND, "none")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question, and the answer it must get; `devices` are those on the last node, where known."""

    name: str
    family: str
    kind: str
    switches: Mapping[str, bool]
    nodes: tuple[Node, ...]
    classes: tuple[DeviceClass, ...]
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    held: tuple[ResourceClaim, ...]
    found: bool
    devices: tuple[str, ...]

    def stock(self, judge: Judge) -> Stock:
        """A fresh stock for it."""
        slices = Admission.switched(self.switches).slices(self.slices)
        return Stock(slices, self.classes, Usage.of(self.held), judge)


def read_scenario(document: Any) -> Scenario | None:
    """A scenario from its document, None for a document that is something else."""
    if not isinstance(document, Mapping) or not {"family", "claimsToAllocate"} <= document.keys():
        return None
    name = str(document.get("name"))
    try:
        return Scenario(
            name=name,
            family=str(document["family"]),
            kind=str(document["kind"]),
            switches={SWITCHES[f]: on for f, on in document.get("features", {}).items() if f in SWITCHES},
            nodes=_objects(document.get("nodes") or [document["node"]]),
            classes=_objects(document["classes"]),
            slices=_objects(document["slices"]),
            claims=_objects(document["claimsToAllocate"]),
            held=held_claims(document),
            found=document["expected"]["outcome"].startswith(FOUND),
            devices=tuple(document["expected"]["devices"]),
        )
    except (DecodeError, KeyError, TypeError, AttributeError) as wrong:
        raise InputError(f"scenario `{name}` cannot be read: {type(wrong).__name__}: {wrong}") from None


def _objects(documents: Any) -> tuple[Any, ...]:
    return tuple(decode_document(item).object for item in documents)


@dataclass(frozen=True, slots=True)
class Reference:
    """Times of another allocator in microseconds, by scenario, and how long its calibration took."""

    times: Mapping[str, float]
    calibration: float

    @classmethod
    def read(cls, document: Any) -> Reference:
        """The best time of any channel; raises `InputError` when it is no such file."""
        try:
            times = {
                name: _best(channels, "allocate_us", 1.0) for name, channels in document["micro"].items()
            }
            times |= {name: _best(channels, "seconds", 1e6) for name, channels in document["hard"].items()}
            return cls(
                {name: time for name, time in times.items() if time is not None},
                float(document["calibration"]["seconds"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as wrong:
            raise InputError(f"not a file of reference times: {type(wrong).__name__}: {wrong}") from None


def _best(channels: Mapping[str, Any], field: str, scale: float) -> float | None:
    """The best time of the channels that came to an answer."""
    times = [
        float(run[field]) * scale
        for run in channels.values()
        if run.get(field) and str(run.get("outcome")).startswith(_ANSWERS)
    ]
    return min(times, default=None)
