"""The fast lane for slices: whole lists of devices found sound in a few passes.

Theory of operation: a slice holds a thousand attributes, and almost all of them were seen before. So the lane
gathers the names and values of all devices first, and asks once for each distinct one whether it is sound,
with a memory of those that were (`proven`). The common answer is one call into C per kind of value, instead
of a walk with a path to everything.

The lane only ever says yes. On anything it does not like it says no, and the careful way in `device` finds
out what is wrong, if anything is.

Rules for this file: no rule of its own. What is asked of a single value is asked of the rules in `device` and
`capacity`, and those look at nothing but the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import astuple

from dray.api.fields import ROOT
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.api.validate import limits
from dray.api.validate.capacity import capacity
from dray.api.validate.device import is_scalar, is_sound_attribute, value_count
from dray.api.validate.proven import Proven
from dray.values.names import attribute_name, dns_label

DEVICE_NAMES: Final = Proven[str]()
KEYS: Final = Proven[str]()
SCALARS: Final = Proven[DeviceAttribute]()
LISTS: Final = Proven[DeviceAttribute]()
DEDICATED: Final = Proven[DeviceCapacity]()
SHARED: Final = Proven[DeviceCapacity]()

_EXTRA_LISTS: Final = ("taints", "consumes_counters", "binding_conditions", "binding_failure_conditions")
_EXTRA_FIELDS: Final = ("node_name", "node_selector", "all_nodes")

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""Fields of all devices side by side: the field's name, and its value in each device."""


class Verdict(NamedTuple):
    """What the lane can say of all devices of a slice."""

    sound: bool
    """Names, attributes and capacities are surely sound."""

    plain: bool
    """No device has anything else."""


def verdict(devices: Sequence[Device]) -> Verdict:
    """Look at all devices of a slice at once."""
    if not 0 < len(devices) <= limits.DEVICES_PER_SLICE:
        return Verdict(sound=False, plain=False)
    # To turn structs into tuples is the fastest way to read many fields of many of them.
    columns = dict(zip(Device.__struct_fields__, zip(*map(astuple, devices), strict=True), strict=True))
    return Verdict(_sound(columns), _plain(columns))


def _plain(columns: Columns) -> bool:
    return not any(any(columns[field]) for field in _EXTRA_LISTS) and all(
        columns[field].count(None) == len(columns[field]) for field in _EXTRA_FIELDS
    )


def _sound(columns: Columns) -> bool:
    names, attributes, capacities = columns["name"], columns["attributes"], columns["capacity"]
    most = max(map(len, attributes)) + max(map(len, capacities))
    return (
        most <= limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
        and len(set(names)) == len(names)
        and DEVICE_NAMES.covers(names, _is_device_name)
        and KEYS.covers(set[str]().union(*attributes, *capacities), _is_key)
        and _sound_attributes(attributes)
        and _sound_capacities(capacities, columns["allow_multiple_allocations"])
    )


def _sound_attributes(attributes: Sequence[dict[str, DeviceAttribute]]) -> bool:
    fresh = SCALARS.unknown(_Values(attributes))
    if not fresh:
        return True
    lists = {item for item in fresh if not is_scalar(item)}
    if not SCALARS.covers(fresh - lists, is_sound_attribute) or not LISTS.covers(lists, is_sound_attribute):
        return False
    # Lists make devices large: fewer fit into a slice, and their items are counted.
    return not lists or (
        len(attributes) <= limits.RICH_DEVICES_PER_SLICE
        and max(map(value_count, attributes)) <= limits.ATTRIBUTE_VALUES_PER_DEVICE
    )


def _sound_capacities(capacities: Sequence[dict[str, DeviceCapacity]], shared: Sequence[bool | None]) -> bool:
    dedicated = capacities
    if True in shared:
        pairs = list(zip(capacities, shared, strict=True))
        dedicated = [of_one for of_one, is_shared in pairs if not is_shared]
        apart = [of_one for of_one, is_shared in pairs if is_shared]
        if not SHARED.covers(_amounts(apart), _is_sound_share):
            return False
    return DEDICATED.covers(_amounts(dedicated), _is_sound_capacity)


def _amounts(maps: Iterable[dict[str, DeviceCapacity]]) -> Collection[DeviceCapacity]:
    """The capacities, without most of those that are the same.

    The decoder gives equal quantities as one object, so the first selection needs no comparing where there
    is nothing but a quantity: to hash one is slow beside it.
    """
    return {
        item if item.request_policy else id(item.value): item for of_one in maps for item in of_one.values()
    }.values()


class _Values:
    """The values of many maps, one after the other, as often as asked."""

    def __init__(self, maps: Iterable[dict[str, Any]]) -> None:
        self._maps = maps

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(dict.values, self._maps))


# --- what is asked of a single value ---


def _is_device_name(name: str) -> bool:
    return not dns_label(name)


def _is_key(name: str) -> bool:
    return not attribute_name(name)


def _is_sound_capacity(item: DeviceCapacity) -> bool:
    return not any(capacity(item, ROOT, shared=False))


def _is_sound_share(item: DeviceCapacity) -> bool:
    return not any(capacity(item, ROOT, shared=True))
