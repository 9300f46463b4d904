"""Admission: with a gate off, what stands behind it is dropped, withheld or refused.

Slices lose the fields of a gate that is off. A device that means nothing without them is withheld: no new
claim gets it, but whoever holds it is still charged for it. A claim that asks for something behind a closed
gate is a fault that names the gate: half an answer would be a wrong one. Further in nobody knows of gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from dray.allocator.inventory.device_profiles import Judge
from dray.allocator.inventory.selector_evaluator import Selectors
from dray.allocator.refusals import Reason
from dray.allocator.requests import named
from dray.allocator.withheld_devices import HiddenSlice, WithheldDevice, withhold
from dray.api import field_patterns
from dray.api.devices.device_cel import compile_selector
from dray.api.resource import Device, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.strategies.gated_fields import GATED
from dray.errors import AllocationFault
from dray.gates import GATES, GateSet

_SLICES = "ResourceSlice.resource.k8s.io"
_CLAIMS = "ResourceClaim.resource.k8s.io"

_RULES = ("DRADeviceTaints", "DRADeviceTaintRules")
"""Gates without which taint rules mean nothing."""

_REFUSALS = {
    "firstAvailable": "has alternatives (`firstAvailable`)",
    "capacity": "has capacity requests",
    "distinctAttribute": "has a constraint of distinct values (`distinctAttribute`)",
    "adminAccess": "asks for admin access",
}
"""Fields without which a claim means something else, and what to say of a claim that has them."""

_BINDING, _PARTITIONS = "DRADeviceBindingConditions", "DRAPartitionableDevices"
"""Gates without which some devices cannot be used at all."""

_STILL_HOLDING = ("spec.devices[].bindsToNode",)
"""Fields that go on restricting what was published with them: without them more nodes could use a device."""

_WHOLE_SLICES = ("spec.perDeviceNodeSelection", "spec.sharedCounters")
"""Fields of partitions without which a slice says nothing true."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The door under one choice of gates, for callers that must not know of gates themselves."""

    gates: GateSet

    @classmethod
    def switched(cls, switches: Mapping[str, bool]) -> Admission:
        """The door with some gates switched and the others as they are by default."""
        return cls(GateSet.default().changed(switches))

    def slices(self, slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
        """Slices without what stands behind closed gates."""
        return admit_slices(slices, self.gates)

    def rules(self, rules: Iterable[DeviceTaintRule]) -> tuple[DeviceTaintRule, ...]:
        """Taint rules, if any count."""
        return tuple(rules) if all(self.gates.enabled(gate) for gate in _RULES) else ()

    def claims(self, claims: Sequence[ResourceClaim]) -> list[ResourceClaim]:
        """Claims as they are; raises `AllocationFault` for one that needs a closed gate."""
        return admit_claims(claims, self.gates)

    def judge(self) -> Judge:
        """What a stock asks about selectors; those in stored objects may use everything."""
        return Selectors(partial(compile_selector, stored=True, gates=self.gates))


def admit_slices(slices: Iterable[ResourceSlice], gates: GateSet) -> list[ResourceSlice]:
    """Slices without what stands behind closed gates; devices that need it are withheld."""
    closed = [gate for gate in GATES if not gates.enabled(gate)]
    return [_admit_slice(published, closed) for published in slices] if closed else list(slices)


def _admit_slice(published: ResourceSlice, closed: Sequence[str]) -> ResourceSlice:
    admitted = published
    if _PARTITIONS in closed and _is_partitioned(published):
        admitted = _seen_by_nobody(published)
    if "DRAListTypeAttributes" in closed:
        admitted = _without_lists(admitted)
    for gate in closed:
        for pattern in GATED.get(gate, {}).get(_SLICES, ()):
            if pattern not in _STILL_HOLDING:
                admitted = field_patterns.cleared(admitted, pattern)
    return _withholding(admitted, published, closed)


def _withholding(admitted: ResourceSlice, published: ResourceSlice, closed: Sequence[str]) -> ResourceSlice:
    """A slice whose devices that need a closed gate are withheld."""
    if not admitted.spec.devices or not (_BINDING in closed or _PARTITIONS in closed):
        return admitted
    devices = tuple(
        _withheld(now, before, closed)
        for now, before in zip(admitted.spec.devices, published.spec.devices, strict=True)
    )
    if all(new is old for new, old in zip(devices, admitted.spec.devices, strict=True)):
        return admitted
    return msgspec.structs.replace(admitted, spec=msgspec.structs.replace(admitted.spec, devices=devices))


def _withheld(admitted: Device, published: Device, closed: Sequence[str]) -> Device:
    """A device as it is admitted, withheld when it is of no use without a closed gate."""
    if isinstance(published, WithheldDevice):
        return published
    if _BINDING in closed and published.binding_conditions:
        # Its counters stay charged to whoever holds it, and its pool keeps its place in the order.
        kept = msgspec.structs.replace(
            admitted,
            binding_conditions=published.binding_conditions,
            binding_failure_conditions=published.binding_failure_conditions,
        )
        return withhold(kept, Reason.BINDING_CONDITIONS)
    if _PARTITIONS in closed and published.consumes_counters:
        # What it draws is forgotten with the budgets: nobody draws from counters while the gate is closed.
        return withhold(admitted, Reason.COUNTERS_OFF)
    return admitted


def admit_claims(claims: Sequence[ResourceClaim], gates: GateSet) -> list[ResourceClaim]:
    """Claims as they are; raises `AllocationFault` for one that needs a closed gate."""
    admitted = list(claims)
    for gate in GATES:
        if gates.enabled(gate):
            continue
        spec_fields = [field for field in GATED.get(gate, {}).get(_CLAIMS, ()) if field.startswith("spec.")]
        for i, claim in enumerate(admitted):
            for field in spec_fields:
                places = field_patterns.found(claim, field)
                says = _REFUSALS.get(field.rpartition(".")[2])
                if places and says:
                    why = f"{says}, but the {gate} feature is disabled"
                    raise AllocationFault(why, claim=named(claim), field=places[0])
                admitted[i] = claim = field_patterns.cleared(claim, field)
    return admitted


def _is_partitioned(published: ResourceSlice) -> bool:
    return any(field_patterns.found(published, field) for field in _WHOLE_SLICES)


def _seen_by_nobody(published: ResourceSlice) -> ResourceSlice:
    """A slice that still counts for the completeness of its pool, but lends nothing to any node."""
    spec = msgspec.structs.replace(
        published.spec,
        devices=(),
        node_name=None,
        node_selector=None,
        all_nodes=None,
        per_device_node_selection=None,
    )
    return HiddenSlice(metadata=published.metadata, spec=spec, published=published)


def _without_lists(published: ResourceSlice) -> ResourceSlice:
    """A slice without list attributes: an attribute that holds nothing would fail every selector."""
    devices = tuple(_scalars_only(device) for device in published.spec.devices)
    if all(new is old for new, old in zip(devices, published.spec.devices, strict=True)):
        return published
    return msgspec.structs.replace(published, spec=msgspec.structs.replace(published.spec, devices=devices))


def _scalars_only(device: Device) -> Device:
    kept = {name: held for name, held in device.attributes.items() if not held.is_list}
    if len(kept) == len(device.attributes):
        return device
    return msgspec.structs.replace(device, attributes=kept)
