"""The language and its libraries as tables: what is true, what fails when it runs, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.cel import CelProgram, CompileFault, Env, EvalFault, FaultKind
from tests.tables import table
from tests.unit.cel.conftest import VALUES

HERE = Path(__file__).parent
HOLDS = table(HERE / "holds.yaml")
FAILS = table(HERE / "fails.yaml")
REFUSED = table(HERE / "refused.yaml")


@pytest.mark.parametrize("text", [text for group in HOLDS.values() for text in group])
def test_expression_is_true(env: Env, text: str):
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    assert program.evaluate(VALUES) is True


@pytest.mark.parametrize(("text", "words"), FAILS)
def test_expression_fails_at_run_time(env: Env, text: str, words: str):
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    fault = program.evaluate(VALUES)
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.ERROR
    assert words in fault.message


@pytest.mark.parametrize(("text", "words"), FAILS)
def test_a_fault_has_a_position(env: Env, text: str, words: str):
    program = env.compile(text)
    assert isinstance(program, CelProgram)
    fault = program.evaluate(VALUES)
    assert isinstance(fault, EvalFault)
    assert fault.position is not None
    assert fault.position.line == 1
    assert 1 <= fault.position.column <= len(text)


@pytest.mark.parametrize(("text", "place", "words"), REFUSED)
def test_expression_does_not_compile(env: Env, text: str, place: str, words: str):
    fault = env.compile(text)
    assert isinstance(fault, CompileFault)
    assert words in str(fault)
    assert f"{fault.position.line}:{fault.position.column}" == place


# Where Kubernetes itself charges more than its worst case: formats with long patterns, and fields of `dyn`.
_DEARER = ("named_formats", "index_and_fields")


@pytest.mark.parametrize(
    "text", [text for name, group in HOLDS.items() if name not in _DEARER for text in group]
)
def test_the_worst_case_is_not_exceeded(env: Env, text: str):
    program = env.compile(text)
    assert isinstance(program, CelProgram)
    assert program.measure(VALUES).cost <= program.cost
