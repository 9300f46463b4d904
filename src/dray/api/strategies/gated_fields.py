"""Which fields stand behind which gate, and how they are dropped when it is off.

Theory of operation: with a gate off, its fields are taken out of an object as it comes in, unless the
object already used the feature: then they stay, so that nothing stored is lost when a gate goes off.
"Used" is asked of the whole old object, status included. Everything further in is free of gates: a
field that is there counts.

Rules for this file: one of the few doors where gates are read (see gates.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dray.api import field_patterns
from dray.api.conversion.legacy_pods import CONTAINER_LISTS
from dray.api.kinds import Kind
from dray.gates import GATES, GateSet


def _of_asks(field: str, *, subrequests: bool = True) -> tuple[str, ...]:
    exactly = f"devices.requests[].exactly.{field}"
    return (exactly, f"devices.requests[].firstAvailable[].{field}") if subrequests else (exactly,)


def _of_claims(*spec: str, status: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Fields of a claim's spec stand in claims and in templates; those of its status only in claims."""
    return {
        "ResourceClaim.resource.k8s.io": tuple(f"spec.{field}" for field in spec)
        + tuple(f"status.{field}" for field in status),
        "ResourceClaimTemplate.resource.k8s.io": tuple(f"spec.spec.{field}" for field in spec),
    }


def _of_slices(*spec: str) -> dict[str, tuple[str, ...]]:
    return {"ResourceSlice.resource.k8s.io": tuple(f"spec.{field}" for field in spec)}


_RESULTS = "allocation.devices.results[]"
_CONDITIONS = ("bindingConditions", "bindingFailureConditions")

GATED: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "DynamicResourceAllocation": {
            "Pod": (
                "spec.resourceClaims",
                *(f"spec.{containers}[].resources.claims" for containers in CONTAINER_LISTS),
                "status.resourceClaimStatuses",
            )
        },
        "DRAPrioritizedList": _of_claims("devices.requests[].firstAvailable"),
        "DRAConsumableCapacity": {
            **_of_slices("devices[].allowMultipleAllocations", "devices[].capacity{}.requestPolicy"),
            **_of_claims(
                *_of_asks("capacity"),
                "devices.constraints[].distinctAttribute",
                status=(f"{_RESULTS}.shareID", f"{_RESULTS}.consumedCapacity", "devices[].shareID"),
            ),
        },
        "DRAListTypeAttributes": _of_slices(
            *(f"devices[].attributes{{}}.{name}" for name in ("list", "ints", "bools", "strings", "versions"))
        ),
        "DRAResourceSlicePriority": _of_slices("priority", "pool.priority"),
        "DRAPartitionableDevices": _of_slices(
            "sharedCounters",
            "perDeviceNodeSelection",
            *(f"devices[].{name}" for name in ("consumesCounters", "nodeName", "nodeSelector", "allNodes")),
        ),
        "DRAAdminAccess": _of_claims(
            *_of_asks("adminAccess", subrequests=False), status=(f"{_RESULTS}.adminAccess",)
        ),
        "DRADeviceTaints": {
            **_of_slices("devices[].taints"),
            **_of_claims(*_of_asks("tolerations"), status=(f"{_RESULTS}.tolerations",)),
        },
        "DRADeviceTaintRules": {},
        "DRAResourceClaimDeviceStatus": _of_claims(status=("devices",)),
        "DRADeviceBindingConditions": {
            **_of_slices("devices[].bindsToNode", *(f"devices[].{name}" for name in _CONDITIONS)),
            **_of_claims(
                status=("allocation.allocationTimestamp", *(f"{_RESULTS}.{name}" for name in _CONDITIONS))
            ),
        },
        "DRAControlPlaneController": {"Pod": ("spec.resourceClaims[].template",)},
    }
)
"""Gate, kind, fields. Kinds of the classic path and taint rules stand behind their gates as a whole: see
`closed_by`."""

_WHOLE_GROUPS: Mapping[str, str] = MappingProxyType(
    {"cdi.k8s.io": "DRAControlPlaneController", "resource.k8s.io": "DynamicResourceAllocation"}
)
_WHOLE_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"DeviceTaintRule.resource.k8s.io": ("DRADeviceTaints", "DRADeviceTaintRules")}
)


@dataclass(frozen=True, slots=True)
class DroppedField:
    """A field that was taken out because its gate is off."""

    gate: str
    path: str

    def __str__(self) -> str:
        return f"{self.path}: dropped, because feature gate `{self.gate}` is off"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of an object, and what was taken out."""

    object: Any
    dropped: tuple[DroppedField, ...] = ()


def closed_by(kind: Kind, gates: GateSet) -> str | None:
    """The gate that keeps a whole kind from being served; None when it is served."""
    return next((gate for gate in gates_before(kind) if not gates.enabled(gate)), None)


def gates_before(kind: Kind) -> tuple[str, ...]:
    """The gates that must be on for a kind to be served at all."""
    group = _WHOLE_GROUPS.get(kind.group)
    return (*((group,) if group else ()), *_WHOLE_KINDS.get(kind.qualified_name, ()))


def drop_disabled(kind: Kind, new: Any, old: Any | None, gates: GateSet) -> Kept:
    """The object (a struct, or the document of an open kind) without fields whose gate is off.

    Fields of a gate stay when the old object already used any of them.
    """
    dropped: list[DroppedField] = []
    for gate, patterns in _shut(kind, gates):
        if old is not None and _uses(old, patterns):
            continue
        for pattern in patterns:
            places = field_patterns.found(new, pattern)
            if places:
                dropped += (DroppedField(gate, place) for place in places)
                new = field_patterns.cleared(new, pattern)
    return Kept(new, tuple(dropped))


@lru_cache(maxsize=512)
def _shut(kind: Kind, gates: GateSet) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The gates that are off and have fields in a kind, with these fields."""
    fields = ((gate, GATED.get(gate, {}).get(kind.qualified_name, ())) for gate in GATES)
    return tuple((gate, patterns) for gate, patterns in fields if patterns and not gates.enabled(gate))


def _uses(obj: Any, patterns: tuple[str, ...]) -> bool:
    return any(field_patterns.found(obj, pattern) for pattern in patterns)


class Gatekeeper:
    """The gates of one server: what it serves, and what it takes out of objects that come in."""

    def __init__(self, gates: GateSet) -> None:
        self._gates = gates

    def serves(self, kind: Kind) -> bool:
        """Whether any gate keeps the kind from being served."""
        return closed_by(kind, self._gates) is None

    def closed(self, kind: Kind) -> str | None:
        """The gate that keeps the kind from being served, if any does."""
        return closed_by(kind, self._gates)

    def admitted(self, kind: Kind, new: Any, old: Any | None) -> Kept:
        """The object without fields whose gate is off and that were not in use before."""
        return drop_disabled(kind, new, old, self._gates)
