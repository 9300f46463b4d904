"""Feature gates of the allocator: clears, withholds or refuses what depends on a disabled gate.

Slices lose the fields of a disabled gate. A device that is of no use without them is withheld: no new claim
gets it, but usage still charges the claims that have it. A claim that asks for something behind a disabled
gate is an error that names the gate, because an answer to the rest of the claim would be wrong. No other
module of the allocator reads gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.allocator.inventory.selector_evaluator import CelSelectorEvaluator
from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import format_claim_name
from dray.allocator.withheld_devices import HiddenSlice, WithheldDevice, withhold
from dray.api import field_patterns
from dray.api.devices.device_cel import compile_selector
from dray.api.resource import Device, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.errors import UnanswerableClaimError
from dray.gates import GATES, GateSet

_SLICE_KIND = "ResourceSlice.resource.k8s.io"
_CLAIM_KIND = "ResourceClaim.resource.k8s.io"

_TAINT_RULE_GATES = ("DRADeviceTaints", "DRADeviceTaintRules")
"""Gates that taint rules need."""

_REFUSED_FIELDS = {
    "firstAvailable": "has alternatives (`firstAvailable`)",
    "capacity": "has capacity requests",
    "distinctAttribute": "has a constraint of distinct values (`distinctAttribute`)",
    "adminAccess": "asks for admin access",
}
"""Fields without which a claim has another meaning, with the text for a claim that has them."""

_BINDING, _PARTITIONS = "DRADeviceBindingConditions", "DRAPartitionableDevices"
"""Gates without which some devices cannot be used at all."""

_ALWAYS_KEPT_FIELDS = ("spec.devices[].bindsToNode",)
"""Fields that are kept with their gate disabled: without them more nodes could use a device."""

_PARTITION_FIELDS = ("spec.perDeviceNodeSelection", "spec.sharedCounters")
"""Fields of partitions without which the rest of a slice is wrong."""


@dataclass(frozen=True, slots=True)
class AllocatorGateFilter:
    """Filters objects by one set of gates, for callers that must not read gates themselves."""

    gates: GateSet

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, bool]) -> AllocatorGateFilter:
        """A filter with some gates overridden and the others at their defaults."""
        return cls(GateSet.from_defaults().override(overrides))

    def admit_slices(self, slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
        """Slices without the fields of disabled gates."""
        return admit_slices(slices, self.gates)

    def admit_taint_rules(self, rules: Iterable[DeviceTaintRule]) -> tuple[DeviceTaintRule, ...]:
        """The taint rules; none while their gates are disabled."""
        return tuple(rules) if all(self.gates.is_enabled(gate) for gate in _TAINT_RULE_GATES) else ()

    def admit_claims(self, claims: Sequence[ResourceClaim]) -> list[ResourceClaim]:
        """Claims as they are; raises `UnanswerableClaimError` for one that needs a disabled gate."""
        return admit_claims(claims, self.gates)

    def build_selector_evaluator(self) -> DeviceSelectorEvaluator:
        """The selector evaluator of an inventory; stored selectors may use every function."""
        return CelSelectorEvaluator(partial(compile_selector, stored=True, gates=self.gates))


def admit_slices(slices: Iterable[ResourceSlice], gates: GateSet) -> list[ResourceSlice]:
    """Slices without the fields of disabled gates; devices that need them are withheld."""
    closed = [gate for gate in GATES if not gates.is_enabled(gate)]
    return [_admit_slice(published, closed) for published in slices] if closed else list(slices)


def _admit_slice(published: ResourceSlice, closed: Sequence[str]) -> ResourceSlice:
    admitted = published
    if _PARTITIONS in closed and _is_partitioned(published):
        admitted = _hide_slice(published)
    if "DRAListTypeAttributes" in closed:
        admitted = _drop_list_attributes(admitted)
    for gate in closed:
        for pattern in GATED_FIELDS.get(gate, {}).get(_SLICE_KIND, ()):
            if pattern not in _ALWAYS_KEPT_FIELDS:
                admitted = field_patterns.clear_fields(admitted, pattern)
    return _withhold_devices(admitted, published, closed)


def _withhold_devices(
    admitted: ResourceSlice, published: ResourceSlice, closed: Sequence[str]
) -> ResourceSlice:
    """Withhold the devices of a slice that need a disabled gate."""
    if not admitted.spec.devices or not (_BINDING in closed or _PARTITIONS in closed):
        return admitted
    devices = tuple(
        _withhold_device(now, before, closed)
        for now, before in zip(admitted.spec.devices, published.spec.devices, strict=True)
    )
    if all(new is old for new, old in zip(devices, admitted.spec.devices, strict=True)):
        return admitted
    return msgspec.structs.replace(admitted, spec=msgspec.structs.replace(admitted.spec, devices=devices))


def _withhold_device(admitted: Device, published: Device, closed: Sequence[str]) -> Device:
    """The admitted device, withheld when it is of no use without a disabled gate."""
    if isinstance(published, WithheldDevice):
        return published
    if _BINDING in closed and published.binding_conditions:
        # Its counters stay charged to the claim that has it, and its pool keeps its position in the order.
        kept = msgspec.structs.replace(
            admitted,
            binding_conditions=published.binding_conditions,
            binding_failure_conditions=published.binding_failure_conditions,
        )
        return withhold(kept, RefusalReason.BINDING_CONDITIONS)
    if _PARTITIONS in closed and published.consumes_counters:
        # Its draws are dropped with the counter sets: nothing draws from counters while the gate is disabled.
        return withhold(admitted, RefusalReason.COUNTERS_OFF)
    return admitted


def admit_claims(claims: Sequence[ResourceClaim], gates: GateSet) -> list[ResourceClaim]:
    """Claims as they are; raises `UnanswerableClaimError` for one that needs a disabled gate."""
    admitted = list(claims)
    for gate in GATES:
        if gates.is_enabled(gate):
            continue
        spec_fields = [
            field for field in GATED_FIELDS.get(gate, {}).get(_CLAIM_KIND, ()) if field.startswith("spec.")
        ]
        for i, claim in enumerate(admitted):
            for field in spec_fields:
                places = field_patterns.find_fields(claim, field)
                says = _REFUSED_FIELDS.get(field.rpartition(".")[2])
                if places and says:
                    why = f"{says}, but the {gate} feature is disabled"
                    raise UnanswerableClaimError(why, claim=format_claim_name(claim), field=places[0])
                admitted[i] = claim = field_patterns.clear_fields(claim, field)
    return admitted


def _is_partitioned(published: ResourceSlice) -> bool:
    return any(field_patterns.find_fields(published, field) for field in _PARTITION_FIELDS)


def _hide_slice(published: ResourceSlice) -> ResourceSlice:
    """A slice that still counts for the completeness of its pool, but is visible to no node."""
    spec = msgspec.structs.replace(
        published.spec,
        devices=(),
        node_name=None,
        node_selector=None,
        all_nodes=None,
        per_device_node_selection=None,
    )
    return HiddenSlice(metadata=published.metadata, spec=spec, published=published)


def _drop_list_attributes(published: ResourceSlice) -> ResourceSlice:
    """A slice without list attributes: selectors would fail on an attribute without a value."""
    devices = tuple(_keep_scalar_attributes(device) for device in published.spec.devices)
    if all(new is old for new, old in zip(devices, published.spec.devices, strict=True)):
        return published
    return msgspec.structs.replace(published, spec=msgspec.structs.replace(published.spec, devices=devices))


def _keep_scalar_attributes(device: Device) -> Device:
    kept = {name: held for name, held in device.attributes.items() if not held.is_list}
    if len(kept) == len(device.attributes):
        return device
    return msgspec.structs.replace(device, attributes=kept)
