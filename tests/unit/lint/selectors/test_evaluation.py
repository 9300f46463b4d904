"""Evaluation of selectors: few models represent all devices, with the same outcome."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.devices.device_cel import bind_device
from dray.api.resource import Device, DeviceAttribute
from dray.cel import EvalFault
from dray.lint.selectors import device_models as device_models_module
from dray.lint.selectors.device_models import DeviceModel
from dray.lint.selectors.evaluation import (
    SelectorEvaluator,
    compile_stored_selector,
    count_devices,
    evaluate_selector,
)
from tests.unit.lint.devices import GPU, field_keys_of, index_models, published

WHOLE = "device == device"
conditions = st.sampled_from(
    [
        f"{GPU}.a == 1",
        f"{GPU}.a < 2",
        f'{GPU}.b == "x"',
        f"has({GPU}.b)",
        f'"a" in {GPU}',
        f"{GPU}.c",
        f'{GPU}.exists(k, k == "c")',
        'device.driver == "gpu.example.com"',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) > 0',
        'device.attributes["nic.example.com"].a == 1',
        "device.attributes[device.driver].a == 1",
        "true",
    ]
)
selectors = st.recursive(
    conditions,
    lambda inner: (
        st.tuples(inner, inner).map("({0[0]} && {0[1]})".format)
        | st.tuples(inner, inner).map("({0[0]} || {0[1]})".format)
        | inner.map("!({})".format)
    ),
    max_leaves=4,
)
held = st.fixed_dictionaries(
    {"serial": st.integers(0, 10**6)},
    optional={
        "a": st.integers(0, 2) | st.just("1"),
        "b": st.sampled_from(["x", "y"]),
        "c": st.booleans(),
        "memory": st.sampled_from(["512Mi", "2Gi"]),
    },
)
pools = st.lists(held, min_size=1, max_size=8).map(lambda each: {f"d{i}": one for i, one in enumerate(each)})


@given(pools, pools, st.lists(selectors, min_size=1, max_size=3), st.integers(0, 2))
def test_models_give_the_outcome_of_all_devices(
    gpus: dict[str, Any], nics: dict[str, Any], row: list[str], split: int
) -> None:
    slices = [published(gpus), published(nics, driver="nic.example.com")]
    before, after = tuple(row[:split]), tuple(row[split:])
    evaluator = SelectorEvaluator(index_models(*slices, about=tuple(row)))
    outcomes = evaluator.evaluate_row(before, after)
    assert outcomes is not None
    alive = [bind_device(one.spec.driver, device) for one in slices for device in one.spec.devices]
    for place, expression in enumerate(row):
        selector = compile_stored_selector(expression)
        assert selector is not None
        results = [(device, selector.matches(device)) for device in alive]
        if place >= split:
            outcome = outcomes[place - split]
            assert count_devices(outcome.matching) == sum(result is True for _, result in results)
            assert count_devices(outcome.rejected) == sum(result is False for _, result in results)
            assert count_devices(outcome.evaluated) == len(results)
            faults = {str(result) for _, result in results if isinstance(result, EvalFault)}
            assert {str(fault) for _, fault in outcome.faults} == faults
        alive = [device for device, result in results if result is True]


def test_devices_that_differ_in_unread_fields_are_one_model() -> None:
    devices = {f"gpu-{i}": {"a": i % 2, "serial": i} for i in range(100)}
    about = (f"{GPU}.a == 1", "true")
    found = index_models(published(devices), about=about)
    assert (len(found), found.device_count, found.is_complete) == (2, 100, True)
    assert [(model.count, model.description) for model in found.get_view(frozenset())] == [
        (100, "`gpu-0` of pool `gpu.example.com/a`")
    ]
    assert found.names_by_domain["attributes", "gpu.example.com"] == {"a", "serial"}


@pytest.fixture
def serials() -> dict[str, dict[str, int]]:
    return {f"gpu-{i}": {"serial": i} for i in range(100)}


def test_no_more_models_are_kept_than_allowed(serials: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_models_module, "MAX_MODELS", 10)
    found = index_models(published(serials), about=(f"{GPU}.serial == 1",))
    assert (len(found), found.device_count, found.is_complete) == (10, 100, False)


def test_evaluation_stops_at_its_limit(serials: Any) -> None:
    rows = [(f"{GPU}.serial == {i}",) for i in range(5)]
    evaluator = SelectorEvaluator(index_models(published(serials), about=rows[0]), max_evaluations=350)
    tried = [evaluator.evaluate_row((), row) for row in rows]
    assert [outcome is not None for outcome in tried] == [True, True, False, False, False]  # one for the view
    assert evaluator.evaluate_row((), rows[0]) is tried[0]
    assert evaluator.evaluate_row((), ("true",)) is None


def test_an_invalid_device_is_not_evaluated() -> None:
    sound, broken = (
        DeviceModel("d", Device(attributes={"v": DeviceAttribute(version_value=version)}), "a", 1)
        for version in ("1.0.0", "one")
    )
    outcome = evaluate_selector("has(device.attributes['d'].v)", (broken, sound))
    assert outcome is not None
    assert outcome.evaluated == (sound,)


def test_a_model_shows_its_values() -> None:
    found = index_models(
        published({"g": {"a": 1, "b": True, "c": ("x", "y"), "memory": "2Gi"}}), about=(WHOLE,)
    )
    (model,) = found.get_view(field_keys_of(WHOLE))
    domain = "gpu.example.com"
    shown = {name: model.format_value(("attributes", domain, name)) for name in ("a", "b", "c", "memory")}
    assert shown == {"a": "1", "b": "true", "c": "[x, y]", "memory": ""}
    assert model.format_value(("capacity", domain, "memory")) == "2Gi"
    assert [model.get_attribute_type(domain, name) for name in "abcd"] == ["int", "bool", "list", None]
    assert model.has_field(("capacity", domain, "memory"))
    assert not model.has_field(("capacity", "other.example.com", "memory"))


def test_a_selector_that_does_not_compile_is_not_evaluated() -> None:
    assert evaluate_selector("nonsense(", ()) is None
