"""Environments and programs: they return values and faults, and raise nothing."""

from __future__ import annotations

import pytest

from dray.cel import (
    CelProgram,
    CompileFault,
    CompileStage,
    Env,
    EvalFault,
    FaultKind,
    MeasuredResult,
    Variable,
)
from dray.cel import types as t
from dray.cel.cost.size_bounds import SizeBound
from dray.cel.declarations import declare_function, declare_overload
from dray.cel.library import STANDARD_LIBRARIES
from tests.unit.cel.conftest import VALUES


def compiled(env: Env, text: str) -> CelProgram:
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    return program


def test_a_program_has_a_type(env: Env):
    assert compiled(env, "1 + 2").type == t.INT
    assert str(compiled(env, '{"a": [1.5]}').type) == "map(string, list(double))"
    assert str(compiled(env, "[]").type) == "list(dyn)"


def test_values_are_returned_unchanged(env: Env):
    assert compiled(env, '[1, 2].map(x, {"n": x})').evaluate({}) == ({"n": 1}, {"n": 2})


def test_the_same_text_is_compiled_once(env: Env):
    assert env.compile("1 + 41") is env.compile("1 + 41")


def test_a_variable_without_a_value_is_a_fault(env: Env):
    fault = compiled(env, "i == 1").evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.ERROR
    assert fault.message == "no such attribute(s): i"


def test_faults_are_shown_like_those_of_cel_go(env: Env):
    fault = env.compile("true &&\n  nope == text + 1")
    assert isinstance(fault, CompileFault)
    assert str(fault) == (
        "ERROR: <input>:2:3: undeclared reference to 'nope' (in container '')\n"
        " |   nope == text + 1\n"
        " | ..^\n"
        "ERROR: <input>:2:16: found no matching overload for '_+_' applied to '(string, int)'\n"
        " |   nope == text + 1\n"
        " | ...............^"
    )


def test_columns_count_code_points(env: Env):
    fault = env.compile('"日本" + 1')
    assert isinstance(fault, CompileFault)
    assert str(fault).endswith(' | "日本" + 1\n | .．．..^')


def test_a_constant_that_can_only_fail_is_found_when_planning(env: Env):
    fault = env.compile('int("x") == 1')
    assert isinstance(fault, CompileFault)
    assert fault.stage is CompileStage.PLAN
    assert str(fault) == "type conversion error from 'string' to 'int'"


def test_evaluating_stops_when_the_budget_is_spent(env: Env):
    program = compiled(env, "[1, 2, 3].all(x, [1, 2, 3].all(y, x * y > 0))")
    whole = program.measure({})
    assert whole.result is True
    assert program.evaluate({}, cost_limit=whole.cost) is True
    stopped = program.measure({}, cost_limit=whole.cost - 1)
    assert isinstance(stopped.result, EvalFault)
    assert stopped.result.kind is FaultKind.BUDGET
    assert stopped.result.message == "operation cancelled: actual cost limit exceeded"
    assert stopped.cost == whole.cost


def test_a_spent_budget_is_not_absorbed(env: Env):
    program = compiled(env, "[1, 2, 3].all(x, x > 0) || true")
    fault = program.evaluate({}, cost_limit=3)
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.BUDGET


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("1", 0),
        ("i", 1),
        ("i + i", 3),
        ("mixed.inner.x", 3),
        ('text == "Hello"', 2),
        ('text + text == ""', 5),
        ("[i, i] == [3, 3]", 13),
        ('{"a": i} == {"a": 3}', 32),
        ("true ? i : 0", 0),
        ("has(mixed.inner.x)", 2),
        ("words.exists(w, w == 'b')", 14),
        ("cel.bind(x, i + i, x * x)", 6),
        ("d in [1, 2, 3]", 1),
        ("mixed.?nope.orValue(1)", 1),
        ('text.matches("^H.*d$")', 5),
        ("[3, 1, 2].sort()", 29),
    ],
)
def test_what_an_evaluation_costs(env: Env, text: str, cost: int):
    assert compiled(env, text).measure(VALUES).cost == cost


def test_an_error_costs_as_much_as_its_call(env: Env):
    assert compiled(env, "mixed.nope == 1").measure(VALUES).cost == 3
    assert compiled(env, "mixed.nope + i").measure(VALUES).cost == 4
    assert compiled(env, "i + mixed.nope").measure(VALUES).cost == 4
    assert compiled(env, "mixed.nope.x.y").measure(VALUES).cost == 2


def test_size_bounds_limit_the_worst_case():
    small = Variable("s", t.STRING, SizeBound(10))
    listed = Variable("l", t.make_list_type(t.STRING), SizeBound(5, values=SizeBound(10)))
    env = Env((small, listed, Variable("free", t.STRING)), STANDARD_LIBRARIES)
    assert compiled(env, 's == "aaaaaaaaaaaaaaaaaaaa"').cost == 2
    assert compiled(env, 's + s == ""').cost == 4
    assert compiled(env, 'l.all(x, x == "a")').cost == 1 + 5 * (3 + 2) + 1
    assert compiled(env, "free.contains(free)").cost == 2**64 - 1


def test_an_environment_has_only_declared_functions():
    bare = Env((), ())
    assert isinstance(bare.compile("1 + 1"), CompileFault)
    twice = declare_function("twice", declare_overload("twice_int", (t.INT,), t.INT, lambda value: value * 2))
    own = Env((Variable("n", t.INT),), ((twice,),))
    assert compiled(own, "twice(n)").evaluate({"n": 21}) == 42


def test_a_bug_in_a_function_is_a_fault():
    broken = declare_function(
        "broken", declare_overload("broken_int", (t.INT,), t.INT, lambda value: value.nope)
    )
    env = Env((), ((broken,),))
    fault = compiled(env, "broken(1)").evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.INTERNAL


def test_measured_is_a_value():
    assert MeasuredResult(True, 3) == MeasuredResult(True, 3)
