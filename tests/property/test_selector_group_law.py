"""Devices evaluated in groups get the result each of them gets on its own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.selector_evaluator import CelSelectorEvaluator
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import RequestAlternative, normalize_claims
from dray.allocator.search.candidates import get_candidate_set
from dray.api.devices.device_cel import CompiledSelector, bind_device, compile_stored_selector
from dray.api.devices.device_value import is_plain
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity, ListAttribute
from dray.values.quantity import Quantity
from tests.brute.builders import claim, device_class, node, published, request
from tests.effort import effort

DRIVERS = ("gpu.example", "nic.example")

EXPRESSIONS = [
    "true",
    "1 / 0 == 1",
    "not an expression",
    'device.driver == "gpu.example"',
    'device.driver == "gpu.example" && device.attributes["gpu.example"].kind == "a"',
    'device.attributes["gpu.example"].kind == "a" && device.driver == "gpu.example"',
    'device.driver != "gpu.example"',
    'device.driver.endsWith("example") || device.attributes["x.example"].kind == "a"',
    'device.attributes["gpu.example"].kind == "a"',
    'device.attributes["gpu.example"].kind == 1',
    'device.attributes["gpu.example"].kind == true',
    'device.attributes["x.example"].kind in ["a", "1"]',
    'device.attributes["gpu.example"].kind >= 1',
    'device.attributes["gpu.example"].kind.includes(1)',
    'device.attributes["gpu.example"].kind[0] == "a"',
    'device.attributes["gpu.example"].kind.major() == 1',
    'device.attributes["gpu.example"].kind == device.attributes["x.example"].kind',
    'device.attributes["gpu.example"].exists(name, name == "kind")',
    'device.attributes["x.example/kind"].size() == 0',
    'has(device.attributes["gpu.example"].kind)',
    '"kind" in device.attributes["x.example"]',
    '"x.example" in device.attributes',
    '"x.example" in device.capacity',
    'device.capacity["gpu.example"].memory.compareTo(quantity("1Gi")) >= 0',
    'device.capacity["x.example"].memory == quantity("1024Mi")',
    '!device.allowMultipleAllocations && device.attributes["gpu.example"].kind != "a"',
    'device.attributes["gpu.example"].?kind.orValue("") == "a"',
]

VALUES = st.sampled_from(
    [
        DeviceAttribute(string_value="a"),
        DeviceAttribute(string_value="1"),
        DeviceAttribute(int_value=1),
        DeviceAttribute(int_value=0),
        DeviceAttribute(bool_value=True),
        DeviceAttribute(bool_value=False),
        DeviceAttribute(version_value="1.0.0"),
        DeviceAttribute(version_value="1.0.0+build"),
        DeviceAttribute(version_value="no version"),
        DeviceAttribute(int_values=(1,)),
        DeviceAttribute(bool_values=(True,)),
        DeviceAttribute(string_values=("a", "b")),
        DeviceAttribute(list_value=ListAttribute(int_values=(1,))),
        DeviceAttribute(),
    ]
)
AMOUNTS = st.sampled_from(
    [
        DeviceCapacity(),
        *[DeviceCapacity(value=Quantity.parse(text)) for text in ("1Gi", "1024Mi", "1", "1e3")],
    ]
)
NAMES = ("kind", "gpu.example/kind", "x.example/kind", "x.example/other")
AMOUNT_NAMES = ("memory", "gpu.example/memory", "x.example/memory")


def devices() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(
        st.fixed_dictionaries(
            {
                "attributes": st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
                "capacity": st.dictionaries(st.sampled_from(AMOUNT_NAMES), AMOUNTS, max_size=2),
                "allow_multiple_allocations": st.sampled_from([None, True]),
            }
        ),
        min_size=1,
        max_size=6,
    )


def asking(*expressions: str) -> RequestAlternative:
    ask = normalize_claims([claim(request("r", 1, *expressions))], {"any": device_class("any")}.get)
    return ask.choices[0].alternatives[0]


@effort(4)
@given(st.lists(devices(), min_size=1, max_size=2), st.lists(st.sampled_from(EXPRESSIONS), max_size=2))
def test_groups_get_the_result_of_each_of_their_devices(pools, expressions):
    slices = [
        published(
            *[Device(name=f"d{i}", **fields) for i, fields in enumerate(own)], driver=driver, name=driver
        )
        for driver, own in zip(DRIVERS, pools, strict=False)
    ]
    shape = (
        DeviceInventory(slices, [], DeviceUsage(), CelSelectorEvaluator(compile_stored_selector))
        .get_node_view(node())
        .shape
    )
    options = get_candidate_set(shape, asking(*expressions))
    options.evaluate_all()
    judge = CelSelectorEvaluator(compile_stored_selector)
    for i, content in enumerate(shape.profiles):
        verdicts = [judge(expression, content.driver, content.device) for expression in expressions]
        first = next((verdict for verdict in verdicts if verdict is not True), True)
        assert options.matching >> i & 1 == (first is True)
        assert options.faulty >> i & 1 == (type(first) is str)
        if first is not True:
            reason = RefusalReason.UNSUITED if first is False else RefusalReason.BROKEN_SELECTOR
            assert options.refusals[i].reason is reason


@effort(4)
@given(devices(), st.sampled_from(DRIVERS), st.sampled_from(EXPRESSIONS))
def test_what_a_selector_reads_is_all_it_needs(found, driver, expression):
    compiled = compile_stored_selector(expression)
    for fields in found:
        device = Device(name="d", **fields)
        if isinstance(compiled, CompiledSelector) and is_plain(driver, device):
            whole = compiled.matches(bind_device(driver, device))
            assert compiled.evaluate(driver, device) == (whole if isinstance(whole, bool) else str(whole))
            if compiled.driver is not None:
                assert (
                    whole is False
                    if compiled.driver != driver
                    else not compiled.driver_alone or whole is True
                )
