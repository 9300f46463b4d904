"""A device as its driver publishes it: attributes, capacities, counters, taints.

Slices hold them by the thousand. Values that can never be part of a cycle are kept from the garbage
collector (`gc=False`): decoding a slice would make it run several times for nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.meta import Int64, Timestamp, Value
from dray.values.nodeselector import NodeSelector
from dray.values.quantity import Quantity

Scalar = int | bool | str
SCALARS: Final = ("int", "bool", "string", "version")
"""The types an attribute value can have, by their names on the wire."""


class ListAttribute(Value, frozen=True, gc=False):
    """A typed list in the spelling of KEP-5491: `list: {string: [...]}`."""

    int_values: tuple[Int64, ...] | None = msgspec.field(default=None, name="int")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bool")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="string")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="version")


class DeviceAttribute(Value, frozen=True, gc=False):
    """One fact about a device: exactly one member is set.

    Lists have two spellings, ours to read and to keep: `list: {string: [...]}` of the KEP and
    `strings: [...]` of Kubernetes. `held` brings them together.
    """

    int_value: Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[Int64, ...] | None = msgspec.field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="versions")
    list_value: ListAttribute | None = msgspec.field(default=None, name="list")

    def held(self) -> tuple[str, tuple[Scalar, ...]] | None:
        """The type and the values, a scalar as a list of one; None unless exactly one member is set."""
        found: list[tuple[str, tuple[Scalar, ...]]] = []
        for name in SCALARS:
            scalar = getattr(self, f"{name}_value")
            if scalar is not None:
                found.append((name, (scalar,)))
            for holder in (self, self.list_value):
                values = getattr(holder, f"{name}_values") if holder is not None else None
                if values is not None:
                    found.append((name, values))
        return found[0] if len(found) == 1 else None

    @property
    def is_list(self) -> bool:
        """Whether the value was written as a list, in either spelling."""
        return self.list_value is not None or any(
            getattr(self, f"{name}_values") is not None for name in SCALARS
        )


class CapacityRequestPolicyRange(Value, frozen=True, gc=False):
    """Amounts from `min` to `max` in steps; what is asked is rounded up to the grid."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Value, frozen=True):
    """How much of a capacity one share may take."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Value, frozen=True, gc=False):
    """An amount a device has; with a policy when shares may take parts of it."""

    value: Quantity | None = None
    request_policy: CapacityRequestPolicy | None = None


class Counter(Value, frozen=True, gc=False):
    """One number in a shared budget."""

    value: Quantity | None = None


class CounterSet(Value, frozen=True):
    """A budget in a pool that several devices draw from."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Value, frozen=True):
    """What a device draws from one counter set when it is taken."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Value, frozen=True, gc=False):
    """A reason not to use a device, unless tolerated."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Timestamp | None = None


class Device(Value, frozen=True):
    """One thing that can be allocated."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
