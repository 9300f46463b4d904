"""Input of the model: a vector, the departures to apply, and how an attempt is aborted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.vector import Vector

NANOS = 10**9
MAX_INT64 = 2**63 - 1


class ModelAbortError(Exception):
    """The end of a whole attempt: words of the message of Kubernetes, and the device or pool it is about."""

    def __init__(self, *words: str, about: str = "", kind: AnswerKind = AnswerKind.FAULT) -> None:
        super().__init__(" ".join(words))
        self.message_parts = words
        self.about = about
        self.kind = kind


class ModelTooLargeError(Exception):
    """The vector takes more steps than the model allows."""


@dataclass(frozen=True)
class ModelCase:
    """A vector under some departures."""

    vector: Vector
    evaluator: DeviceSelectorEvaluator
    departures: frozenset[Departure]

    def departs(self, departure: Departure) -> bool:
        """Whether the model answers as dray does in this point."""
        return departure in self.departures

    @cached_property
    def _enabled_gates(self) -> frozenset[str]:
        gates = AllocatorGateFilter.from_overrides(self.vector.gate_overrides).gates
        return frozenset(name for name in _GATE_NAMES if gates.is_enabled(name))

    def is_gate_enabled(self, gate: str) -> bool:
        """Whether a gate that dray has is on."""
        return gate in self._enabled_gates

    def is_feature_enabled(self, name: str, default: bool = False) -> bool:
        """Whether a feature of Kubernetes is on, by the name that vectors use."""
        return self.vector.features.get(name, default)


_GATE_NAMES = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAListTypeAttributes",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRAResourceSlicePriority",
)
