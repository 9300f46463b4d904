"""What an expression reads of a variable, and which text it demands before anything else."""

from __future__ import annotations

import pytest

from dray.cel import Env, Program, Read, Variable
from dray.cel import types as t
from dray.cel.library import STANDARD
from dray.cel.syntax.variable_reads import Demanded

THING = t.Type(t.Kind.STRUCT, "test.Thing")
ENV = Env(
    (Variable("it", THING), Variable("other", t.map_of(t.STRING, t.DYN))),
    STANDARD,
    {"test.Thing": {"name": t.STRING, "maps": t.map_of(t.STRING, t.map_of(t.STRING, t.DYN))}},
)
NAME = Read(("name",))
A_B = Read(("maps", "a", "b"))

READS = {
    "true": [],
    'it.name == "x"': [NAME],
    'it.maps["a"].b == 1 && it.name.startsWith("x")': [A_B, NAME],
    'it.maps["a"]["b"] == 1 || it.maps.a.b == 2': [A_B],
    "has(it.maps.a.b)": [Read(("maps", "a", "b"), presence=True)],
    '"b" in it.maps["a"]': [Read(("maps", "a", "b"), presence=True)],
    '"a" in it.maps': [Read(("maps", "a"), presence=True)],
    "has(it.name)": [Read(("name",), presence=True)],
    'it.maps["a"].b[0] == 1': [A_B],
    'it.maps["a"].b[int(it.name)] == 1': [A_B, NAME],
    'it.maps["a"].b.exists(one, one == it.name)': [A_B, NAME],
    'it.maps["a"].b.exists(one, it.maps["a"].b == one)': [A_B],
    'cel.bind(one, it.maps["a"].b, one == one)': [A_B],
    'it.maps["a"].b in [1, 2]': [A_B],
    '[it.maps["a"].b] == [{it.name: 1}.size()]': [A_B, NAME],
    'it.maps["a"].b ? it.name == "x" : false': [A_B, NAME],
    'other["x"] == it.name': [NAME],
    "it.maps.size() == 1": [Read(("maps",))],
    "it.maps[it.name].b == 1": [Read(("maps",)), NAME],
    'it.maps["a"].exists(key, key == "b")': [Read(("maps", "a"))],
    'it.name in it.maps["a"]': [NAME, Read(("maps", "a"))],
    'type(it.maps["a"].b) == string': [A_B],
    'it.maps[?"a"].hasValue()': [Read(("maps",))],
    'it.maps["a"].?b.hasValue()': [Read(("maps", "a"))],
}
ANYTHING = {
    "it == it": "the variable as a whole",
    "[1].exists(it, it == 1)": "the name of the variable with another meaning",
    "optional.of(1).optMap(it, it == 1).hasValue()": "the name of the variable with another meaning",
    "[it].size() == 1": "the variable inside of a list",
}
DEMANDED = {
    'it.name == "x"': Demanded(("name",), "x", alone=True),
    'it.name == "x" && it.maps["a"].b == 1': Demanded(("name",), "x", alone=False),
    '(it.name == "x" && true) && it.maps["a"].b == 1': Demanded(("name",), "x", alone=False),
    'it.maps["a"].b == "x"': Demanded(("maps", "a", "b"), "x", alone=True),
    'it.maps["a"].b == 1 && it.name == "x"': None,
    'it.name == "x" || true': None,
    '!(it.name == "x")': None,
    'it.name != "x"': None,
    'it.name == other["x"]': None,
    'other["x"] == "x"': None,
    'it.maps["a"].b[0] == "x"': None,
    "true": None,
}


def compiled(expression: str) -> Program:
    program = ENV.compile(expression)
    assert isinstance(program, Program), str(program)
    return program


@pytest.mark.parametrize("expression", READS)
def test_paths_of_fixed_words_are_all_that_is_read(expression):
    assert compiled(expression).reading.reads("it") == frozenset(READS[expression])


@pytest.mark.parametrize("expression", ANYTHING)
def test_an_expression_may_read_anything(expression):
    assert compiled(expression).reading.reads("it") is None


@pytest.mark.parametrize("expression", DEMANDED)
def test_a_text_is_demanded_where_it_is_tested_first(expression):
    assert compiled(expression).reading.demanded("it") == DEMANDED[expression]
