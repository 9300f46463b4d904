"""Fields behind feature gates, and how they are dropped when the gate is off.

Theory of operation: with a gate off, its fields are removed from an incoming object, unless the stored object
already uses the feature: then they stay, so that nothing stored is lost when a gate is turned off. All fields
of the stored object count for this, status included. All code behind this filter is free of gates: a field
that is set counts.

Rules for this file: one of the few modules that read gates (see gates.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dray.api import field_patterns
from dray.api.core.pod import CONTAINER_LISTS
from dray.api.kinds import Kind
from dray.gates import GATES, GateSet


def _list_request_fields(field: str, *, subrequests: bool = True) -> tuple[str, ...]:
    exactly = f"devices.requests[].exactly.{field}"
    return (exactly, f"devices.requests[].firstAvailable[].{field}") if subrequests else (exactly,)


def _list_claim_fields(*spec: str, status: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """List fields of a claim's spec for claims and templates, and fields of its status for claims."""
    return {
        "ResourceClaim.resource.k8s.io": tuple(f"spec.{field}" for field in spec)
        + tuple(f"status.{field}" for field in status),
        "ResourceClaimTemplate.resource.k8s.io": tuple(f"spec.spec.{field}" for field in spec),
    }


def _list_slice_fields(*spec: str) -> dict[str, tuple[str, ...]]:
    return {"ResourceSlice.resource.k8s.io": tuple(f"spec.{field}" for field in spec)}


_RESULTS = "allocation.devices.results[]"
_CONDITIONS = ("bindingConditions", "bindingFailureConditions")

GATED_FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "DynamicResourceAllocation": {
            "Pod": (
                "spec.resourceClaims",
                *(f"spec.{containers}[].resources.claims" for containers in CONTAINER_LISTS),
                "status.resourceClaimStatuses",
            )
        },
        "DRAPrioritizedList": _list_claim_fields("devices.requests[].firstAvailable"),
        "DRAConsumableCapacity": {
            **_list_slice_fields("devices[].allowMultipleAllocations", "devices[].capacity{}.requestPolicy"),
            **_list_claim_fields(
                *_list_request_fields("capacity"),
                "devices.constraints[].distinctAttribute",
                status=(f"{_RESULTS}.shareID", f"{_RESULTS}.consumedCapacity", "devices[].shareID"),
            ),
        },
        "DRAListTypeAttributes": _list_slice_fields(
            *(f"devices[].attributes{{}}.{name}" for name in ("list", "ints", "bools", "strings", "versions"))
        ),
        "DRAResourceSlicePriority": _list_slice_fields("priority", "pool.priority"),
        "DRAPartitionableDevices": _list_slice_fields(
            "sharedCounters",
            "perDeviceNodeSelection",
            *(f"devices[].{name}" for name in ("consumesCounters", "nodeName", "nodeSelector", "allNodes")),
        ),
        "DRAAdminAccess": _list_claim_fields(
            *_list_request_fields("adminAccess", subrequests=False), status=(f"{_RESULTS}.adminAccess",)
        ),
        "DRADeviceTaints": {
            **_list_slice_fields("devices[].taints"),
            **_list_claim_fields(*_list_request_fields("tolerations"), status=(f"{_RESULTS}.tolerations",)),
        },
        "DRADeviceTaintRules": {},
        "DRAResourceClaimDeviceStatus": _list_claim_fields(status=("devices",)),
        "DRADeviceBindingConditions": {
            **_list_slice_fields("devices[].bindsToNode", *(f"devices[].{name}" for name in _CONDITIONS)),
            **_list_claim_fields(
                status=("allocation.allocationTimestamp", *(f"{_RESULTS}.{name}" for name in _CONDITIONS))
            ),
        },
        "DRAControlPlaneController": {"Pod": ("spec.resourceClaims[].template",)},
    }
)
"""Gate, kind, fields. Kinds of the classic path and taint rules are behind their gates as a whole: see
`find_disabling_gate`.
"""

_GATED_GROUPS: Mapping[str, str] = MappingProxyType(
    {"cdi.k8s.io": "DRAControlPlaneController", "resource.k8s.io": "DynamicResourceAllocation"}
)
_GATED_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"DeviceTaintRule.resource.k8s.io": ("DRADeviceTaints", "DRADeviceTaintRules")}
)


@dataclass(frozen=True, slots=True)
class DroppedField:
    """A field that was removed because its gate is off."""

    gate: str
    path: str

    def __str__(self) -> str:
        return f"{self.path}: dropped, because feature gate `{self.gate}` is off"


@dataclass(frozen=True, slots=True)
class FeatureGateFilterResult:
    """What is left of an object, and what was removed."""

    object: Any
    dropped: tuple[DroppedField, ...] = ()


def find_disabling_gate(kind: Kind, gates: GateSet) -> str | None:
    """Return the gate that keeps a kind from being served; None when it is served."""
    return next((gate for gate in list_required_gates(kind) if not gates.is_enabled(gate)), None)


def list_required_gates(kind: Kind) -> tuple[str, ...]:
    """Return the gates that must be on for a kind to be served at all."""
    group = _GATED_GROUPS.get(kind.group)
    return (*((group,) if group else ()), *_GATED_KINDS.get(kind.qualified_name, ()))


def drop_disabled_fields(kind: Kind, new: Any, old: Any | None, gates: GateSet) -> FeatureGateFilterResult:
    """Return the object (a struct, or the document of an open kind) without fields whose gate is off.

    Fields of a gate stay when the old object already uses any of them.
    """
    dropped: list[DroppedField] = []
    for gate, patterns in _list_disabled_fields(kind, gates):
        if old is not None and _uses_any_field(old, patterns):
            continue
        for pattern in patterns:
            places = field_patterns.find_fields(new, pattern)
            if places:
                dropped += (DroppedField(gate, place) for place in places)
                new = field_patterns.clear_fields(new, pattern)
    return FeatureGateFilterResult(new, tuple(dropped))


@lru_cache(maxsize=512)
def _list_disabled_fields(kind: Kind, gates: GateSet) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the gates that are off and have fields in a kind, with these fields."""
    fields = ((gate, GATED_FIELDS.get(gate, {}).get(kind.qualified_name, ())) for gate in GATES)
    return tuple((gate, patterns) for gate, patterns in fields if patterns and not gates.is_enabled(gate))


def _uses_any_field(obj: Any, patterns: tuple[str, ...]) -> bool:
    return any(field_patterns.find_fields(obj, pattern) for pattern in patterns)


class FeatureGateFilter:
    """The gates of one server: the kinds it serves, and the fields it removes from incoming objects."""

    def __init__(self, gates: GateSet) -> None:
        self._gates = gates

    def is_served(self, kind: Kind) -> bool:
        """Whether no gate keeps the kind from being served."""
        return find_disabling_gate(kind, self._gates) is None

    def find_disabling_gate(self, kind: Kind) -> str | None:
        """Return the gate that keeps the kind from being served, if any does."""
        return find_disabling_gate(kind, self._gates)

    def drop_disabled_fields(self, kind: Kind, new: Any, old: Any | None) -> FeatureGateFilterResult:
        """Return the object without fields whose gate is off and that were not in use before."""
        return drop_disabled_fields(kind, new, old, self._gates)
