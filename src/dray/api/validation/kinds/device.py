"""Validation of one device in a slice: attributes, capacities, counters, taints, nodes.

Rules for this file: this is the complete check, with a path for every error. `bulk_device_check` first checks
all devices of a slice at once, with the rules of this file; devices get here only when something is wrong or
unusual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from dray.api import limits
from dray.api.fields import ROOT, FieldPath, invalid, not_supported, required, too_long, too_many
from dray.api.resource import (
    Counter,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ListAttribute,
)
from dray.api.resource.device import SCALAR_TYPES
from dray.api.validation.field_rules import (
    EFFECTS,
    FieldErrors,
    FieldRule,
    report_name_faults,
    validate_binding_conditions,
    validate_distinct,
    validate_each,
    validate_keys,
    validate_name,
)
from dray.api.validation.kinds.capacity import validate_capacity
from dray.api.validation.kinds.node_selection import validate_node_selection
from dray.values.names import (
    MAX_DOMAIN,
    MAX_ID,
    check_attribute_name,
    check_dns_label,
    check_label_value,
    check_qualified_name,
    count_bytes,
)
from dray.values.semver import Version, VersionError

_MAX_KEY_LENGTH = MAX_DOMAIN + 1 + MAX_ID
_ONE_VALUE = "exactly one value must be specified"
_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "
    "when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NO_NODES = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)


def validate_device(item: Device, path: FieldPath, *, chooses_nodes: bool) -> FieldErrors:
    """Check everything about one device."""
    if not item.name or check_dns_label(item.name):
        yield from report_name_faults(check_dns_label(item.name), path.child("name"))
    yield from validate_contents(item, path)
    yield from validate_optional_fields(item, path, chooses_nodes=chooses_nodes)


def validate_contents(item: Device, path: FieldPath) -> FieldErrors:
    """Check attributes and capacities, which every device has."""
    count = len(item.attributes) + len(item.capacity)
    if count > limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE:
        most = limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
        yield invalid(path, count, f"the total number of attributes and capacities must not exceed {most}")
    values = count_values(item.attributes)
    if values > limits.ATTRIBUTE_VALUES_PER_DEVICE:
        most = limits.ATTRIBUTE_VALUES_PER_DEVICE
        yield invalid(path, values, f"the total number of attribute values must not exceed {most}")
    yield from validate_keys(item.attributes, check_attribute_name, path.child("attributes"))
    for name, value in item.attributes.items():
        yield from validate_attribute(value, path.child("attributes").key(_shorten_key(name)))
    yield from validate_keys(item.capacity, check_attribute_name, path.child("capacity"))
    shared = item.allow_multiple_allocations is True
    for name, amount in item.capacity.items():
        yield from validate_capacity(amount, path.child("capacity").key(_shorten_key(name)), shared=shared)


def _shorten_key(name: str) -> str:
    """Shorten a key for a path; an invalid one can be as long as the request body."""
    return name if len(name) <= _MAX_KEY_LENGTH else f"{name[:47]}...{name[-46:]}"


# --- attributes ---


def validate_attribute(item: DeviceAttribute, path: FieldPath) -> FieldErrors:
    """Check one attribute, in any spelling."""
    given = _list_given_members(item)
    for field, value in given:
        yield from _MEMBERS[field][1](value, path.child(field))
    if len(given) != 1:
        yield invalid(path, item if given else "", _ONE_VALUE)


def is_valid_attribute(item: DeviceAttribute) -> bool:
    """Whether an attribute is valid, wherever it stands."""
    given = _list_given_members(item)
    return len(given) == 1 and not any(_MEMBERS[given[0][0]][1](given[0][1], ROOT))


def _list_given_members(item: DeviceAttribute) -> list[tuple[str, Any]]:
    return [member for member in zip(_MEMBERS, _get_members(item), strict=True) if member[1] is not None]


def _validate_typed_list(item: ListAttribute, path: FieldPath) -> FieldErrors:
    """Check the spelling that names the type inside: `list: {string: [...]}`."""
    members = ((field, getattr(item, f"{field}_values")) for field in SCALAR_TYPES)
    given = [(field, values) for field, values in members if values is not None]
    for field, values in given:
        yield from _LIST_RULES[field](values, path.child(field))
    if len(given) != 1:
        yield invalid(path, item if given else "", _ONE_VALUE)


def _validate_string(text: str, path: FieldPath) -> FieldErrors:
    if count_bytes(text) > limits.ATTRIBUTE_VALUE_BYTES:
        yield too_long(path, limits.ATTRIBUTE_VALUE_BYTES)


def _validate_version(text: str, path: FieldPath) -> FieldErrors:
    try:
        Version.parse(text)
    except VersionError:
        yield invalid(path, text, "must be a string compatible with semver.org spec 2.0.0")
    yield from _validate_string(text, path)


def _accept_anything(_value: int, _path: FieldPath) -> FieldErrors:
    return iter(())


def _validate_list(rule: FieldRule[Any], values: Sequence[Any], path: FieldPath) -> FieldErrors:
    if not values:
        yield invalid(path, [], "must not be empty if specified")
    yield from validate_each(values, limits.ITEMS_PER_LIST, rule, path)


_SCALAR_RULES: Mapping[str, FieldRule[Any]] = MappingProxyType(
    {
        "int": _accept_anything,
        "bool": _accept_anything,
        "string": _validate_string,
        "version": _validate_version,
    }
)
_LIST_RULES: Mapping[str, FieldRule[Any]] = MappingProxyType(
    {name: partial(_validate_list, rule) for name, rule in _SCALAR_RULES.items()}
)
_MEMBERS: Mapping[str, tuple[str, FieldRule[Any]]] = MappingProxyType(
    {
        **{name: (f"{name}_value", rule) for name, rule in _SCALAR_RULES.items()},
        **{f"{name}s": (f"{name}_values", rule) for name, rule in _LIST_RULES.items()},
        "list": ("list_value", _validate_typed_list),
    }
)
"""Every spelling of an attribute: the field on the wire, with the attribute of the struct and its rule."""

_get_members = attrgetter(*(name for name, _ in _MEMBERS.values()))
_get_lists = attrgetter(*(name for field, (name, _) in _MEMBERS.items() if field not in SCALAR_TYPES))
_NO_LISTS = _get_lists(DeviceAttribute())


def is_scalar(item: DeviceAttribute) -> bool:
    """Whether no list is set, in either spelling."""
    return bool(_get_lists(item) == _NO_LISTS)


def count_values(attributes: Mapping[str, DeviceAttribute]) -> int:
    """Count the values of a device: every item of a list, and one for any other attribute."""
    return sum(1 if is_scalar(item) else _count_items(item) for item in attributes.values())


def _count_items(item: DeviceAttribute) -> int:
    typed = 0 if item.list_value is None else _count_list_items(item.list_value)
    return _count_list_items(item) + typed or 1


def _count_list_items(holder: DeviceAttribute | ListAttribute) -> int:
    lists = (holder.int_values, holder.bool_values, holder.string_values, holder.version_values)
    return sum(len(values) for values in lists if values)


# --- optional fields ---


def validate_optional_fields(item: Device, path: FieldPath, *, chooses_nodes: bool) -> FieldErrors:
    """Check what only some devices have: taints, counters, nodes of their own, binding conditions."""
    if item.taints:
        yield from validate_each(item.taints, limits.TAINTS_PER_DEVICE, validate_taint, path.child("taints"))
    if item.consumes_counters:
        yield from _validate_consumptions(item.consumes_counters, path.child("consumesCounters"))
    if chooses_nodes:
        yield from validate_node_selection(item, _NODES, path)
    elif item.node_name is not None or item.node_selector is not None or item.all_nodes is not None:
        yield invalid(path, None, _NO_NODES)
    if item.binding_conditions or item.binding_failure_conditions:
        yield from validate_binding_conditions(item.binding_conditions, item.binding_failure_conditions, path)


def validate_taint(item: DeviceTaint, path: FieldPath) -> FieldErrors:
    """Check a taint; key and effect are required."""
    if faults := check_qualified_name(item.key):
        yield from report_name_faults(faults, path.child("key"))
    if faults := check_label_value(item.value):
        yield from report_name_faults(faults, path.child("value"))
    if not item.effect:
        yield required(path.child("effect"))
    elif item.effect not in EFFECTS:
        yield not_supported(path.child("effect"), item.effect, EFFECTS)


def _validate_consumptions(items: Sequence[DeviceCounterConsumption], path: FieldPath) -> FieldErrors:
    yield from validate_each(items, limits.CONSUMPTIONS_PER_DEVICE, _validate_consumption, path)
    if len(items) <= limits.CONSUMPTIONS_PER_DEVICE:
        yield from validate_distinct((item.counter_set for item in items), path)


def _validate_consumption(item: DeviceCounterConsumption, path: FieldPath) -> FieldErrors:
    if not item.counter_set or check_dns_label(item.counter_set):
        yield from validate_name(item.counter_set, check_dns_label, path.child("counterSet"))
    yield from validate_counters(item.counters, path.child("counters"))


def validate_counters(items: Mapping[str, Counter], path: FieldPath) -> FieldErrors:
    """Check named amounts: a budget, or what is drawn from one."""
    if not items:
        yield required(path)
    elif len(items) > limits.COUNTERS_PER_SET:
        yield too_many(path, len(items), limits.COUNTERS_PER_SET)
    else:
        yield from validate_keys(items, check_dns_label, path)
        for name, counter in items.items():
            if counter.value is None:
                yield required(path.key(_shorten_key(name)).child("value"))
            elif counter.value.sign < 0:
                place = path.key(_shorten_key(name)).child("value")
                yield invalid(place, str(counter.value), "must be greater than or equal to 0")
