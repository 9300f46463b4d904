"""What a selector reads of a device, and what it requires of the driver and of one attribute."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.devices.device_cel import CompiledSelector, InvalidSelector, compile_stored_selector
from dray.api.devices.device_value import DeviceRead, is_plain
from dray.api.resource.device import Device, DeviceAttribute, DeviceCapacity
from dray.values.quantity import Quantity

KIND = DeviceRead("attributes", "x.example", "kind")

READS = {
    "true": (),
    'device.driver == "x.example"': (),
    'device.attributes["x.example"].kind == "a"': (KIND,),
    'device.attributes["x.example"].kind.size() == 1 && device.driver != "y"': (KIND,),
    '"kind" in device.attributes["x.example"]': (KIND,),
    'has(device.attributes["x.example"].kind)': (KIND,),
    '"x.example" in device.attributes': (DeviceRead("attributes", "x.example"),),
    'device.allowMultipleAllocations && device.capacity["x.example"].memory.isInteger()': (
        DeviceRead("allowMultipleAllocations"),
        DeviceRead("capacity", "x.example", "memory"),
    ),
    "has(device.attributes)": (),
    'device.attributes["x.example"].size() == 0': None,
    "device.attributes.size() == 0": None,
    'device.attributes["x.example"][device.driver] == "a"': None,
    'device.attributes["x.example/y"].kind == "a"': None,
    'device.attributes["x.example"]["y/kind"] == "a"': None,
    'device.attributes["x.example"][""] == "a"': None,
}


def compiled(expression: str) -> CompiledSelector:
    selector = compile_stored_selector(expression)
    assert isinstance(selector, CompiledSelector), str(selector)
    return selector


@pytest.mark.parametrize("expression", READS)
def test_what_a_selector_reads(expression):
    assert compiled(expression).reads == READS[expression]


def test_a_selector_may_require_a_driver():
    alone = compiled('device.driver == "x.example"')
    assert (alone.driver, alone.driver_alone) == ("x.example", True)
    more = compiled('device.driver == "x.example" && device.attributes["x.example"].kind == "a"')
    assert (more.driver, more.driver_alone, more.text) == ("x.example", False, None)
    later = compiled('device.attributes["x.example"].kind == "a" && device.driver == "x.example"')
    assert (later.driver, later.text) == (None, None)


def test_a_selector_may_require_one_text_only():
    assert compiled('device.attributes["x.example"].kind == "a"').text == "a"
    assert compiled('device.attributes["x.example"].kind == 1').text is None
    assert compiled('device.attributes["x.example/y"].kind == "a"').text is None


def test_an_invalid_selector_gives_the_same_text_for_all_devices():
    broken = compile_stored_selector("device.")
    assert isinstance(broken, InvalidSelector)
    assert broken.reads == ()
    assert broken.evaluate("x.example", Device(name="d")) == str(broken)


ODD: dict[str, dict[str, Any]] = {
    "an attribute without a value": {"attributes": {"a": DeviceAttribute()}},
    "a version that is none": {"attributes": {"a": DeviceAttribute(version_value="one")}},
    "a version in a list that is none": {"attributes": {"a": DeviceAttribute(version_values=("one",))}},
    "an attribute with two names": {
        "attributes": {"a": DeviceAttribute(int_value=1), "x.example/a": DeviceAttribute(int_value=2)}
    },
    "a capacity without a value": {"capacity": {"a": DeviceCapacity()}},
    "a capacity with two names": {
        "capacity": {name: DeviceCapacity(value=Quantity.parse("1")) for name in ("a", "x.example/a")}
    },
}


@pytest.mark.parametrize("case", ODD)
def test_devices_that_are_validated_one_by_one(case):
    assert not is_plain("x.example", Device(name="d", **ODD[case]))


def test_a_device_may_use_any_kind_of_value_and_still_be_plain():
    attributes = {
        "a": DeviceAttribute(string_value="a"),
        "y.example/a": DeviceAttribute(version_value="1.0.0"),
        "b": DeviceAttribute(int_values=(1,)),
        "x.example/c": DeviceAttribute(bool_value=False),
    }
    assert is_plain("x.example", Device(name="d", attributes=attributes))
