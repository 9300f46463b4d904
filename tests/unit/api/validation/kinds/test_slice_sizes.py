"""The largest valid slice stays well below the size limit of an object."""

from __future__ import annotations

import pytest

from dray.api.codec import encode
from dray.api.limits import ATTRIBUTE_VALUES_PER_DEVICE, RICH_DEVICES_PER_SLICE
from dray.api.meta import ObjectMeta
from dray.api.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from dray.api.validation import validate_create

OBJECT_LIMIT = 3 * 2**19
"""1.5 MiB, what the store accepts of one object."""


def listed(devices: int, values: int) -> ResourceSlice:
    items = tuple(f"{i:02}".ljust(64, "x") for i in range(values))
    attribute = DeviceAttribute(string_values=items)
    spec = ResourceSliceSpec(
        driver="d.example.com",
        node_name="n",
        pool=ResourcePool(name="p", resource_slice_count=1),
        devices=tuple(Device(name=f"dev-{i}", attributes={"roots": attribute}) for i in range(devices)),
    )
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)


@pytest.mark.req("K5491-048")
def test_lists_grow_linearly_and_end_inside_the_object_limit():
    largest = listed(RICH_DEVICES_PER_SLICE, ATTRIBUTE_VALUES_PER_DEVICE)
    assert validate_create(largest) == []
    assert len(encode(largest)) < OBJECT_LIMIT
    sizes = [len(encode(listed(devices, 10))) for devices in (10, 20, 30)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    sizes = [len(encode(listed(10, values))) for values in (10, 20, 30)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


def test_one_more_value_or_device_is_refused():
    assert validate_create(listed(RICH_DEVICES_PER_SLICE, ATTRIBUTE_VALUES_PER_DEVICE + 1))
    assert validate_create(listed(RICH_DEVICES_PER_SLICE + 1, ATTRIBUTE_VALUES_PER_DEVICE))
