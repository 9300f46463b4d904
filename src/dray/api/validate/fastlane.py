"""The fast lane for slices: whole lists of devices found sound in a few passes.

Theory of operation: a slice holds a thousand attributes, and almost all of them were seen before, in the
last version of the slice or in another one of the same driver. So the lane gathers all names and values of
all devices first, and asks once for each distinct one whether it is sound. What was found sound is remembered
(`Proven`), and the common answer is one call into C per kind of value instead of a walk with paths.

The lane only ever says yes. On anything it does not like or does not know (lists included, because their
items count) it says no, and the careful way in `device` finds out what is wrong, if anything is.

Rules for this file: no rule of its own. What is asked of a single value is asked of the rules in `device` and
`capacity`; a value may be remembered because those rules look at nothing but the value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from dray.api.fields import ROOT
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.api.validate import limits
from dray.api.validate.capacity import capacity
from dray.api.validate.device import attribute
from dray.values.names import attribute_name, dns_label

T = TypeVar("T")

REMEMBERED: Final = 8192
"""How many sound values of a kind are remembered; beyond that the memory starts again."""


class Proven(Generic[T]):
    """Values that were found sound, so that they need not be looked at again."""

    __slots__ = ("_is_sound", "_known")

    def __init__(self, is_sound: Callable[[T], bool]) -> None:
        self._is_sound = is_sound
        self._known: set[T] = set()

    def covers(self, values: Collection[T]) -> bool:
        """Whether all of the values are sound."""
        if self._known.issuperset(values):
            return True
        fresh = set(values) - self._known
        if not all(map(self._is_sound, fresh)):
            return False
        if len(self._known) + len(fresh) > REMEMBERED:
            self._known.clear()
        self._known |= fresh
        return True

    def __len__(self) -> int:
        return len(self._known)


def _is_sound_scalar(item: DeviceAttribute) -> bool:
    return not item.is_list and not any(attribute(item, ROOT))


def _is_sound_capacity(item: DeviceCapacity) -> bool:
    return not any(capacity(item, ROOT, shared=False))


def _is_sound_share(item: DeviceCapacity) -> bool:
    return not any(capacity(item, ROOT, shared=True))


DEVICE_NAMES: Final = Proven[str](lambda name: not dns_label(name))
KEYS: Final = Proven[str](lambda name: not attribute_name(name))
ATTRIBUTES: Final = Proven[DeviceAttribute](_is_sound_scalar)
CAPACITIES: Final = Proven[DeviceCapacity](_is_sound_capacity)
SHARED_CAPACITIES: Final = Proven[DeviceCapacity](_is_sound_share)

_name = attrgetter("name")
_attributes = attrgetter("attributes")
_capacity = attrgetter("capacity")
_shared = attrgetter("allow_multiple_allocations")
_EXTRAS: Final = (
    "taints",
    "consumes_counters",
    "node_name",
    "node_selector",
    "all_nodes",
    "binding_conditions",
    "binding_failure_conditions",
)
_extras = attrgetter(*_EXTRAS)
_NO_EXTRAS: Final = _extras(Device())


def sound(devices: Sequence[Device]) -> bool:
    """Whether names, attributes and capacities of all devices are surely sound."""
    if not 0 < len(devices) <= limits.DEVICES_PER_SLICE:
        return False
    names = list(map(_name, devices))
    attributes: list[dict[str, DeviceAttribute]] = list(map(_attributes, devices))
    capacities: list[dict[str, DeviceCapacity]] = list(map(_capacity, devices))
    most = max(map(len, attributes)) + max(map(len, capacities))
    return (
        most <= limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
        and len(set(names)) == len(names)
        and DEVICE_NAMES.covers(names)
        and KEYS.covers(set[str]().union(*attributes, *capacities))
        and ATTRIBUTES.covers(_values(attributes))
        and _sound_capacities(devices, capacities)
    )


def _sound_capacities(devices: Sequence[Device], capacities: Sequence[dict[str, DeviceCapacity]]) -> bool:
    shared = list(map(_shared, devices))
    if True not in shared:
        return CAPACITIES.covers(_values(capacities))
    if shared.count(True) == len(shared):
        return SHARED_CAPACITIES.covers(_values(capacities))
    return all(
        (SHARED_CAPACITIES if device.allow_multiple_allocations else CAPACITIES).covers(
            list(device.capacity.values())
        )
        for device in devices
    )


def _values(maps: Sequence[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(dict.values, maps)))


def plain(devices: Sequence[Device]) -> bool:
    """Whether no device has anything but a name, attributes and capacities."""
    return list(map(_extras, devices)).count(_NO_EXTRAS) == len(devices)
