"""A short run of the fuzzer with every test run; the long one is `python -m tests.fuzz_cel`."""

from __future__ import annotations

import random

import pytest

from dray.api.devices.device_cel import build_environment
from dray.cel import CompileFault, CompileStage, EvalFault, FaultKind
from tests.fuzz_cel import compare, oracle
from tests.fuzz_cel.expressions import DOMAIN, Expressions

_SIGNS = ". .? [ ] [? ( ) { } {? , : ? && || ! - + * / % == != < <= > >="
_WORDS = "device attributes capacity driver x y size has all exists exists_one map filter cel bind"
_CALLS = "optional of none orValue optMap matches quantity semver int string dyn type lists range format in"
_LITERALS = "1 2u 1.5 0x 'a' b'c' true false null"
PIECES = (
    *" ".join((_SIGNS, _WORDS, _CALLS, _LITERALS)).split(),
    *('"b"', 'r"\\d"', "'''", '"""', "\\", "#", "$", "//", "\n", "é", "日", "\ud800"),
)
_CHARACTERS = "()[]{}.,?:!&|<>=+-*/%'\"\\ abdevic0123456789.eExuU_\n"


def soup(chance: random.Random) -> str:
    """Tokens in any order, or characters in any order, or a good expression with a piece cut out."""
    kind = chance.random()
    if kind < 0.5:
        return " ".join(chance.choices(PIECES, k=chance.randint(1, 60)))
    if kind < 0.7:
        return "".join(chance.choices(_CHARACTERS, k=chance.randint(1, 200)))
    text = Expressions(chance.randrange(2**32)).selector()
    start = chance.randrange(len(text))
    return text[:start] + chance.choice(("", *PIECES)) + text[start + chance.randint(0, 9) :]


def test_no_text_crashes_the_compiler_or_its_programs():
    chance = random.Random(20_260_801)
    env = build_environment(sharing=True, lists=True)
    value = compare.device().value
    for _ in range(5_000):
        text = soup(chance)
        compiled = env.compile(text)
        if isinstance(compiled, CompileFault):
            assert compiled.stage is not CompileStage.INTERNAL, text
            assert str(compiled)
            continue
        result = compiled.evaluate({"device": value}, cost_limit=100_000)
        assert not (isinstance(result, EvalFault) and result.kind is FaultKind.INTERNAL), text
        assert compiled.cost >= 0


def test_no_valid_expression_crashes_the_engine():
    expressions, device = Expressions(7), compare.device()
    for _ in range(2_000):
        text = expressions.selector()
        assert not compare.answer(text, device).broken, text


@pytest.mark.skipif(not oracle.is_installed(), reason=f"no second implementation: {oracle.INSTALL}")
def test_the_oracle_agrees():
    expressions, second, device = Expressions(11), compare.oracle(), compare.device()
    for _ in range(1_000):
        text = expressions.selector()
        ours, theirs = compare.answer(text, device), second.ask(text)
        assert compare.fault(text, ours, theirs) is None, f"{text}\n{ours}\n{theirs}"


def test_the_same_seed_gives_the_same_expressions():
    assert [Expressions(3).selector() for _ in range(3)] == [Expressions(3).selector() for _ in range(3)]
    assert DOMAIN in "".join(Expressions(5).selector() for _ in range(50))
