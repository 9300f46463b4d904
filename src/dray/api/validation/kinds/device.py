"""Rules of one device in a slice: attributes, capacities, counters, taints, nodes.

Rules for this file: this is the careful way, with a path for everything. Whole slices of ordinary devices
are judged by `fastlane` first, with the rules of this file, and come here only when something is wrong or
out of the ordinary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from dray.api.fields import ROOT, Path, invalid, not_supported, required, too_long, too_many
from dray.api.resource import (
    Counter,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ListAttribute,
)
from dray.api.resource.device import SCALARS
from dray.api.validation import limits
from dray.api.validation.field_rules import (
    EFFECTS,
    Errors,
    Judge,
    binding_conditions,
    distinct,
    each,
    keyed,
    misnamed,
    named,
    size,
)
from dray.api.validation.kinds.capacity import capacity
from dray.api.validation.kinds.node_selection import node_choice
from dray.values.names import MAX_DOMAIN, MAX_ID, attribute_name, dns_label, label_value, qualified_name
from dray.values.semver import Version, VersionError

_SHOWN_KEY = MAX_DOMAIN + 1 + MAX_ID
_ONE_VALUE = "exactly one value must be specified"
_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "
    "when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NO_NODES = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)


def device(item: Device, path: Path, *, chooses_nodes: bool) -> Errors:
    """Everything about one device."""
    if not item.name or dns_label(item.name):
        yield from named(item.name, dns_label, path.field("name"))
    yield from contents(item, path)
    yield from extras(item, path, chooses_nodes=chooses_nodes)


def contents(item: Device, path: Path) -> Errors:
    """What every device has: attributes and capacities."""
    count = len(item.attributes) + len(item.capacity)
    if count > limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE:
        most = limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
        yield invalid(path, count, f"the total number of attributes and capacities must not exceed {most}")
    values = value_count(item.attributes)
    if values > limits.ATTRIBUTE_VALUES_PER_DEVICE:
        most = limits.ATTRIBUTE_VALUES_PER_DEVICE
        yield invalid(path, values, f"the total number of attribute values must not exceed {most}")
    yield from keyed(item.attributes, attribute_name, path.field("attributes"))
    for name, value in item.attributes.items():
        yield from attribute(value, path.field("attributes").key(_short(name)))
    yield from keyed(item.capacity, attribute_name, path.field("capacity"))
    shared = item.allow_multiple_allocations is True
    for name, amount in item.capacity.items():
        yield from capacity(amount, path.field("capacity").key(_short(name)), shared=shared)


def _short(name: str) -> str:
    """A key of sane length for a path; a bad one can be as long as the request body."""
    return name if len(name) <= _SHOWN_KEY else f"{name[:47]}...{name[-46:]}"


# --- attributes ---


def attribute(item: DeviceAttribute, path: Path) -> Errors:
    """One fact, in one of its spellings."""
    given = _given(item)
    for field, value in given:
        yield from _MEMBERS[field][1](value, path.field(field))
    if len(given) != 1:
        yield invalid(path, item if given else "", _ONE_VALUE)


def is_sound_attribute(item: DeviceAttribute) -> bool:
    """Whether there is nothing to say about an attribute, when it does not matter where it stands."""
    given = _given(item)
    return len(given) == 1 and not any(_MEMBERS[given[0][0]][1](given[0][1], ROOT))


def _given(item: DeviceAttribute) -> list[tuple[str, Any]]:
    return [member for member in zip(_MEMBERS, _members(item), strict=True) if member[1] is not None]


def _typed_list(item: ListAttribute, path: Path) -> Errors:
    """The spelling that names the type inside: `list: {string: [...]}`."""
    members = ((field, getattr(item, f"{field}_values")) for field in SCALARS)
    given = [(field, values) for field, values in members if values is not None]
    for field, values in given:
        yield from _LIST_RULES[field](values, path.field(field))
    if len(given) != 1:
        yield invalid(path, item if given else "", _ONE_VALUE)


def _string(text: str, path: Path) -> Errors:
    if size(text) > limits.ATTRIBUTE_VALUE_BYTES:
        yield too_long(path, limits.ATTRIBUTE_VALUE_BYTES)


def _version(text: str, path: Path) -> Errors:
    try:
        Version.parse(text)
    except VersionError:
        yield invalid(path, text, "must be a string compatible with semver.org spec 2.0.0")
    yield from _string(text, path)


def _anything(_value: int, _path: Path) -> Errors:
    return iter(())


def _list_of(judge: Judge[Any], values: Sequence[Any], path: Path) -> Errors:
    if not values:
        yield invalid(path, [], "must not be empty if specified")
    yield from each(values, limits.ITEMS_PER_LIST, judge, path)


_SCALAR_RULES: Mapping[str, Judge[Any]] = MappingProxyType(
    {"int": _anything, "bool": _anything, "string": _string, "version": _version}
)
_LIST_RULES: Mapping[str, Judge[Any]] = MappingProxyType(
    {name: partial(_list_of, rule) for name, rule in _SCALAR_RULES.items()}
)
_MEMBERS: Mapping[str, tuple[str, Judge[Any]]] = MappingProxyType(
    {
        **{name: (f"{name}_value", rule) for name, rule in _SCALAR_RULES.items()},
        **{f"{name}s": (f"{name}_values", rule) for name, rule in _LIST_RULES.items()},
        "list": ("list_value", _typed_list),
    }
)
"""Every way to spell an attribute: the field on the wire, with the attribute of the struct and its rule."""

_members = attrgetter(*(name for name, _ in _MEMBERS.values()))
_lists = attrgetter(*(name for field, (name, _) in _MEMBERS.items() if field not in SCALARS))
_NO_LISTS = _lists(DeviceAttribute())


def is_scalar(item: DeviceAttribute) -> bool:
    """Whether no list is set, in either spelling."""
    return bool(_lists(item) == _NO_LISTS)


def value_count(attributes: Mapping[str, DeviceAttribute]) -> int:
    """How many values a device has: every item of a list counts, and any other attribute is one."""
    return sum(1 if is_scalar(item) else _items_of(item) for item in attributes.values())


def _items_of(item: DeviceAttribute) -> int:
    typed = 0 if item.list_value is None else _item_count(item.list_value)
    return _item_count(item) + typed or 1


def _item_count(holder: DeviceAttribute | ListAttribute) -> int:
    lists = (holder.int_values, holder.bool_values, holder.string_values, holder.version_values)
    return sum(len(values) for values in lists if values)


# --- what only some devices have ---


def extras(item: Device, path: Path, *, chooses_nodes: bool) -> Errors:
    """What only some devices have: taints, counters, nodes of their own, binding conditions."""
    if item.taints:
        yield from each(item.taints, limits.TAINTS_PER_DEVICE, taint, path.field("taints"))
    if item.consumes_counters:
        yield from _consumptions(item.consumes_counters, path.field("consumesCounters"))
    if chooses_nodes:
        yield from node_choice(item, _NODES, path)
    elif item.node_name is not None or item.node_selector is not None or item.all_nodes is not None:
        yield invalid(path, None, _NO_NODES)
    if item.binding_conditions or item.binding_failure_conditions:
        yield from binding_conditions(item.binding_conditions, item.binding_failure_conditions, path)


def taint(item: DeviceTaint, path: Path) -> Errors:
    """A reason not to use a device; key and effect must be there."""
    if faults := qualified_name(item.key):
        yield from misnamed(faults, path.field("key"))
    if faults := label_value(item.value):
        yield from misnamed(faults, path.field("value"))
    if not item.effect:
        yield required(path.field("effect"))
    elif item.effect not in EFFECTS:
        yield not_supported(path.field("effect"), item.effect, EFFECTS)


def _consumptions(items: Sequence[DeviceCounterConsumption], path: Path) -> Errors:
    yield from each(items, limits.CONSUMPTIONS_PER_DEVICE, _consumption, path)
    if len(items) <= limits.CONSUMPTIONS_PER_DEVICE:
        yield from distinct((item.counter_set for item in items), path)


def _consumption(item: DeviceCounterConsumption, path: Path) -> Errors:
    if not item.counter_set or dns_label(item.counter_set):
        yield from named(item.counter_set, dns_label, path.field("counterSet"))
    yield from counters(item.counters, path.field("counters"))


def counters(items: Mapping[str, Counter], path: Path) -> Errors:
    """Named amounts: a budget, or what is drawn from one."""
    if not items:
        yield required(path)
    elif len(items) > limits.COUNTERS_PER_SET:
        yield too_many(path, len(items), limits.COUNTERS_PER_SET)
    else:
        yield from keyed(items, dns_label, path)
        for name, counter in items.items():
            if counter.value is None:
                yield required(path.key(_short(name)).field("value"))
            elif counter.value.sign < 0:
                place = path.key(_short(name)).field("value")
                yield invalid(place, str(counter.value), "must be greater than or equal to 0")
