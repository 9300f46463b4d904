"""Reading selectors: conditions, what they look at, how near a device comes."""

from __future__ import annotations

import pytest

from dray.allocator.inventory.device_profiles import Content
from dray.api.resource import Device, DeviceAttribute
from dray.explain.failed_conditions import (
    guards,
    joined_without,
    only_reference,
    read,
    short_form,
    split,
    worded,
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
    assert split(expression) == parts


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
    assert only_reference(condition) == reference


def test_a_selector_without_one_of_its_conditions():
    assert joined_without("a && b && c", "b") == "a && c"
    assert joined_without("a", "a") is None
    assert joined_without("a || b", "b") is None


def test_a_condition_as_people_say_it():
    assert short_form(f'{MEMORY} >= quantity("1Gi")') == 'memory >= quantity("1Gi")'
    assert short_form("device.attributes['x']['y'] == 1") == "y == 1"
    assert short_form('device.driver == "x"') == 'device.driver == "x"'


def test_guards_name_each_reference_once():
    text = f'{MEMORY} > {MEMORY} || device.attributes["gpu.example"].numa == 0'
    assert guards(text) == [
        '"memory" in device.capacity["gpu.example"]',
        '"numa" in device.attributes["gpu.example"]',
    ]


def content(amount: str = "40Gi", numa: int = 0) -> Content:
    held = {"memory": capacity(Quantity.parse(amount))}
    device = Device(name="gpu-0", capacity=held, attributes={"numa": DeviceAttribute(int_value=numa)})
    return Content("gpu.example", device, judge)


def test_a_reading_has_the_value_of_the_device():
    reading = read(content(), memory(">=", "80Gi"))
    assert (reading.subject, reading.value, reading.is_amount, reading.all_but) == (
        "memory",
        "40Gi",
        True,
        False,
    )


def test_a_reading_finds_the_condition_that_is_false():
    reading = read(content(), f"{attribute('numa', 0)} && {memory('>=', '80Gi')}")
    assert reading.condition == memory(">=", "80Gi")
    assert reading.all_but


def test_a_reading_of_several_false_conditions_names_the_first():
    reading = read(content(), f"{attribute('numa', 7)} && {memory('>=', '80Gi')}")
    assert (reading.condition, reading.value, reading.all_but) == (attribute("numa", 7), "0", False)


def test_an_attribute_with_its_domain_is_found_as_well():
    device = Device(name="gpu-0", attributes={"gpu.example/numa": DeviceAttribute(int_value=3)})
    assert read(Content("gpu.example", device, judge), attribute("numa", 7)).value == "3"


def test_what_a_device_lacks_has_no_value():
    reading = read(Content("gpu.example", Device(name="gpu-0"), judge), memory(">=", "1Gi"))
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
    readings = [read(content(amount), condition) for amount in ("24Gi", "40Gi", "32Gi")]
    assert min(readings, key=lambda reading: reading.order).value == nearest


def test_a_bound_on_the_left_tells_nothing_about_the_direction():
    condition = f'quantity("80Gi").compareTo({MEMORY}) <= 0'
    orders = {read(content(amount), condition).order for amount in ("24Gi", "40Gi")}
    assert len(orders) == 1


def test_values_as_people_write_them():
    assert worded([True]) == "true"
    assert worded([2, 10]) == "[10, 2]"
    assert worded(["a100"]) == "a100"
