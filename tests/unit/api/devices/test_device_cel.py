"""The CEL variable `device`: which expressions exist under which gates, and their results for a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.devices.device_cel import (
    SELECTOR_COST_LIMIT,
    CompiledSelector,
    InvalidSelector,
    bind_device,
    build_environment,
    compile_selector,
    compile_stored_selector,
)
from dray.api.resource.device import Device, DeviceAttribute, DeviceCapacity, ListAttribute
from dray.cel import CompileFault, EvalFault, FaultKind, types
from dray.gates import GateSet
from dray.values.quantity import Quantity
from tests.outside import ROOT

ALL = GateSet.from_defaults()
DRIVER = "gpu.example.com"

DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string_value="a100"),
        "index": DeviceAttribute(int_value=3),
        "ready": DeviceAttribute(bool_value=True),
        "firmware": DeviceAttribute(version_value="1.2.3-rc.1"),
        f"{DRIVER}/full": DeviceAttribute(string_value="named with its domain"),
        "other.example.com/model": DeviceAttribute(string_value="x"),
        "nodes": DeviceAttribute(int_values=(0, 1)),
        "links": DeviceAttribute(list_value=ListAttribute(string_values=("a", "b"))),
        "versions": DeviceAttribute(version_values=("1.0.0", "2.0.0")),
    },
    capacity={
        "memory": DeviceCapacity(value=Quantity.parse("40Gi")),
        "other.example.com/slots": DeviceCapacity(value=Quantity.parse("7")),
    },
)
BOUND = bind_device(DRIVER, DEVICE)


def selector(expression: str, *, stored: bool = True, gates: GateSet = ALL) -> CompiledSelector:
    compiled = compile_selector(expression, stored=stored, gates=gates)
    assert isinstance(compiled, CompiledSelector), str(compiled)
    return compiled


def says(expression: str, device: Device = DEVICE) -> bool:
    answer = selector(expression).matches(bind_device(DRIVER, device))
    assert not isinstance(answer, EvalFault), str(answer)
    return answer


def fails(expression: str, device: Device = DEVICE) -> str:
    answer = selector(expression).matches(bind_device(DRIVER, device))
    assert isinstance(answer, EvalFault)
    assert answer.kind is FaultKind.ERROR
    return answer.message


@pytest.mark.parametrize(
    "expression",
    [
        f'device.driver == "{DRIVER}"',
        f'device.attributes["{DRIVER}"].model == "a100"',
        f'device.attributes["{DRIVER}"]["model"] == "a100"',
        f'device.attributes["{DRIVER}"].index == 3 && device.attributes["{DRIVER}"].index < 3.5',
        f'device.attributes["{DRIVER}"].ready',
        f'device.attributes["{DRIVER}"].firmware.isLessThan(semver("1.2.3"))',
        f'device.attributes["{DRIVER}"].full == "named with its domain"',
        'device.attributes["other.example.com"].model == "x"',
        f'device.capacity["{DRIVER}"].memory == quantity("40960Mi")',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("32Gi")) > 0',
        'device.capacity["other.example.com"].slots.asInteger() == 7',
        f'"model" in device.attributes["{DRIVER}"] && !("nope" in device.attributes["{DRIVER}"])',
        f'"{DRIVER}" in device.attributes && !("unknown" in device.attributes)',
        f'has(device.attributes["{DRIVER}"].model) && !has(device.attributes["{DRIVER}"].nope)',
        'device.attributes["unknown"].size() == 0 && !has(device.attributes["unknown"].model)',
        "device.attributes.size() == 2 && device.capacity.size() == 2",
        f'device.attributes.exists(domain, domain == "{DRIVER}")',
        f'cel.bind(gpu, device.attributes["{DRIVER}"], gpu.index == 3 && gpu.ready)',
        f'device.attributes["{DRIVER}"].?nope.orValue("none") == "none"',
        f'device.attributes["{DRIVER}"].nodes == [0, 1] && 1 in device.attributes["{DRIVER}"].nodes',
        f'device.attributes["{DRIVER}"].links.exists(link, link == "b")',
        f'device.attributes["{DRIVER}"].versions.all(v, v.isGreaterThan(semver("0.9.0")))',
        "has(device.driver)",
    ],
)
def test_expressions_that_a_selector_may_use(expression: str):
    assert says(expression) is True


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'device.attributes["{DRIVER}"].nope == 1', "no such key: nope"),
        ('device.attributes["unknown"].model == "x"', "no such key: model"),
        (f'device.capacity["{DRIVER}"].nope.isInteger()', "no such key: nope"),
        (f'device.attributes["{DRIVER}"].firmware == "1.2.3"', "no such overload"),
        (f'device.attributes["{DRIVER}"].index.exists(x, x == 3)', "got 'types.Int', expected iterable type"),
        (
            f'device.attributes["{DRIVER}"].index',
            "CEL result of type int could not be converted to bool: "
            "unsupported type conversion from 'int' to bool",
        ),
        (
            f'device.attributes["{DRIVER}"].firmware',
            "CEL result of type kubernetes.Semver could not be converted to bool",
        ),
    ],
)
def test_what_fails_for_a_device(expression: str, words: str):
    assert words in fails(expression)


# --- sharing (KEP-5075) ---


@pytest.mark.req("K5075-027")
@pytest.mark.parametrize(("allowed", "shared"), [(True, True), (False, False), (None, False)])
def test_sharing_is_a_property_one_can_select(allowed: bool | None, shared: bool):
    device = Device(name="nic-0", allow_multiple_allocations=allowed)
    assert says("device.allowMultipleAllocations == true", device) is shared
    assert says("device.allowMultipleAllocations == false", device) is not shared
    assert says("device.allowMultipleAllocations", device) is shared


@pytest.mark.req("K5075-063", "K5075-149")
def test_sharing_needs_its_gate_in_new_expressions_only():
    expression = "device.allowMultipleAllocations == true"
    off = ALL.override({"DRAConsumableCapacity": False})
    fault = compile_selector(expression, stored=False, gates=off)
    assert isinstance(fault, InvalidSelector)
    assert "undefined field 'allowMultipleAllocations'" in fault.detail
    device = bind_device(DRIVER, Device(allow_multiple_allocations=True))
    assert selector(expression, stored=False, gates=ALL).matches(device) is True
    assert selector(expression, stored=True, gates=off).matches(device) is True


@pytest.mark.req("K5075-099")
def test_the_class_of_the_seed_selects_only_devices_to_be_shared():
    text = (ROOT / "examples" / "seeds" / "kep-5075-class-selector.yaml").read_text("utf-8")
    (document,) = [found for found in yaml.safe_load_all(text) if found["kind"] == "DeviceClass"]
    (expression,) = [item["cel"]["expression"] for item in document["spec"]["selectors"]]
    chosen = selector(expression, stored=False)
    assert chosen.matches(bind_device(DRIVER, Device(allow_multiple_allocations=True))) is True
    assert chosen.matches(bind_device(DRIVER, Device(allow_multiple_allocations=False))) is False
    assert chosen.matches(bind_device(DRIVER, Device())) is False


# --- lists (KEP-5491) ---


def holding(**attribute: Any) -> Device:
    return Device(attributes={"foo": DeviceAttribute(**attribute)})


FOO = f'device.attributes["{DRIVER}"].foo'


@pytest.mark.req("K5491-025")
def test_a_list_of_one_is_not_its_item():
    assert says(f"{FOO} == 1", holding(int_value=1)) is True
    assert says(f"{FOO} == 1", holding(int_values=(1,))) is False
    assert says(f"{FOO} == [1]", holding(int_values=(1,))) is True
    assert "no such overload" in fails(f"{FOO} > 0", holding(int_values=(1,)))


@pytest.mark.req("K5491-026", "K5491-009")
@pytest.mark.parametrize("name", ["include", "includes"])
@pytest.mark.parametrize(
    ("device", "wanted", "expected"),
    [
        (holding(int_value=1), "1", True),
        (holding(int_value=1), "2", False),
        (holding(int_values=(1, 2)), "2", True),
        (holding(int_values=(1, 2)), "3", False),
        (holding(list_value=ListAttribute(int_values=(1, 2))), "2", True),
        (holding(string_value="ab"), '"a"', False),
        (holding(string_value="ab"), '"ab"', True),
        (holding(string_values=("a", "b")), '"a"', True),
        (holding(bool_value=True), "1", False),
        (holding(bool_values=(True,)), "true", True),
        (holding(version_value="1.0.0"), 'semver("1.0.0")', True),
        (holding(version_values=("1.0.0", "2.0.0")), 'semver("2.0.0")', True),
        (holding(version_values=("1.0.0",)), '"1.0.0"', False),
    ],
)
def test_one_question_for_both_shapes(name: str, device: Device, wanted: str, expected: bool):
    assert says(f"{FOO}.{name}({wanted})", device) is expected


@pytest.mark.req("K5491-027")
@pytest.mark.parametrize("name", ["include", "includes"])
def test_include_works_on_numbers_and_lists_as_they_are(name: str):
    assert says(f"1.{name}(1)") is True
    assert says(f"[1].{name}(1)") is True
    assert says(f"1.{name}(2) || [1].{name}(2)") is False


def test_lists_need_their_gate_in_new_expressions_only():
    off = ALL.override({"DRAListTypeAttributes": False})
    for expression in (f"{FOO}.includes(1)", f"{FOO}.exists(x, x == 1)"):
        assert isinstance(compile_selector(expression, stored=False, gates=off), InvalidSelector)
        assert (
            selector(expression, stored=True, gates=off).matches(
                bind_device(DRIVER, holding(int_values=(1,)))
            )
            is True
        )


# --- what cannot be used ---


def test_a_selector_must_be_boolean():
    fault = compile_selector("1", stored=True, gates=ALL)
    assert isinstance(fault, InvalidSelector)
    assert fault.detail == "must evaluate to bool or the unknown type, not int"
    assert fault.compile_fault is None
    assert fault.result_type == types.INT


def test_an_invalid_selector_carries_the_compile_fault():
    fault = compile_selector("device.nope", stored=True, gates=ALL)
    assert isinstance(fault, InvalidSelector)
    assert fault.detail.startswith("compilation failed: ERROR: <input>:1:7: undefined field 'nope'")
    assert isinstance(fault.compile_fault, CompileFault)
    assert fault.compile_fault.position == (1, 7)


def test_excessive_cost_is_detected_before_evaluation():
    numbers = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    costly = "true"
    for name in "abcdef":
        costly = f"{numbers}.all({name}, {costly})"
    assert selector(costly).is_too_complex
    assert selector(costly).program.cost > SELECTOR_COST_LIMIT
    assert not selector(f'device.attributes["{DRIVER}"].model.matches("^a.*0$")').is_too_complex


def test_no_selector_matches_a_device_with_an_invalid_attribute():
    empty = Device(attributes={"odd": DeviceAttribute()})
    assert fails("true", empty) == "attribute odd: unsupported attribute value"
    version = Device(attributes={"v": DeviceAttribute(version_value="1.x")})
    assert fails("true", version).startswith("attribute v: parse semantic version: ")
    nothing = Device(capacity={"memory": DeviceCapacity()})
    assert fails("true", nothing) == "capacity memory: no value"


def test_measuring_and_matching_agree():
    measured = selector(f'device.attributes["{DRIVER}"].model == "a100"').measure(BOUND)
    assert (measured.result, measured.cost) == (True, 5)
    broken = selector("true").measure(bind_device(DRIVER, Device(attributes={"odd": DeviceAttribute()})))
    assert isinstance(broken.result, EvalFault)


def test_a_device_is_built_once_and_never_changed():
    bound = bind_device(DRIVER, DEVICE)
    before = repr(bound.value)
    for expression in ("device.attributes.all(d, d != '')", 'device.attributes["unknown"].size() == 0'):
        selector(expression).matches(bound)
    assert bound.value is bound.value
    assert repr(bound.value) == before


def test_there_are_four_environments_and_no_more():
    assert build_environment(sharing=True, lists=True) is build_environment(sharing=True, lists=True)
    assert build_environment(sharing=True, lists=True) is not build_environment(sharing=True, lists=False)


def test_the_example_file_exists():
    assert Path(ROOT / "examples" / "seeds").is_dir()


def test_what_is_stored_may_use_everything():
    assert isinstance(
        compile_stored_selector("device.allowMultipleAllocations && [1].includes(1)"), CompiledSelector
    )
    assert isinstance(compile_stored_selector("device.nope"), InvalidSelector)
