"""Device as its driver publishes it: attributes, capacities, counters, taints."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from dray.api.meta import ApiStruct, Int64, Timestamp
from dray.values.node_selectors import NodeSelector
from dray.values.quantity import Quantity

Scalar = int | bool | str
SCALAR_TYPES: Final = ("int", "bool", "string", "version")
"""The types an attribute value can have, by their names on the wire, in the order of the members."""


class ListAttribute(ApiStruct, frozen=True):
    """A typed list in the spelling of KEP-5491: `list: {string: [...]}`."""

    int_values: tuple[Int64, ...] | None = msgspec.field(default=None, name="int")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bool")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="string")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="version")

    def get_typed_values(self) -> tuple[str, tuple[Scalar, ...]] | None:
        """Return the type and the values; None unless exactly one member is set."""
        given = [
            (name, values)
            for name, values in zip(SCALAR_TYPES, astuple(self), strict=True)
            if values is not None
        ]
        return given[0] if len(given) == 1 else None


class DeviceAttribute(ApiStruct, frozen=True):
    """One attribute of a device: exactly one member is set.

    Lists have two spellings, and both are read and stored: `list: {string: [...]}` of the KEP and `strings:
    [...]` of Kubernetes. `get_typed_values` unifies them.
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

    def get_typed_values(self) -> tuple[str, tuple[Scalar, ...]] | None:
        """Return the type and the values, a scalar as a list of one; None unless one member is set."""
        members: tuple[Any, ...] = astuple(self)
        if members.count(None) != len(members) - 1:
            return None
        # Called for every attribute of every device: a loop is much faster here than any shorter form.
        position = 0
        while members[position] is None:
            position += 1
        member = members[position]
        if position < len(SCALAR_TYPES):
            return SCALAR_TYPES[position], (member,)
        if position < 2 * len(SCALAR_TYPES):
            return SCALAR_TYPES[position - len(SCALAR_TYPES)], member
        typed: tuple[str, tuple[Scalar, ...]] | None = member.get_typed_values()
        return typed

    @property
    def is_list(self) -> bool:
        """Whether the value was written as a list, in either spelling."""
        return (
            self.int_values is not None
            or self.string_values is not None
            or self.version_values is not None
            or self.bool_values is not None
            or self.list_value is not None
        )


class CapacityRequestPolicyRange(ApiStruct, frozen=True):
    """Amounts from `min` to `max` in steps; requests are rounded up to the grid."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True):
    """How much of a capacity one share may take."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(ApiStruct, frozen=True):
    """An amount a device has; with a policy when shares may take parts of it."""

    value: Quantity | None = None
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct, frozen=True):
    """One number in a shared budget."""

    value: Quantity | None = None


class CounterSet(ApiStruct, frozen=True):
    """A budget of a pool that several devices draw from."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(ApiStruct, frozen=True):
    """What a device draws from one counter set when it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(ApiStruct, frozen=True):
    """A reason not to use a device, unless tolerated."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Timestamp | None = None


class Device(ApiStruct, frozen=True):
    """One device that can be allocated."""

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
