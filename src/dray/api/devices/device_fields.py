"""Attributes and capacities of a device by field key: under which names they are published.

A driver may omit its own domain from a name: `model` and `gpu.example.com/model` are one attribute.
"""

from __future__ import annotations

from dray.api.devices.selector_references import CAPACITY, FieldKey
from dray.api.resource.device import Device, DeviceAttribute, DeviceCapacity


def has_field(driver: str, device: Device, field_key: FieldKey) -> bool:
    """Whether a device has an attribute or capacity."""
    fields = device.capacity if field_key[0] == CAPACITY else device.attributes
    return any(name in fields for name in _list_names(driver, field_key))


def find_attribute(driver: str, device: Device, field_key: FieldKey) -> DeviceAttribute | None:
    """The attribute of a field key with a value; None when the device has none."""
    names = _list_names(driver, field_key)
    found = (device.attributes[name] for name in names if name in device.attributes)
    return next((one for one in found if one.get_typed_values() is not None), None)


def find_capacity(driver: str, device: Device, field_key: FieldKey) -> DeviceCapacity | None:
    """The capacity of a field key with a value; None when the device has none."""
    names = _list_names(driver, field_key)
    found = (device.capacity[name] for name in names if name in device.capacity)
    return next((one for one in found if one.value is not None), None)


def _list_names(driver: str, field_key: FieldKey) -> tuple[str, ...]:
    _, domain, name = field_key
    return (f"{domain}/{name}", name) if domain == driver else (f"{domain}/{name}",)
