"""CEL value of a device: the whole, or only the parts an expression reads.

Theory of operation: a name without a domain belongs to the domain of the driver. The value of a device is
built of all its attributes and capacities; where one is invalid, the device has no value. A *plain* device is
one whose value can be built and whose names are all different: any part of it can be looked up alone, and an
expression that reads only some parts gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dray.api.resource.device import Device, DeviceAttribute
from dray.cel import EvalFault, PathRead
from dray.cel.values import OpenMap, Value
from dray.values.semver import Version, VersionError

_MAPS: Final = ("attributes", "capacity")


class DeviceRead(NamedTuple):
    """An attribute, a capacity or a field of a device, other than its driver, that a selector reads.

    `field` is the field of the variable. Attributes and capacities have a domain and an id; an empty id means
    that only the presence of the domain is read.
    """

    field: str
    domain: str = ""
    id: str = ""


DeviceReads: TypeAlias = tuple[DeviceRead, ...]


def resolve_device_reads(reads: Iterable[PathRead] | None) -> DeviceReads | None:
    """Convert the reads of an expression to reads of a device; None when it reads a whole map, or unusual
    names.
    """
    if reads is None:
        return None
    found: set[DeviceRead] = set()
    for path, presence in reads:
        field, domain, id = (*path, "", "")[:3]
        if field == "driver":
            continue
        if field not in _MAPS:
            found.add(DeviceRead(field))
        elif len(path) > 2 and "/" not in domain and "/" not in id and id:
            found.add(DeviceRead(field, domain, id))
        elif len(path) == 2 and presence and "/" not in domain:
            found.add(DeviceRead(field, domain))
        elif len(path) != 1 or not presence:
            return None
    return tuple(sorted(found))


def build_device_value(driver: str, device: Device) -> dict[str, Value] | EvalFault:
    """Build the whole value of a device, or return why it has none."""
    attributes = OpenMap()
    capacity = OpenMap()
    for name, attribute in device.attributes.items():
        try:
            value = _to_cel_value(attribute)
        except VersionError as bad:
            return EvalFault(f"attribute {name}: parse semantic version: {bad.reason}")
        if value is None:
            return EvalFault(f"attribute {name}: unsupported attribute value")
        _put(attributes, driver, name, value)
    for name, amount in device.capacity.items():
        if amount.value is None:
            return EvalFault(f"capacity {name}: no value")
        _put(capacity, driver, name, amount.value)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations is True,
        "attributes": attributes,
        "capacity": capacity,
    }


def is_plain(driver: str, device: Device) -> bool:
    """Whether the value of a device can be built in full, and no part of it has two names."""
    own = f"{driver}/"
    attributes, capacity = device.attributes, device.capacity
    for name, attribute in attributes.items():
        if "/" in name and name.startswith(own) and name[len(own) :] in attributes:
            return False
        if attribute.string_value is None and attribute.int_value is None and attribute.bool_value is None:
            try:
                if _to_cel_value(attribute) is None:
                    return False
            except VersionError:
                return False
    for name, amount in capacity.items():
        if amount.value is None or (name.startswith(own) and name[len(own) :] in capacity):
            return False
    return True


def build_partial_value(driver: str, device: Device, reads: DeviceReads) -> dict[str, Value]:
    """Build the value of a plain device, restricted to what is read."""
    attributes = OpenMap()
    capacity = OpenMap()
    value: dict[str, Value] = {"driver": driver, "attributes": attributes, "capacity": capacity}
    for field, domain, id in reads:
        if field == "allowMultipleAllocations":
            value[field] = device.allow_multiple_allocations is True
        elif field in _MAPS:
            published: Any = device.attributes if field == "attributes" else device.capacity
            within: OpenMap = value[field]
            if not id:
                if has_domain(driver, published, domain):
                    within.setdefault(domain, {})
                continue
            found = read_named(driver, published, domain, id)
            if found is not None:
                held_value = _to_cel_value(found) if field == "attributes" else found.value
                within.setdefault(domain, {})[id] = held_value
    return value


def read_named(driver: str, published: Mapping[str, Any], domain: str, id: str) -> Any:
    """Return an attribute or capacity of a plain device by domain and id; None when the device has none."""
    found = published.get(f"{domain}/{id}")
    return published.get(id) if found is None and domain == driver else found


def has_domain(driver: str, published: Mapping[str, Any], domain: str) -> bool:
    """Whether a device has anything in a domain."""
    own = domain == driver
    return any(name.startswith(f"{domain}/") or (own and "/" not in name) for name in published)


def _put(domains: dict[str, Any], driver: str, name: str, value: Value) -> None:
    domain, slash, id = name.partition("/")
    if not slash:
        domain, id = driver, name
    within = domains.get(domain)
    if within is None:
        within = domains[domain] = {}
    within[id] = value


def _to_cel_value(attribute: DeviceAttribute) -> Value | None:
    """Convert an attribute to a CEL value; None when no member is set."""
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.version_value is not None:
        return Version.parse(attribute.version_value)
    typed = attribute.get_typed_values()
    if typed is None:
        return None
    kind, values = typed
    return tuple(Version.parse(str(one)) for one in values) if kind == "version" else values
