"""Hostile input: deep, long, growing without bound. Every expression gets an answer in little time."""

from __future__ import annotations

import sys

import pytest

from dray.cel import CelProgram, CompileFault, Env, EvalFault, FaultKind
from dray.cel.syntax.node_factory import MAX_DEPTH

TOO_DEEP = f"expression recursion limit exceeded: {MAX_DEPTH}"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        "(" * 5_000 + "1" + ")" * 5_000,
        "[" * 10_000,
        "{1:" * 3_000,
        "f(" * 5_000,
        "!(" * 5_000,
        "1" + "+1" * 5_000,
        "i" + ".a" * 5_000,
        "i" + "[0]" * 3_000,
        "true?1:" * 1_400 + "1",
        "[1].map(x," * 1_000,
        "-" * 5_000 + "(" * 5_000,
    ],
    ids=lambda text: text[:12],
)
def test_nesting_is_refused_and_does_not_exhaust_the_stack(env: Env, text: str):
    fault = env.compile(text)
    assert isinstance(fault, CompileFault)
    assert fault.issues[0].message == TOO_DEEP


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(" * 240 + "1" + ")" * 240, 1),
        ("!" * 9_001 + "true", False),
        ("-" * 9_000 + "(1)", 1),
        (" && ".join(["true"] * 210), True),
        (" || ".join(["false"] * 2_000), False),
        ("1" + " + 1" * 240, 241),
        ("[" * 200 + "]" * 200 + ".size()", 1),
        (f'"{"x" * 5_000}".size()', 5_000),
        (f"[{', '.join(['1'] * 3_000)}].size()", 3_000),
        (f"{'size([' * 60}{'])' * 60}", 1),
    ],
    ids=lambda value: str(value)[:16],
)
def test_long_but_reasonable_expressions_work(env: Env, text: str, value: object):
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    assert program.evaluate({}) == value


def test_the_deepest_expression_fits_the_stack_of_the_host(env: Env):
    """The deepest expression there can be, compiled and evaluated with half of the usual stack."""
    deep = "[1].map(x, " * 60 + "x" + ")" * 60
    depth = len(deep) and sys.getrecursionlimit()
    frame, used = sys._getframe(), 0
    while frame.f_back is not None:
        frame, used = frame.f_back, used + 1
    sys.setrecursionlimit(used + 600)
    try:
        program = env.compile(deep)
        assert isinstance(program, CelProgram)
        assert not isinstance(program.evaluate({}), EvalFault)
        assert program.cost > 0
    finally:
        sys.setrecursionlimit(depth)


def nested(count: int, name: str, start: str, grow: str) -> str:
    """`cel.bind(a0, start, cel.bind(a1, grow of a0, … a<count>.size() > 0))`"""
    text = f"{name.format(count)}.size() > 0"
    for number in range(count, 0, -1):
        text = f"cel.bind({name.format(number)}, {grow.format(name.format(number - 1))}, {text})"
    return f"cel.bind({name.format(0)}, {start}, {text})"


@pytest.mark.parametrize(
    "text",
    [
        nested(60, "a{}", '"xxxxxxxxxx"', "{0} + {0}"),
        nested(60, "a{}", "[1]", "{0} + {0}"),
        nested(60, "a{}", 'b"xx"', "{0} + {0}"),
        nested(20, "a{}", '"xxxxxxxxxx"', '{0}.replace("", {0})'),
        nested(30, "a{}", '["xxxxxxxxxx"]', '[{0}.join("yyyyyyyyyyyyyyy"), {0}.join("z")] + {0}'),
        nested(30, "a{}", "[1, 2]", "{0}.map(x, {0}).flatten()"),
        "lists.range(9223372036854775807).size() > 0",
        "lists.range(1000000).map(x, lists.range(1000000)).size() > 0",
        "lists.range(1000).all(x, lists.range(1000).all(y, lists.range(1000).all(z, x + y + z >= 0)))",
    ],
    ids=lambda text: text[:48],
)
def test_growth_ends_with_the_budget(env: Env, text: str):
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    fault = program.evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.BUDGET


def test_values_that_share_parts_are_not_unfolded(env: Env):
    """Forty levels of `[a, a]` are small in memory and enormous when walked over."""
    text = nested(40, "a{}", "[1]", "[{0}, {0}]").replace("a40.size() > 0", "a40 == a40")
    program = env.compile(text)
    assert isinstance(program, CelProgram)
    fault = program.evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.BUDGET


