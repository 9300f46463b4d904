"""Bulk check of devices: validates whole lists of devices in a few passes.

Theory of operation: a slice holds a thousand attributes, and walking to each of them with a path takes much
longer than decoding them did. So the check puts the values of all devices side by side and tests whole
columns, in calls that stay in C: how many members are set, how long is the longest text, which is the
smallest amount. Most attributes occurred before: those are cached (`validation_cache`) and not tested again.

The check only confirms that devices are valid. When it cannot, `device` validates them one by one with paths
and finds the errors, if there are any. What is rare (lists, versions with prereleases, policies) is tested
one by one, with the rules of `device` and `capacity`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import astuple

from dray.api import limits
from dray.api.fields import ROOT
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.api.validation.kinds.capacity import validate_capacity
from dray.api.validation.kinds.device import count_values, is_scalar, is_valid_attribute
from dray.api.validation.validation_cache import ValidValueCache
from dray.values.cache_bounds import CacheBound
from dray.values.names import are_dns_labels, check_attribute_name, count_bytes
from dray.values.semver import are_plain_versions

VALID_KEYS: Final = ValidValueCache[str](CacheBound("valid attribute names", 8_192, "the process"))
VALID_SCALARS: Final = ValidValueCache[DeviceAttribute](CacheBound("valid attributes", 32_768, "the process"))
VALID_LISTS: Final = ValidValueCache[DeviceAttribute](
    CacheBound("valid list attributes", 2_048, "the process")
)
VALID_SHARED_CAPACITIES: Final = ValidValueCache[DeviceCapacity](
    CacheBound("valid capacities of shared devices", 2_048, "the process")
)

_EXTRA_LISTS: Final = ("taints", "consumes_counters", "binding_conditions", "binding_failure_conditions")
_EXTRA_FIELDS: Final = ("node_name", "node_selector", "all_nodes")
_MEMBERS: Final = DeviceAttribute.__struct_fields__
_SCALAR_MEMBERS: Final = ("int_value", "bool_value", "string_value", "version_value")

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""Fields of all devices side by side: the field's name, and its value in each device."""


class BulkDeviceCheck(NamedTuple):
    """The result for all devices of a slice."""

    valid: bool
    """Names, attributes and capacities are certainly valid."""

    without_optional_fields: bool
    """No device has any other field."""


def check_devices(devices: Sequence[Device]) -> BulkDeviceCheck:
    """Check all devices of a slice at once."""
    if not 0 < len(devices) <= limits.DEVICES_PER_SLICE:
        return BulkDeviceCheck(valid=False, without_optional_fields=False)
    # Converting structs to tuples is the fastest way to read many fields of many of them.
    columns = dict(zip(Device.__struct_fields__, zip(*map(astuple, devices), strict=True), strict=True))
    return BulkDeviceCheck(_are_valid_devices(columns), _have_no_optional_fields(columns))


def _have_no_optional_fields(columns: Columns) -> bool:
    return not any(any(columns[field]) for field in _EXTRA_LISTS) and all(
        columns[field].count(None) == len(columns[field]) for field in _EXTRA_FIELDS
    )


def _are_valid_devices(columns: Columns) -> bool:
    names, attributes, capacities = columns["name"], columns["attributes"], columns["capacity"]
    most = max(map(len, attributes)) + max(map(len, capacities))
    return (
        most <= limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
        and len(set(names)) == len(names)
        and are_dns_labels(names)
        and VALID_KEYS.are_all_valid(set[str]().union(*attributes, *capacities), _is_valid_key)
        and _are_valid_attributes(attributes)
        and _are_valid_capacities(capacities, columns["allow_multiple_allocations"])
    )


# --- attributes ---


def _are_valid_attributes(attributes: Sequence[dict[str, DeviceAttribute]]) -> bool:
    unknown = VALID_SCALARS.filter_unknown(_ChainedValues(attributes))
    if not unknown:
        return True
    rows = list(map(astuple, unknown))
    set_in_each = set(map(tuple.count, rows, repeat(None)))
    if set_in_each != {len(_MEMBERS) - 1}:
        return False
    scalars = {
        name: [value for value in _get_column(rows, name) if value is not None] for name in _SCALAR_MEMBERS
    }
    if not _are_valid_texts(scalars["string_value"]) or not _are_valid_versions(scalars["version_value"]):
        return False
    if sum(map(len, scalars.values())) == len(rows):
        VALID_SCALARS.add(unknown)
        return True
    return _are_valid_lists({item for item in unknown if not is_scalar(item)}, attributes)


def _get_column(rows: Iterable[tuple[Any, ...]], member: str) -> Iterator[Any]:
    return map(itemgetter(_MEMBERS.index(member)), rows)


def _are_valid_texts(texts: Sequence[str]) -> bool:
    # A character of ASCII is one byte, which is what limits count.
    length: Callable[[str], int] = len if "".join(texts).isascii() else count_bytes
    return max(map(length, texts), default=0) <= limits.ATTRIBUTE_VALUE_BYTES


def _are_valid_versions(texts: Sequence[str]) -> bool:
    if are_plain_versions(texts):
        return _are_valid_texts(texts)
    return all(is_valid_attribute(DeviceAttribute(version_value=text)) for text in texts)


def _are_valid_lists(unknown: set[DeviceAttribute], attributes: Sequence[dict[str, DeviceAttribute]]) -> bool:
    """Lists make devices large: fewer fit into a slice, and their items are counted."""
    return (
        VALID_LISTS.are_all_valid(unknown, is_valid_attribute)
        and len(attributes) <= limits.RICH_DEVICES_PER_SLICE
        and max(map(count_values, attributes)) <= limits.ATTRIBUTE_VALUES_PER_DEVICE
    )


class _ChainedValues:
    """The values of many maps, one after the other, for any number of iterations."""

    def __init__(self, maps: Iterable[dict[str, Any]]) -> None:
        self._maps = maps

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(dict.values, self._maps))


# --- capacities ---

_get_nanos: Final = attrgetter("nanos")


def _are_valid_capacities(
    capacities: Sequence[dict[str, DeviceCapacity]], shared: Sequence[bool | None]
) -> bool:
    items = list(_ChainedValues(capacities))
    plain = [item.value for item in items if item.request_policy is None]
    if type(None) in map(type, plain) or min(map(_get_nanos, plain), default=0) < 0:
        return False
    return len(plain) == len(items) or _are_valid_policies(capacities, shared)


def _are_valid_policies(
    capacities: Sequence[dict[str, DeviceCapacity]], shared: Sequence[bool | None]
) -> bool:
    """Whether policies are valid; only devices that are shared may have one."""
    pairs = zip(capacities, shared, strict=True)
    divided = [(item, flag) for of_one, flag in pairs for item in of_one.values() if item.request_policy]
    return all(flag is True for _, flag in divided) and VALID_SHARED_CAPACITIES.are_all_valid(
        {item for item, _ in divided}, _is_valid_shared_capacity
    )


# --- single values ---


def _is_valid_key(name: str) -> bool:
    return not check_attribute_name(name)


def _is_valid_shared_capacity(item: DeviceCapacity) -> bool:
    return not any(validate_capacity(item, ROOT, shared=True))
