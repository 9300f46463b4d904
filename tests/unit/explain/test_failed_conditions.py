"""Failed conditions: which condition of a selector a device fails, and how close it comes."""

from __future__ import annotations

import pytest

from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.api.devices.selector_analysis import analyze_selector
from dray.api.resource import Device, DeviceAttribute
from dray.explain.failed_conditions import (
    find_failed_condition,
    format_values,
    remove_condition,
)
from dray.values.quantity import Quantity
from tests.unit.explain.cluster import attribute, capacity, evaluate_selector, memory

MEMORY = 'device.capacity["gpu.example"].memory'


def test_a_selector_without_one_of_its_conditions():
    assert remove_condition("a && b && c", "b") == "a && c"
    assert remove_condition("a", "a") is None
    assert remove_condition("a || b", "b") is None


@pytest.mark.parametrize(
    "first",
    [
        f'{MEMORY}.compareTo(quantity("1Gi")) >= 0 // at least\n',
        'device.attributes["gpu.example"].name == "a \\" && b"',
        'device.attributes["gpu.example"].name == """ && """',
    ],
    ids=["comment", "escaped quote", "triple quotes"],
)
def test_conditions_are_those_of_the_syntax_tree(first):
    """A scanner of characters gave up on these, and named the whole selector."""
    last = attribute("numa", 7)
    texts = [one.text for one in analyze_selector(f"{first} && {last}").conditions]
    assert texts[1:] == [last]
    profile = DeviceProfile("gpu.example", content().device, lambda text, *_: text != last)
    failed = find_failed_condition(profile, f"{first} && {last}")
    assert (failed.condition, failed.subject, failed.value) == (last, "numa", "0")
    assert remove_condition(f"{first} && {last}", last) == texts[0]


def content(amount: str = "40Gi", numa: int = 0) -> DeviceProfile:
    capacities = {"memory": capacity(Quantity.parse(amount))}
    device = Device(name="gpu-0", capacity=capacities, attributes={"numa": DeviceAttribute(int_value=numa)})
    return DeviceProfile("gpu.example", device, evaluate_selector)


def test_a_failed_condition_has_the_value_of_the_device():
    failed = find_failed_condition(content(), memory(">=", "80Gi"))
    assert (failed.subject, failed.value, failed.is_amount, failed.is_only_failure) == (
        "memory",
        "40Gi",
        True,
        False,
    )


def test_the_failed_condition_is_the_one_that_is_false():
    failed = find_failed_condition(content(), f"{attribute('numa', 0)} && {memory('>=', '80Gi')}")
    assert failed.condition == memory(">=", "80Gi")
    assert failed.is_only_failure


def test_of_several_failed_conditions_the_first_is_named():
    failed = find_failed_condition(content(), f"{attribute('numa', 7)} && {memory('>=', '80Gi')}")
    assert (failed.condition, failed.value, failed.is_only_failure) == (attribute("numa", 7), "0", False)


def test_an_attribute_with_its_domain_is_found_as_well():
    device = Device(name="gpu-0", attributes={"gpu.example/numa": DeviceAttribute(int_value=3)})
    assert (
        find_failed_condition(
            DeviceProfile("gpu.example", device, evaluate_selector), attribute("numa", 7)
        ).value
        == "3"
    )


def test_a_field_that_the_device_lacks_has_no_value():
    failed = find_failed_condition(
        DeviceProfile("gpu.example", Device(name="gpu-0"), evaluate_selector), memory(">=", "1Gi")
    )
    assert (failed.subject, failed.value) == ("memory", "")


@pytest.mark.parametrize(
    ("condition", "nearest"),
    [
        (memory(">=", "80Gi"), "40Gi"),
        (memory("<=", "1Gi"), "24Gi"),
        (f'{MEMORY}.isGreaterThan(quantity("80Gi"))', "40Gi"),
        (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', "40Gi"),
        (f'{MEMORY}.isLessThan(quantity("1Gi"))', "24Gi"),
        (f'quantity("80Gi").compareTo({MEMORY}) <= 0', "40Gi"),
        (f'!{MEMORY}.isLessThan(quantity("80Gi"))', "40Gi"),
    ],
)
def test_devices_are_sorted_by_how_near_they_come(condition, nearest):
    failures = [find_failed_condition(content(amount), condition) for amount in ("24Gi", "40Gi", "32Gi")]
    assert min(failures, key=lambda failed: failed.distance).value == nearest


def test_values_as_text():
    assert format_values([True]) == "true"
    assert format_values([2, 10]) == "[10, 2]"
    assert format_values(["a100"]) == "a100"
