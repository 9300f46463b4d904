"""The fast lane for slices: whole lists of devices found sound in a few passes.

Theory of operation: a slice holds a thousand attributes, and to walk to each of them with a path takes much
longer than to read them did. So the lane lays the values of all devices side by side and asks each question
of a whole column, in calls that stay in C: how many members are set, how long is the longest text, which is
the smallest amount. Most attributes were seen before: those are remembered (`proven`) and not asked again.

The lane only ever says yes. On anything it does not like it says no, and the careful way in `device` finds
out what is wrong, if anything is. What is rare (lists, versions with words in them, policies) is asked one
by one, with the rules of `device` and `capacity`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import astuple

from dray.api.fields import ROOT
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.api.validation import limits
from dray.api.validation.field_rules import size
from dray.api.validation.kinds.capacity import capacity
from dray.api.validation.kinds.device import is_scalar, is_sound_attribute, value_count
from dray.api.validation.validation_cache import Proven
from dray.values.cache_bounds import Bound
from dray.values.names import are_dns_labels, attribute_name
from dray.values.semver import are_plain_versions

KEYS: Final = Proven[str](Bound("sound names of attributes", 8_192, "the process"))
SCALARS: Final = Proven[DeviceAttribute](Bound("sound attributes", 32_768, "the process"))
LISTS: Final = Proven[DeviceAttribute](Bound("sound list attributes", 2_048, "the process"))
SHARED: Final = Proven[DeviceCapacity](Bound("sound capacities of shared devices", 2_048, "the process"))

_EXTRA_LISTS: Final = ("taints", "consumes_counters", "binding_conditions", "binding_failure_conditions")
_EXTRA_FIELDS: Final = ("node_name", "node_selector", "all_nodes")
_MEMBERS: Final = DeviceAttribute.__struct_fields__
_SCALAR_MEMBERS: Final = ("int_value", "bool_value", "string_value", "version_value")

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
        and are_dns_labels(names)
        and KEYS.covers(set[str]().union(*attributes, *capacities), _is_key)
        and _sound_attributes(attributes)
        and _sound_capacities(capacities, columns["allow_multiple_allocations"])
    )


# --- attributes ---


def _sound_attributes(attributes: Sequence[dict[str, DeviceAttribute]]) -> bool:
    fresh = SCALARS.unknown(_Values(attributes))
    if not fresh:
        return True
    rows = list(map(astuple, fresh))
    set_in_each = set(map(tuple.count, rows, repeat(None)))
    if set_in_each != {len(_MEMBERS) - 1}:
        return False
    scalars = {
        name: [value for value in _column(rows, name) if value is not None] for name in _SCALAR_MEMBERS
    }
    if not _sound_texts(scalars["string_value"]) or not _sound_versions(scalars["version_value"]):
        return False
    if sum(map(len, scalars.values())) == len(rows):
        SCALARS.add(fresh)
        return True
    return _sound_lists({item for item in fresh if not is_scalar(item)}, attributes)


def _column(rows: Iterable[tuple[Any, ...]], member: str) -> Iterator[Any]:
    return map(itemgetter(_MEMBERS.index(member)), rows)


def _sound_texts(texts: Sequence[str]) -> bool:
    # A character of ASCII is one byte, which is what limits count.
    length: Callable[[str], int] = len if "".join(texts).isascii() else size
    return max(map(length, texts), default=0) <= limits.ATTRIBUTE_VALUE_BYTES


def _sound_versions(texts: Sequence[str]) -> bool:
    if are_plain_versions(texts):
        return _sound_texts(texts)
    return all(is_sound_attribute(DeviceAttribute(version_value=text)) for text in texts)


def _sound_lists(fresh: set[DeviceAttribute], attributes: Sequence[dict[str, DeviceAttribute]]) -> bool:
    """Lists make devices large: fewer fit into a slice, and their items are counted."""
    return (
        LISTS.covers(fresh, is_sound_attribute)
        and len(attributes) <= limits.RICH_DEVICES_PER_SLICE
        and max(map(value_count, attributes)) <= limits.ATTRIBUTE_VALUES_PER_DEVICE
    )


class _Values:
    """The values of many maps, one after the other, as often as asked."""

    def __init__(self, maps: Iterable[dict[str, Any]]) -> None:
        self._maps = maps

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(dict.values, self._maps))


# --- capacities ---

_nanos: Final = attrgetter("nanos")


def _sound_capacities(capacities: Sequence[dict[str, DeviceCapacity]], shared: Sequence[bool | None]) -> bool:
    items = list(_Values(capacities))
    plain = [item.value for item in items if item.request_policy is None]
    if type(None) in map(type, plain) or min(map(_nanos, plain), default=0) < 0:
        return False
    return len(plain) == len(items) or _sound_policies(capacities, shared)


def _sound_policies(capacities: Sequence[dict[str, DeviceCapacity]], shared: Sequence[bool | None]) -> bool:
    """Only devices that are shared may say how a capacity is divided."""
    pairs = zip(capacities, shared, strict=True)
    divided = [(item, flag) for of_one, flag in pairs for item in of_one.values() if item.request_policy]
    return all(flag is True for _, flag in divided) and SHARED.covers(
        {item for item, _ in divided}, _is_sound_share
    )


# --- what is asked of a single value ---


def _is_key(name: str) -> bool:
    return not attribute_name(name)


def _is_sound_share(item: DeviceCapacity) -> bool:
    return not any(capacity(item, ROOT, shared=True))
