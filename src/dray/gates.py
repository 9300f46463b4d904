"""Every feature gate: name, stage, default, what it requires.

Theory of operation: `GATES` is the only list. A `GateSet` is a frozen choice over it, checked when it
is made: an unknown name or a gate whose requirement is off is refused at the door, with the gate
named, so that nothing further in needs to wonder.

Rules for this file: gates are *read* only in api/gated, api/deviceenv, allocator/admit and cluster
(and shown by the doors). What a gate switches lives there, not here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from dray.errors import GateError


class Stage(StrEnum):
    """How settled a feature is; the words of Kubernetes."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature switch."""

    name: str
    stage: Stage
    default: bool
    requires: tuple[str, ...]
    about: str


_DRA = "DynamicResourceAllocation"

GATES: Mapping[str, Gate] = MappingProxyType(
    {
        gate.name: gate
        for gate in (
            Gate(_DRA, Stage.GA, True, (), "claims, classes, slices; pods may ask for devices (KEP-3063)"),
            Gate(
                "DRAPrioritizedList",
                Stage.BETA,
                True,
                (_DRA,),
                "a request may list alternatives in order: `firstAvailable` (KEP-4816)",
            ),
            Gate(
                "DRAConsumableCapacity",
                Stage.BETA,
                True,
                (_DRA,),
                "devices shared by amounts of capacity, and `distinctAttribute` (KEP-5075)",
            ),
            Gate(
                "DRAListTypeAttributes",
                Stage.ALPHA,
                True,
                (_DRA,),
                "device attributes may hold lists of values (KEP-5491)",
            ),
            Gate(
                "DRAResourceSlicePriority",
                Stage.ALPHA,
                True,
                (_DRA,),
                "drivers order their slices and pools by priority (KEP-5773)",
            ),
            Gate(
                "DRAPartitionableDevices",
                Stage.BETA,
                True,
                (_DRA,),
                "devices that overlap draw from shared counters; node selection per device",
            ),
            Gate("DRAAdminAccess", Stage.BETA, True, (_DRA,), "claims that look at devices others use"),
            Gate("DRADeviceTaints", Stage.BETA, True, (_DRA,), "taints on devices, tolerations in requests"),
            Gate(
                "DRADeviceTaintRules",
                Stage.BETA,
                True,
                (_DRA,),
                "taints put on devices by administrators: `DeviceTaintRule`",
            ),
            Gate(
                "DRAResourceClaimDeviceStatus",
                Stage.BETA,
                True,
                (_DRA,),
                "drivers report conditions and network data of allocated devices in `status.devices`",
            ),
            Gate(
                "DRADeviceBindingConditions",
                Stage.BETA,
                True,
                (_DRA, "DRAResourceClaimDeviceStatus"),
                "binding a pod waits until a device reports that it is ready",
            ),
            Gate(
                "DRAControlPlaneController",
                Stage.ALPHA,
                True,
                (_DRA,),
                "the classic path: claims of `cdi.k8s.io` allocated by their driver's controller (KEP-3063)",
            ),
        )
    }
)

_GROUPS: Mapping[str, Stage] = MappingProxyType({"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA})


@dataclass(frozen=True, slots=True)
class GateSet:
    """Which gates are on; always complete and free of contradictions."""

    on: frozenset[str]

    def __post_init__(self) -> None:
        for name in self.on:
            _known(name)
        for name in sorted(self.on):
            missing = [needed for needed in GATES[name].requires if needed not in self.on]
            if missing:
                raise GateError(
                    f"feature gate `{name}` requires `{missing[0]}`, which is off; "
                    f"turn `{missing[0]}` on or add `{name}=false`"
                )

    def enabled(self, name: str) -> bool:
        """Whether a gate is on; asking for a gate that does not exist is an error, not a no."""
        return _known(name).name in self.on

    def __iter__(self) -> Iterator[tuple[Gate, bool]]:
        return ((gate, gate.name in self.on) for gate in GATES.values())

    @classmethod
    def default(cls) -> GateSet:
        """Every gate as the table says."""
        return cls(frozenset(gate.name for gate in GATES.values() if gate.default))

    def changed(self, switches: Mapping[str, bool]) -> GateSet:
        """These gates with some switched; groups (`AllAlpha`, `AllBeta`) first, single gates over them."""
        on = set(self.on)
        for group, stage in _GROUPS.items():
            if group in switches:
                members = {gate.name for gate in GATES.values() if gate.stage is stage}
                on = on | members if switches[group] else on - members
        for name, switch in switches.items():
            if name not in _GROUPS:
                (on.add if switch else on.discard)(_known(name).name)
        return GateSet(frozenset(on))

    @classmethod
    def parse(cls, text: str, base: GateSet | None = None) -> GateSet:
        """Read `A=true,B=false`, as `--feature-gates` takes it; what is not named stays as in `base`."""
        switches: dict[str, bool] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals or value.lower() not in ("true", "false"):
                raise GateError(f"feature gates are written `Name=true,Other=false`; got `{item}`")
            if name in switches and switches[name] != (value.lower() == "true"):
                raise GateError(f"feature gate `{name}` is both true and false in `{text}`")
            switches[name] = value.lower() == "true"
        return (base or cls.default()).changed(switches)


def _known(name: str) -> Gate:
    gate = GATES.get(name)
    if gate is None:
        near = difflib.get_close_matches(name, [*GATES, *_GROUPS], n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; known gates: {', '.join(GATES)}"
        raise GateError(f"unknown feature gate `{name}`{hint}")
    return gate
