"""Patterns: RE2's meaning through pyre2, and what happens without it."""

from __future__ import annotations

import sys

import pytest

from dray.cel import CompileFault, Env, EvalFault, Program
from dray.cel.faults import CelError
from dray.cel.library import STANDARD
from dray.cel.regex import MAX_HEFT, MISSING, heft, pattern
from tests.unit.cel.conftest import VALUES


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    pattern.cache_clear()
    yield
    pattern.cache_clear()


def test_without_the_engine_only_patterns_fail(no_engine: None):
    env = Env((), STANDARD)
    program = env.compile('"abc".startsWith("a")')
    assert isinstance(program, Program)
    assert program.evaluate({}) is True


def test_without_the_engine_a_pattern_says_what_is_missing(no_engine: None):
    env = Env((), STANDARD)
    fault = env.compile('"abc".matches("b")')
    assert isinstance(fault, CompileFault)
    assert MISSING in str(fault)
    program = env.compile('"abc".matches("b" + "c")')
    assert isinstance(program, Program)
    late = program.evaluate(VALUES)
    assert isinstance(late, EvalFault)
    assert late.message == MISSING


@pytest.mark.parametrize(
    "refused",
    ["(", "a**", "a++", "(?=a)", "(?!a)", "(a)\\1", "a{1001}", "\\Z", "\\C", "\\x{110000}", "a\\", "[b-a]"],
)
def test_what_go_refuses_is_refused(refused: str):
    with pytest.raises(CelError, match="error parsing regexp"):
        pattern(refused)


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
def test_what_takes_long_to_compile_is_refused_at_once(heavy: str):
    assert heft(heavy) > MAX_HEFT
    with pytest.raises(CelError, match="expression too large"):
        pattern(heavy)


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
def test_what_people_write_is_light(light: str):
    assert heft(light) <= MAX_HEFT


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
    assert pattern(text).found_in(wanted) is found
