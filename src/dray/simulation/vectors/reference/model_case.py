"""The question a model is asked: a vector, the departures that are made, and how an attempt is aborted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_profiles import Judge
from dray.simulation.vectors.answers import Kind
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.vector import Vector

NANOS = 10**9
LARGEST = 2**63 - 1


class Abort(Exception):  # noqa: N818
    """The end of a whole attempt: words of the message of Kubernetes, and the device or pool it is about."""

    def __init__(self, *words: str, about: str = "", kind: Kind = Kind.FAULT) -> None:
        super().__init__(" ".join(words))
        self.words = words
        self.about = about
        self.kind = kind


class TooLarge(Exception):  # noqa: N818
    """More work than the model is for."""


@dataclass(frozen=True)
class Case:
    """A vector under some departures."""

    vector: Vector
    judge: Judge
    departures: frozenset[Departure]

    def departs(self, departure: Departure) -> bool:
        """Whether the model answers as dray does in this point."""
        return departure in self.departures

    @cached_property
    def _gates(self) -> frozenset[str]:
        gates = Admission.switched(self.vector.switches).gates
        return frozenset(name for name in _GATES if gates.enabled(name))

    def enabled(self, gate: str) -> bool:
        """Whether a gate that dray has is on."""
        return gate in self._gates

    def feature(self, name: str, unsaid: bool = False) -> bool:
        """Whether a feature of Kubernetes is on, by the name that vectors use."""
        return self.vector.features.get(name, unsaid)


_GATES = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAListTypeAttributes",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRAResourceSlicePriority",
)
