"""Rules of one device in a slice: attributes, capacities, counters, taints, nodes.

Rules for this file: this is the careful way, with a path for everything. Whole slices of ordinary devices
are judged by `fastlane` first, with the rules of this file, and come here only when something is wrong or
out of the ordinary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.api.fields import Path, invalid, not_supported, required, too_long, too_many
from dray.api.resource import (
    Counter,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ListAttribute,
)
from dray.api.resource.device import SCALARS
from dray.api.validate import limits
from dray.api.validate.capacity import capacity
from dray.api.validate.nodes import node_choice
from dray.api.validate.rules import (
    EFFECTS,
    Errors,
    binding_conditions,
    distinct,
    each,
    keyed,
    misnamed,
    named,
    size,
)
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
    values = sum(map(value_count, item.attributes.values()))
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
    given = 0
    for name in SCALARS:
        scalar = getattr(item, f"{name}_value")
        if scalar is not None:
            given += 1
            yield from _text(name, scalar, path.field(name))
        values = getattr(item, f"{name}_values")
        if values is not None:
            given += 1
            yield from _list(name, values, path.field(f"{name}s"))
    if item.list_value is not None:
        given += 1
        yield from _typed_list(item.list_value, path.field("list"))
    if given != 1:
        yield invalid(path, item if given else "", _ONE_VALUE)


def _typed_list(item: ListAttribute, path: Path) -> Errors:
    given = [(name, getattr(item, f"{name}_values")) for name in SCALARS]
    given = [(name, values) for name, values in given if values is not None]
    for name, values in given:
        yield from _list(name, values, path.field(name))
    if len(given) != 1:
        yield invalid(path, item if given else "", _ONE_VALUE)


def _list(name: str, values: Sequence[int | bool | str], path: Path) -> Errors:
    if not values:
        yield invalid(path, [], "must not be empty if specified")
    elif len(values) > limits.ITEMS_PER_LIST:
        yield too_many(path, len(values), limits.ITEMS_PER_LIST)
    elif name in _TEXTS:
        for position, value in enumerate(values):
            yield from _text(name, value, path.index(position))


_TEXTS = frozenset({"string", "version"})


def _text(name: str, value: int | bool | str, path: Path) -> Errors:
    if not isinstance(value, str):
        return
    if name == "version" and not _is_version(value):
        yield invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    if size(value) > limits.ATTRIBUTE_VALUE_BYTES:
        yield too_long(path, limits.ATTRIBUTE_VALUE_BYTES)


def _is_version(text: str) -> bool:
    try:
        Version.parse(text)
    except VersionError:
        return False
    return True


def value_count(item: DeviceAttribute) -> int:
    """How many values an attribute holds: every item of a list counts, and anything else is one."""
    items = _item_count(item)
    if item.list_value is not None:
        items += _item_count(item.list_value)
    return items or 1


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
    yield from misnamed(qualified_name(item.key), path.field("key"))
    yield from misnamed(label_value(item.value), path.field("value"))
    if not item.effect:
        yield required(path.field("effect"))
    elif item.effect not in EFFECTS:
        yield not_supported(path.field("effect"), item.effect, EFFECTS)


def _consumptions(items: Sequence[DeviceCounterConsumption], path: Path) -> Errors:
    yield from each(items, limits.CONSUMPTIONS_PER_DEVICE, _consumption, path)
    if len(items) <= limits.CONSUMPTIONS_PER_DEVICE:
        yield from distinct((item.counter_set for item in items), path)


def _consumption(item: DeviceCounterConsumption, path: Path) -> Errors:
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
