"""Which paths of a variable an expression reads, and which text it requires first."""

from __future__ import annotations

import pytest

from dray.cel import CelProgram, Env, PathRead, Variable
from dray.cel import types as t
from dray.cel.library import STANDARD_LIBRARIES
from dray.cel.syntax.variable_reads import RequiredText

THING = t.Type(t.TypeKind.STRUCT, "test.Thing")
ENV = Env(
    (Variable("it", THING), Variable("other", t.make_map_type(t.STRING, t.DYN))),
    STANDARD_LIBRARIES,
    {"test.Thing": {"name": t.STRING, "maps": t.make_map_type(t.STRING, t.make_map_type(t.STRING, t.DYN))}},
)
NAME = PathRead(("name",))
A_B = PathRead(("maps", "a", "b"))

READS = {
    "true": [],
    'it.name == "x"': [NAME],
    'it.maps["a"].b == 1 && it.name.startsWith("x")': [A_B, NAME],
    'it.maps["a"]["b"] == 1 || it.maps.a.b == 2': [A_B],
    "has(it.maps.a.b)": [PathRead(("maps", "a", "b"), is_presence_test=True)],
    '"b" in it.maps["a"]': [PathRead(("maps", "a", "b"), is_presence_test=True)],
    '"a" in it.maps': [PathRead(("maps", "a"), is_presence_test=True)],
    "has(it.name)": [PathRead(("name",), is_presence_test=True)],
    'it.maps["a"].b[0] == 1': [A_B],
    'it.maps["a"].b[int(it.name)] == 1': [A_B, NAME],
    'it.maps["a"].b.exists(one, one == it.name)': [A_B, NAME],
    'it.maps["a"].b.exists(one, it.maps["a"].b == one)': [A_B],
    'cel.bind(one, it.maps["a"].b, one == one)': [A_B],
    'it.maps["a"].b in [1, 2]': [A_B],
    '[it.maps["a"].b] == [{it.name: 1}.size()]': [A_B, NAME],
    'it.maps["a"].b ? it.name == "x" : false': [A_B, NAME],
    'other["x"] == it.name': [NAME],
    "it.maps.size() == 1": [PathRead(("maps",))],
    "it.maps[it.name].b == 1": [PathRead(("maps",)), NAME],
    'it.maps["a"].exists(key, key == "b")': [PathRead(("maps", "a"))],
    'it.name in it.maps["a"]': [NAME, PathRead(("maps", "a"))],
    'type(it.maps["a"].b) == string': [A_B],
    'it.maps[?"a"].hasValue()': [PathRead(("maps",))],
    'it.maps["a"].?b.hasValue()': [PathRead(("maps", "a"))],
}
ANYTHING = {
    "it == it": "the variable as a whole",
    "[1].exists(it, it == 1)": "the name of the variable with another meaning",
    "optional.of(1).optMap(it, it == 1).hasValue()": "the name of the variable with another meaning",
    "[it].size() == 1": "the variable inside of a list",
}
DEMANDED = {
    'it.name == "x"': RequiredText(("name",), "x", is_only_condition=True),
    'it.name == "x" && it.maps["a"].b == 1': RequiredText(("name",), "x", is_only_condition=False),
    '(it.name == "x" && true) && it.maps["a"].b == 1': RequiredText(("name",), "x", is_only_condition=False),
    'it.maps["a"].b == "x"': RequiredText(("maps", "a", "b"), "x", is_only_condition=True),
    'it.maps["a"].b == 1 && it.name == "x"': None,
    'it.name == "x" || true': None,
    '!(it.name == "x")': None,
    'it.name != "x"': None,
    'it.name == other["x"]': None,
    'other["x"] == "x"': None,
    'it.maps["a"].b[0] == "x"': None,
    "true": None,
}


def compiled(expression: str) -> CelProgram:
    program = ENV.compile(expression)
    assert isinstance(program, CelProgram), str(program)
    return program


@pytest.mark.parametrize("expression", READS)
def test_an_expression_reads_only_its_paths_of_fixed_keys(expression):
    assert compiled(expression).variable_reads.find_reads("it") == frozenset(READS[expression])


@pytest.mark.parametrize("expression", ANYTHING)
def test_an_expression_may_read_anything(expression):
    assert compiled(expression).variable_reads.find_reads("it") is None


@pytest.mark.parametrize("expression", DEMANDED)
def test_a_text_is_required_where_it_is_tested_first(expression):
    assert compiled(expression).variable_reads.find_required_text("it") == DEMANDED[expression]
