"""Analysis of selectors: what they read, their conditions, drivers and types."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.devices.selector_analysis import analyze_selector
from dray.api.devices.selector_references import ATTRIBUTES, CAPACITY

A, C, D = ATTRIBUTES, CAPACITY, "gpu.example.com"
GPU = f'device.attributes["{D}"]'
MEMORY = f'device.capacity["{D}"].memory'


@pytest.mark.parametrize(
    ("expression", "field_keys"),
    [
        ("true", set()),
        ("device.driver == 'x' && device.allowMultipleAllocations", set()),
        (f"{GPU}.a == 1", {(A, D, "a")}),
        (f'{GPU}["a"] == 1', {(A, D, "a")}),
        ("device.attributes['d'].?a.orValue(1) == 1", {(A, "d", "a")}),
        ('device.attributes[?"d"].?a.orValue(1) == 1', {(A, "d", "a")}),
        ("device.attributes.d.a == 1", {(A, "d", "a")}),
        (f"has({GPU}.a)", {(A, D, "a")}),
        (f'"a" in {GPU}', {(A, D, "a")}),
        ('"d" in device.attributes', {(A, "d", "")}),
        ("has(device.capacity.d)", {(C, "d", "")}),
        (f'{GPU}.exists(k, k == "a")', {(A, D, "")}),
        (f"cel.bind(g, {GPU}, g.a == g.b)", {(A, D, "")}),
        (f"{GPU}.a.exists(v, v == {GPU}.b)", {(A, D, "a"), (A, D, "b")}),
        ("device.attributes[device.driver].a == 1", {(A, "", "")}),
        ("device.attributes == {}", {(A, "", "")}),
        ("device == device", {(A, "", ""), (C, "", "")}),
        ('device.capacity["d"].m.isGreaterThan(quantity("1Gi"))', {(C, "d", "m")}),
        (f'[1, {GPU}.a].exists(v, {{"k": {GPU}.b}}["k"] == v ? {GPU}.c : true)', {(A, D, x) for x in "abc"}),
    ],
)
def test_the_fields_a_selector_reads(expression: str, field_keys: set[Any]) -> None:
    assert analyze_selector(expression).field_keys == field_keys


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        (f"{GPU}.a == 1", ["a == 1"]),
        (f'has({GPU}.a) && {GPU}["a"] == 1', ["a) &&", '"a"] ==']),
        (f'"a" in {GPU}', ['"a" in']),
        ('has(device.attributes["a.a"].a) ', ["a) "]),
        ("device.attributes['d']\n  .a == 1", ["a == 1"]),
    ],
)
def test_the_offset_of_a_name(expression: str, written: list[str]) -> None:
    found = [expression[reference.name_offset :] for reference in analyze_selector(expression).references]
    assert [text.startswith(start) for text, start in zip(found, written, strict=True)] == [True] * len(found)


@pytest.mark.parametrize(
    ("expression", "conditions"),
    [
        ("true", ["true"]),
        (" true && ( false && true )\n&& 'a && b' == '' ", ["true", "( false && true )", "'a && b' == ''"]),
        ("true && false || true", ["true && false || true"]),
        ("true && false ? true && true : false", ["true && false ? true && true : false"]),
        ("[true].all(x, x && true) && {'a': true && true}['a']", None),
        ('x == "&&" && y', ['x == "&&"', "y"]),
        ('x == "\\"" && y', ['x == "\\""', "y"]),
        ('x == """ && """ && y', ['x == """ && """', "y"]),
        ("a && // all of it\nb", ["a", "b"]),
        ("a // first\n && b // second", ["a", "b"]),
        ("a && ", ["a && "]),
    ],
)
def test_the_conditions_of_a_selector(expression: str, conditions: list[str] | None) -> None:
    found = analyze_selector(expression).conditions
    assert [condition.text for condition in found] == conditions if conditions else len(found) == 2
    assert all(expression[condition.offset :].startswith(condition.text) for condition in found)


@pytest.mark.parametrize(
    ("expression", "drivers"),
    [
        ("true", []),
        ("device.driver == 'a'", ["a"]),
        ("'a' == device.driver && (true && device.driver == 'b')", ["a", "b"]),
        ("device.driver == 'a' || true", []),
        ("device.driver != 'a'", []),
        ("device.driver == device.driver", []),
    ],
)
def test_the_drivers_a_selector_requires(expression: str, drivers: list[str]) -> None:
    found = analyze_selector(expression).required_drivers
    assert [name for name, _ in found] == drivers
    assert all(expression[offset + 1 :].startswith(name) for name, offset in found)


@pytest.mark.parametrize(
    ("expression", "uses"),
    [
        (f"{GPU}.a == 1", {"a": {"int"}}),
        (f"1.5 <= {GPU}.a", {"a": {"int"}}),
        (f'{GPU}.a != "x"', {"a": {"string"}}),
        (f'{GPU}.a in ["x"]', {"a": {"string"}}),
        (f'{GPU}.a.startsWith("x")', {"a": {"string"}}),
        (f'{GPU}.a == semver("1.0.0")', {"a": {"version"}}),
        (f'{GPU}.a.isLessThan(semver("1.0.0"))', {"a": {"version"}}),
        (f'{GPU}.a.isLessThan(quantity("1"))', {"a": {"quantity"}}),
        (f"{GPU}.a", {"a": {"bool"}}),
        (f"!{GPU}.a || {GPU}.b && {GPU}.c", {"a": {"bool"}, "b": {"bool"}, "c": {"bool"}}),
        (f"{GPU}.a ? true : {GPU}.b", {"a": {"bool"}}),
        (f"{GPU}.a.all(x, x > 1)", {"a": {"list"}}),
        (f"{GPU}.a == {GPU}.b", {}),
        (f"{GPU}.?a.orValue(1) == 1", {}),
        (f"has({GPU}.a)", {}),
        (f'{GPU}.a.includes("x")', {}),
        (f"string({GPU}.a) == '1' && dyn({GPU}.b) == 1", None),
    ],
)
def test_the_types_a_selector_expects(expression: str, uses: dict[str, set[str]] | None) -> None:
    found = {use.reference.name: set(use.accepted_types) for use in analyze_selector(expression).typed_uses}
    if uses is None:
        assert {"int", "string", "bool"} <= found["a"]
        assert "b" not in found
    else:
        assert found == uses


@pytest.mark.parametrize(
    ("expression", "field_key"),
    [
        (f'{MEMORY}.compareTo(quantity("1Gi")) > 0', (C, D, "memory")),
        (f'{GPU}["model"] == "x" || {GPU}.model == "y"', (A, D, "model")),
        (f'"model" in {GPU}', (A, D, "model")),
        (f'{GPU}.model == "device.driver"', (A, D, "model")),
        (f"{GPU}.a == {GPU}.b", None),
        (f'{GPU}.a == 1 && device.driver == "x"', None),
        (f"{GPU}.exists(k, k == 'a')", None),
        ('device.driver == "x"', None),
        ("true", None),
        ("true &&", None),
    ],
)
def test_the_only_field_a_selector_reads(expression: str, field_key: Any) -> None:
    assert analyze_selector(expression).only_field == field_key


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f'{MEMORY} >= quantity("1Gi")', 'memory >= quantity("1Gi")'),
        ("device.attributes['x']['y'] == 1", "y == 1"),
        ("device.attributes[ 'x' ][ 'y' ] == 1", "y == 1"),
        (f"has({GPU}.a) && {GPU}.?a.orValue(1) == 1", "has(a) && a.orValue(1) == 1"),
        (f'"a" in {GPU}', f'"a" in {GPU}'),
        ('device.driver == "x"', 'device.driver == "x"'),
        (f"{GPU}.a ==", f"{GPU}.a =="),
    ],
)
def test_a_selector_with_names_in_place_of_paths(expression: str, text: str) -> None:
    assert analyze_selector(expression).short_text == text


@pytest.mark.parametrize(
    ("expression", "direction"),
    [
        (f'{MEMORY}.isGreaterThan(quantity("1Gi"))', 1),
        (f'{MEMORY}.isLessThan(quantity("1Gi"))', -1),
        (f'{MEMORY}.compareTo(quantity("1Gi")) >= 0', 1),
        (f'quantity("1Gi").compareTo({MEMORY}) <= 0', 1),
        (f'quantity("1Gi").isGreaterThan({MEMORY})', -1),
        (f"{GPU}.a < 3", -1),
        (f"3 < {GPU}.a", 1),
        (f"!({GPU}.a < 3)", 1),
        (f"{GPU}.a == 3", 0),
        (f"{GPU}.a < {GPU}.b", 0),
        (f'{GPU}.a == "a > b"', 0),
    ],
)
def test_whether_more_or_less_of_a_value_would_match(expression: str, direction: int) -> None:
    assert analyze_selector(expression).direction == direction


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        (f'{MEMORY}.compareTo(quantity("1Gi")) > 0', ['"1Gi"']),
        (f"{MEMORY}.compareTo(quantity( '1\\x47i' )) > 0", ["'1\\x47i'"]),
        (f"{GPU}.a == 'quantity(\"1Gi\")'", []),
        (f"{MEMORY}.compareTo(quantity({GPU}.a)) > 0", []),
    ],
)
def test_the_quantities_that_are_written_out(expression: str, written: list[str]) -> None:
    found = analyze_selector(expression).quantities
    assert [expression[start:end] for start, end in (one.span for one in found)] == written
    assert all(one.text == "1Gi" for one in found)
