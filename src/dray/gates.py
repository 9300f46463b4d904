"""Feature gates: name, stage, default and requirements of each.

Theory of operation: `GATES` is the only list. A `GateSet` is a frozen choice of gates, checked when it is
created: an unknown gate, or a gate whose requirement is off, is refused with its name, so that no other code
needs to check.

Rules for this file: gates are *read* only in `api/strategies/gated_fields`, `api/devices/device_cel`,
`allocator/feature_gates` and `cluster` (and shown by commands). What a gate enables is implemented there, not
here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from dray.errors import GateError


class GateStage(StrEnum):
    """How stable a feature is; the stages of Kubernetes."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """One feature switch."""

    name: str
    stage: GateStage
    default: bool
    requires: tuple[str, ...]
    about: str


_DRA = "DynamicResourceAllocation"

GATES: Mapping[str, FeatureGate] = MappingProxyType(
    {
        gate.name: gate
        for gate in (
            FeatureGate(
                _DRA, GateStage.GA, True, (), "claims, classes, slices; pods may ask for devices (KEP-3063)"
            ),
            FeatureGate(
                "DRAPrioritizedList",
                GateStage.BETA,
                True,
                (_DRA,),
                "a request may list alternatives in order: `firstAvailable` (KEP-4816)",
            ),
            FeatureGate(
                "DRAConsumableCapacity",
                GateStage.BETA,
                True,
                (_DRA,),
                "devices shared by amounts of capacity, and `distinctAttribute` (KEP-5075)",
            ),
            FeatureGate(
                "DRAListTypeAttributes",
                GateStage.ALPHA,
                True,
                (_DRA,),
                "device attributes may hold lists of values (KEP-5491)",
            ),
            FeatureGate(
                "DRAResourceSlicePriority",
                GateStage.ALPHA,
                True,
                (_DRA,),
                "drivers order their slices and pools by priority (KEP-5773)",
            ),
            FeatureGate(
                "DRAPartitionableDevices",
                GateStage.BETA,
                True,
                (_DRA,),
                "devices that overlap draw from shared counters; node selection per device",
            ),
            FeatureGate(
                "DRAAdminAccess", GateStage.BETA, True, (_DRA,), "claims that look at devices others use"
            ),
            FeatureGate(
                "DRADeviceTaints", GateStage.BETA, True, (_DRA,), "taints on devices, tolerations in requests"
            ),
            FeatureGate(
                "DRADeviceTaintRules",
                GateStage.BETA,
                True,
                (_DRA,),
                "taints put on devices by administrators: `DeviceTaintRule`",
            ),
            FeatureGate(
                "DRAResourceClaimDeviceStatus",
                GateStage.BETA,
                True,
                (_DRA,),
                "drivers report conditions and network data of allocated devices in `status.devices`",
            ),
            FeatureGate(
                "DRADeviceBindingConditions",
                GateStage.BETA,
                True,
                (_DRA, "DRAResourceClaimDeviceStatus"),
                "binding a pod waits until a device reports that it is ready",
            ),
            FeatureGate(
                "DRAControlPlaneController",
                GateStage.ALPHA,
                True,
                (_DRA,),
                "the classic path: claims of `cdi.k8s.io` allocated by their driver's controller (KEP-3063)",
            ),
        )
    }
)

_GATE_GROUPS: Mapping[str, GateStage] = MappingProxyType(
    {"AllAlpha": GateStage.ALPHA, "AllBeta": GateStage.BETA}
)


@dataclass(frozen=True, slots=True)
class GateSet:
    """Which gates are on; always complete and consistent."""

    enabled_names: frozenset[str]

    def __post_init__(self) -> None:
        for name in self.enabled_names:
            _get_gate(name)
        for name in sorted(self.enabled_names):
            missing = [needed for needed in GATES[name].requires if needed not in self.enabled_names]
            if missing:
                raise GateError(
                    f"feature gate `{name}` requires `{missing[0]}`, which is off; "
                    f"turn `{missing[0]}` on or add `{name}=false`"
                )

    def is_enabled(self, name: str) -> bool:
        """Whether a gate is on; an unknown gate is an error."""
        return _get_gate(name).name in self.enabled_names

    def __iter__(self) -> Iterator[tuple[FeatureGate, bool]]:
        return ((gate, gate.name in self.enabled_names) for gate in GATES.values())

    @classmethod
    def from_defaults(cls) -> GateSet:
        """Return every gate with its default."""
        return cls(frozenset(gate.name for gate in GATES.values() if gate.default))

    def override(self, overrides: Mapping[str, bool]) -> GateSet:
        """Return these gates with some switched; groups (`AllAlpha`, `AllBeta`) first, then single gates."""
        on = set(self.enabled_names)
        for group, stage in _GATE_GROUPS.items():
            if group in overrides:
                members = {gate.name for gate in GATES.values() if gate.stage is stage}
                on = on | members if overrides[group] else on - members
        for name, switch in overrides.items():
            if name not in _GATE_GROUPS:
                (on.add if switch else on.discard)(_get_gate(name).name)
        return GateSet(frozenset(on))

    @classmethod
    def parse(cls, text: str, base: GateSet | None = None) -> GateSet:
        """Parse `A=true,B=false`, as `--feature-gates` takes it; other gates stay as in `base`."""
        switches: dict[str, bool] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals or value.lower() not in ("true", "false"):
                raise GateError(f"feature gates are written `Name=true,Other=false`; got `{item}`")
            if name in switches and switches[name] != (value.lower() == "true"):
                raise GateError(f"feature gate `{name}` is both true and false in `{text}`")
            switches[name] = value.lower() == "true"
        return (base or cls.from_defaults()).override(switches)


def _get_gate(name: str) -> FeatureGate:
    gate = GATES.get(name)
    if gate is None:
        near = difflib.get_close_matches(name, [*GATES, *_GATE_GROUPS], n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; known gates: {', '.join(GATES)}"
        raise GateError(f"unknown feature gate `{name}`{hint}")
    return gate