def test_types_that_share_parts_are_refused(env: Env):
    text = nested(40, "a{}", '{"k": 1}', "{{{0}: {0}}}")
    assert isinstance(env.compile(text), CompileFault)


def test_a_macro_that_mentions_its_target_twice_does_not_double(env: Env):
    text = "optional.of(1)" + ".optMap(x, x + 1)" * 60 + ".value()"
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    assert program.cost > 10**18
    fault = program.evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.BUDGET


def test_patterns_take_linear_time(env: Env):
    program = env.compile('text.matches("^(a|a|a|(a+)+)+$")')
    assert isinstance(program, CelProgram)
    assert program.evaluate({"text": "a" * 5_000 + "!"}) is False


@pytest.mark.parametrize(
    "text",
    ["'''\\" * 2_500, '"' * 10_001, "r'''" * 2_500, "/" * 10_001, "0x" * 5_000, "1e" * 5_000, "\\" * 10_000],
    ids=repr,
)
def test_unclosed_quotes_and_garbage_are_scanned_once(env: Env, text: str):
    assert isinstance(env.compile(text), CompileFault)


def test_numbers_with_many_digits(env: Env):
    assert isinstance(env.compile("9" * 5_000), CompileFault)
    program = env.compile(f'int("{"9" * 5_000}" + "") == 0')
    assert isinstance(program, CelProgram)
    fault = program.evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.ERROR


def test_half_a_surrogate_pair_is_a_character_like_any_other(env: Env):
    program = env.compile(
        'text.size() == 1 && bytes(text).size() > 0 && !text.matches("^a$") && text.findAll("b") == []'
    )
    assert isinstance(program, CelProgram)
    assert program.evaluate({"text": "\ud800"}) is True
    assert isinstance(env.compile("'\ud800' == text"), CelProgram)


@pytest.mark.parametrize(
    "text",
    [
        "text.__class__ == 1",
        "text.format.__globals__ == 1",
        "i.real == 3",
        'mixed["__class__"] == 1',
        "words.count(1) == 1",
        "thing.__dict__ == 1",
        "has(text.__class__)",
        "d.numerator == 3",
    ],
)
def test_nothing_of_the_host_can_be_reached(env: Env, text: str, values: dict[str, object]):
    compiled = env.compile(text)
    if isinstance(compiled, CelProgram):
        fault = compiled.evaluate(values)
        assert isinstance(fault, EvalFault)
        assert fault.kind is FaultKind.ERROR
        assert fault.message.startswith("no such key: ")
    else:
        assert "internal" not in str(compiled)


ROUNDS = "lists.range(3000).all(r, lists.range(3000).all(q, {}))"
NUMBERS = "cel.bind(l, dyn(lists.range(30000)), {})"
NESTED = "cel.bind(l, lists.range(300).map(x, [[x]]), {})"
TEXT = 'cel.bind(t, lists.range(9000).map(x, "abcdefghij").join(), {})'


@pytest.mark.parametrize(
    "text",
    [
        NUMBERS.format(ROUNDS.format("!(-1 in l)")),
        NUMBERS.format(ROUNDS.format("(l + l).size() > 0")),
        NESTED.format(ROUNDS.format("l == l")),
        NESTED.format(ROUNDS.format("!([[-1]] in l)")),
        NESTED.format(ROUNDS.format("l.flatten().size() > 0")),
        NESTED.format(ROUNDS.format('"%s".format([l]).size() > 0')),
        TEXT.format(ROUNDS.format('!matches(t, "z")')),
        TEXT.format(ROUNDS.format("!isURL(t)")),
        TEXT.format(ROUNDS.format('t.replace("", t).size() > 0')),
        ROUNDS.format('!"".matches("\\\\pL{16}" + string(q))'),
        "lists.range(30000).distinct().size() > 0",
        "lists.range(30000).sort().size() > 0",
    ],
    ids=lambda text: text[-40:],
)
def test_expensive_calls_end_with_the_budget(env: Env, text: str):
    """Kubernetes charges one for each of these, however long they take; here they end with the budget."""
    program = env.compile(text)
    assert isinstance(program, CelProgram), str(program)
    fault = program.evaluate({})
    assert isinstance(fault, EvalFault)
    assert fault.kind is FaultKind.BUDGET
