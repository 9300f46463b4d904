"""Attributes and capacities of a device by field key."""

from __future__ import annotations

import pytest

from dray.api.devices.device_fields import find_attribute, find_capacity, has_field
from dray.api.devices.selector_references import FieldKey
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.values.quantity import Quantity

DRIVER = "gpu.example"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "numa": DeviceAttribute(int_value=0),
        "other.example/model": DeviceAttribute(string_value="x"),
    },
    capacity={"gpu.example/memory": DeviceCapacity(value=Quantity.parse("1Gi"))},
)


@pytest.mark.parametrize(
    ("field_key", "found"),
    [
        (("attributes", "gpu.example", "numa"), True),
        (("attributes", "other.example", "model"), True),
        (("attributes", "gpu.example", "model"), False),
        (("attributes", "other.example", "numa"), False),
        (("capacity", "gpu.example", "memory"), True),
        (("capacity", "other.example", "memory"), False),
        (("attributes", "gpu.example", "memory"), False),
    ],
)
def test_a_driver_may_omit_its_own_domain(field_key: FieldKey, found: bool) -> None:
    find = find_capacity if field_key[0] == "capacity" else find_attribute
    assert has_field(DRIVER, DEVICE, field_key) is found
    assert (find(DRIVER, DEVICE, field_key) is not None) is found
