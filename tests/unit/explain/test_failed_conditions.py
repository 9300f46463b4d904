"""Reading selectors: conditions, what they look at, how near a device comes."""

from __future__ import annotations

import pytest

from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.api.resource import Device, DeviceAttribute
from dray.explain.failed_conditions import (
    build_guards,
    find_failed_condition,
    find_only_reference,
    format_values,
    remove_condition,
    shorten_condition,
    split_conditions,
)
from dray.values.quantity import Quantity
from tests.unit.explain.cluster import attribute, capacity, judge, memory

MEMORY = 'device.capacity["gpu.example"].memory'


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("a", ["a"]),
        ("a && b", ["a", "b"]),
        ("a&&b &&  c", ["a", "b", "c"]),
        ("(a && b) && c", ["(a && b)", "c"]),
        ('x == "&&" && y', ['x == "&&"', "y"]),
        ("x == '\"' && y", ["x == '\"'", "y"]),
        ("[1, 2].exists(i, i > 0 && i < 3) && y", ["[1, 2].exists(i, i > 0 && i < 3)", "y"]),
        ("a || b && c", ["a || b && c"]),
        ("a ? b : c && d", ["a ? b : c && d"]),
        ('x == "\\"" && y', ['x == "\\"" && y']),
        ('x == """ && """ && y', ['x == """ && """ && y']),
        ("a && // all of it\nb", ["a && // all of it\nb"]),
        ("a && ", ["a && "]),
    ],
)
def test_conditions_are_split_only_where_that_is_safe(expression, parts):
    assert split_conditions(expression) == parts


@pytest.mark.parametrize(
    ("condition", "reference"),
    [
        (f'{MEMORY} >= quantity("1Gi")', ("capacity", "gpu.example", "memory")),
        ("device.attributes['gpu.example'].model == 'x'", ("attributes", "gpu.example", "model")),
        ('device.attributes["gpu.example"]["model"] == "x"', ("attributes", "gpu.example", "model")),
        (f"{MEMORY} > {MEMORY}", ("capacity", "gpu.example", "memory")),
        (f'{MEMORY} > device.attributes["gpu.example"].x', None),
        (f'{MEMORY} > quantity("1") && device.driver == "x"', None),
        ('device.driver == "gpu.example"', None),
        ("true", None),
    ],
)
def test_what_a_condition_looks_at(condition, reference):
    assert find_only_reference(condition) == reference


def test_a_selector_without_one_of_its_conditions():
    assert remove_condition("a && b && c", "b") == "a && c"
    assert remove_condition("a", "a") is None
    assert remove_condition("a || b", "b") is None


def test_a_condition_as_people_say_it():
    assert shorten_condition(f'{MEMORY} >= quantity("1Gi")') == 'memory >= quantity("1Gi")'
    assert shorten_condition("device.attributes['x']['y'] == 1") == "y == 1"
    assert shorten_condition('device.driver == "x"') == 'device.driver == "x"'


def test_guards_name_each_reference_once():
    text = f'{MEMORY} > {MEMORY} || device.attributes["gpu.example"].numa == 0'
    assert build_guards(text) == [
        '"memory" in device.capacity["gpu.example"]',
        '"numa" in device.attributes["gpu.example"]',
    ]


def content(amount: str = "40Gi", numa: int = 0) -> DeviceProfile:
    held = {"memory": capacity(Quantity.parse(amount))}
    device = Device(name="gpu-0", capacity=held, attributes={"numa": DeviceAttribute(int_value=numa)})
    return DeviceProfile("gpu.example", device, judge)


def test_a_reading_has_the_value_of_the_device():
    reading = find_failed_condition(content(), memory(">=", "80Gi"))
    assert (reading.subject, reading.value, reading.is_amount, reading.is_only_failure) == (
        "memory",
        "40Gi",
        True,
        False,
    )


def test_a_reading_finds_the_condition_that_is_false():
    reading = find_failed_condition(content(), f"{attribute('numa', 0)} && {memory('>=', '80Gi')}")
    assert reading.condition == memory(">=", "80Gi")
    assert reading.is_only_failure


def test_a_reading_of_several_false_conditions_names_the_first():
    reading = find_failed_condition(content(), f"{attribute('numa', 7)} && {memory('>=', '80Gi')}")
    assert (reading.condition, reading.value, reading.is_only_failure) == (attribute("numa", 7), "0", False)


def test_an_attribute_with_its_domain_is_found_as_well():
    device = Device(name="gpu-0", attributes={"gpu.example/numa": DeviceAttribute(int_value=3)})
    assert (
        find_failed_condition(DeviceProfile("gpu.example", device, judge), attribute("numa", 7)).value == "3"
    )


def test_what_a_device_lacks_has_no_value():
    reading = find_failed_condition(
        DeviceProfile("gpu.example", Device(name="gpu-0"), judge), memory(">=", "1Gi")
    )
    assert (reading.subject, reading.value) == ("memory", "")


@pytest.mark.parametrize(
    ("condition", "nearest"),
    [
        (memory(">=", "80Gi"), "40Gi"),
        (memory("<=", "1Gi"), "24Gi"),
        (f'{MEMORY}.isGreaterThan(quantity("80Gi"))', "40Gi"),
        (f'{MEMORY}.compareTo(quantity("80Gi")) >= 0', "40Gi"),
        (f'{MEMORY}.isLessThan(quantity("1Gi"))', "24Gi"),
    ],
)
def test_devices_are_sorted_by_how_near_they_come(condition, nearest):
    readings = [find_failed_condition(content(amount), condition) for amount in ("24Gi", "40Gi", "32Gi")]
    assert min(readings, key=lambda reading: reading.distance).value == nearest


def test_a_bound_on_the_left_tells_nothing_about_the_direction():
    condition = f'quantity("80Gi").compareTo({MEMORY}) <= 0'
    orders = {find_failed_condition(content(amount), condition).distance for amount in ("24Gi", "40Gi")}
    assert len(orders) == 1


def test_values_as_people_write_them():
    assert format_values([True]) == "true"
    assert format_values([2, 10]) == "[10, 2]"
    assert format_values(["a100"]) == "a100"
