"""Patterns: the semantics of RE2 through pyre2, and what happens without it."""

from __future__ import annotations

import sys

import pytest

from dray.cel import CelProgram, CompileFault, Env, EvalFault
from dray.cel.faults import CelError
from dray.cel.library import STANDARD_LIBRARIES
from dray.cel.regex import ENGINE_MISSING_MESSAGE, MAX_PROGRAM_SIZE, compile_pattern, estimate_program_size
from tests.unit.cel.conftest import VALUES


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    compile_pattern.cache_clear()
    yield
    compile_pattern.cache_clear()


def test_without_the_engine_only_patterns_fail(no_engine: None):
    env = Env((), STANDARD_LIBRARIES)
    program = env.compile('"abc".startsWith("a")')
    assert isinstance(program, CelProgram)
    assert program.evaluate({}) is True


def test_without_the_engine_a_pattern_says_what_is_missing(no_engine: None):
    env = Env((), STANDARD_LIBRARIES)
    fault = env.compile('"abc".matches("b")')
    assert isinstance(fault, CompileFault)
    assert ENGINE_MISSING_MESSAGE in str(fault)
    program = env.compile('"abc".matches("b" + "c")')
    assert isinstance(program, CelProgram)
    late = program.evaluate(VALUES)
    assert isinstance(late, EvalFault)
    assert late.message == ENGINE_MISSING_MESSAGE


@pytest.mark.parametrize(
    "refused",
    ["(", "a**", "a++", "(?=a)", "(?!a)", "(a)\\1", "a{1001}", "\\Z", "\\C", "\\x{110000}", "a\\", "[b-a]"],
)
def test_what_go_refuses_is_refused(refused: str):
    with pytest.raises(CelError, match="error parsing regexp"):
        compile_pattern(refused)


@pytest.mark.parametrize(
    "heavy",
    [
        "\\pL{1000}",
        "(\\pL{30}){30}",
        "((a{100}){100}){2}",
        "[\\pL\\pN]{20}",
        "(a{2,1000}){10}",
        "(?:.{999,}){9}",
    ],
)
def test_patterns_that_take_long_to_compile_are_rejected(heavy: str):
    assert estimate_program_size(heavy) > MAX_PROGRAM_SIZE
    with pytest.raises(CelError, match="expression too large"):
        compile_pattern(heavy)


@pytest.mark.parametrize(
    "light",
    [
        "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.[a-z]{2,63})*",
        "\\pL{16}",
        "[a-z]{999}",
        "(a|b|c)+",
        "^.{0,64}$",
        "(" * 9,
    ],
)
def test_common_patterns_are_small_enough(light: str):
    assert estimate_program_size(light) <= MAX_PROGRAM_SIZE


@pytest.mark.parametrize(
    ("text", "wanted", "found"),
    [
        ("\\x{41}\\x{5d}", "A]", True),
        ("[\\x{41}\\]]+", "A]", True),
        ("\\Q(\\E\\)", "()", True),
        ("\\Q[", "[", True),
        ("\\d", "٣", False),
        ("\\s", "\u00a0", False),
        ("\\bfoo\\b", "a foo b", True),
        ("(?s)a.b", "a\nb", True),
        ("a.b", "a\nb", False),
        ("^b", "a\nb", False),
        ("(?m)^b", "a\nb", True),
        ("b$", "ab\n", False),
        ("\\x41\\101", "AA", True),
        ("", "", True),
    ],
)
def test_patterns_mean_what_they_mean_in_go(text: str, wanted: str, found: bool):
    assert compile_pattern(text).matches(wanted) is found
