"""Reading a selector."""

from __future__ import annotations

from typing import Any

import pytest

from dray.lint.selectors.analysis import ATTRIBUTES, CAPACITY, analyze_selector
from tests.unit.lint.devices import GPU

A, C, D = ATTRIBUTES, CAPACITY, "gpu.example.com"


@pytest.mark.parametrize(
    ("expression", "needs"),
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
def test_what_a_selector_looks_at(expression: str, needs: set[Any]) -> None:
    assert analyze_selector(expression).field_keys == needs


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
def test_where_a_name_is_written(expression: str, written: list[str]) -> None:
    found = [expression[reference.name_offset :] for reference in analyze_selector(expression).references]
    assert [text.startswith(start) for text, start in zip(found, written, strict=True)] == [True] * len(found)


@pytest.mark.parametrize(
    ("expression", "terms"),
    [
        ("true", ["true"]),
        (" true && ( false && true )\n&& 'a && b' == '' ", ["true", "( false && true )", "'a && b' == ''"]),
        ("true && false || true", ["true && false || true"]),
        ("true && false ? true && true : false", ["true && false ? true && true : false"]),
        ("[true].all(x, x && true) && {'a': true && true}['a']", None),
    ],
)
def test_the_conditions_of_a_selector(expression: str, terms: list[str] | None) -> None:
    found = analyze_selector(expression).conditions
    assert [term.text for term in found] == terms if terms else len(found) == 2
    assert all(expression[term.offset :].startswith(term.text) for term in found)


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
def test_the_drivers_a_selector_demands(expression: str, drivers: list[str]) -> None:
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
def test_the_types_a_selector_takes(expression: str, uses: dict[str, set[str]] | None) -> None:
    found = {use.reference.name: set(use.accepted_types) for use in analyze_selector(expression).typed_uses}
    if uses is None:
        assert {"int", "string", "bool"} <= found["a"]
        assert "b" not in found
    else:
        assert found == uses
