"""Macros at run time: `all`, `exists`, `map`, `filter` and the others, `cel.bind`, `optMap`.

Theory of operation: each macro runs as a Python loop, and charges what the loop of the specification would
cost: so much for the condition, so much for the accumulator, the predicate for itself. Quantifiers absorb
errors like `&&` and `||`: one item may settle the matter although another failed. The budget is checked in
every round. `cel.bind` evaluates its value when the name is first read, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from dray.cel.cost.call_costs import IDENT, LIST
from dray.cel.evaluation.frame import COST, UNSET, Frame, Plan, Planner, Step, placed, spend
from dray.cel.faults import CelError, no_such_overload
from dray.cel.library.optionals import value_of
from dray.cel.syntax.ast import Fold, FoldKind, OptionalMap
from dray.cel.values import MAPS, NONE, Optional, Value, items, key_of, pairs, type_names, within

_CALL: Final = 1
# `@not_strictly_false(accu)`, and the accumulator in `accu && predicate`.
_ALL_TEST: Final = IDENT + _CALL
_ALL_ROUND: Final = _ALL_TEST + IDENT
# The same with `!accu` in the test.
_EXISTS_TEST: Final = IDENT + 2 * _CALL
_EXISTS_ROUND: Final = _EXISTS_TEST + IDENT
# `accu + [made]`, `insert(accu, key, made)`, `insert(accu, made)`.
_LIST_ROUND: Final = IDENT + LIST + _CALL
_MAP_ROUND: Final = 2 * IDENT + _CALL
_ENTRIES_ROUND: Final = IDENT + _CALL

Rounds = Callable[[Frame], Iterator[None]]


def plan_fold(planner: Planner, node: Fold) -> Plan:
    """The plan of a macro."""
    if node.kind is FoldKind.BIND:
        return _bind(planner, node)
    source = planner.plan(node.source).run
    slots = [planner.bind(name) for name in node.names]
    rounds = _rounds(source, slots, node.source.offset)
    test = None if node.test is None else planner.plan(node.test).run
    made = None if node.made is None else planner.plan(node.made).run
    for name in reversed(node.names):
        planner.unbind(name)
    if node.kind in _QUANTIFIERS:
        assert test is not None
        return Plan(_QUANTIFIERS[node.kind](rounds, test, node.offset))
    assert made is not None
    kept = _kept(rounds, test, node.offset)
    if node.kind is FoldKind.LIST:
        return Plan(_list(kept, made))
    if node.kind is FoldKind.MAP:
        return Plan(_map(kept, made, slots[0]))
    return Plan(_entries(kept, made, node.offset))


def _rounds(source: Step, slots: list[int], offset: int) -> Rounds:
    """One round for each item, with the names set; the budget is checked before each."""
    walk: Callable[[Value], Iterator[Any]] = items if len(slots) == 1 else pairs

    def rounds(frame: Frame) -> Iterator[None]:
        value = source(frame)
        try:
            walked = walk(value)
        except CelError as error:
            raise placed(error, offset) from None
        for item in walked:
            if len(slots) == 1:
                frame[slots[0]] = item
            else:
                frame[slots[0]], frame[slots[1]] = item
            spend(frame, 0)
            yield

    return rounds


def _kept(rounds: Rounds, test: Step | None, offset: int) -> Rounds:
    """The rounds in which the test holds."""
    if test is None:
        return rounds

    def kept(frame: Frame) -> Iterator[None]:
        for _ in rounds(frame):
            value = test(frame)
            if value is True:
                yield
            elif value is not False:
                raise placed(no_such_overload(), offset)

    return kept


# --- quantifiers ---


def _quantifier(settling: bool) -> Callable[[Rounds, Step, int], Step]:
    """`exists` is settled by the first true, `all` by the first false."""
    each, test_again = (_EXISTS_ROUND, _EXISTS_TEST) if settling else (_ALL_ROUND, _ALL_TEST)

    def make(rounds: Rounds, test: Step, offset: int) -> Step:
        def quantifier(frame: Frame) -> bool:
            fault: CelError | None = None
            walk = rounds(frame)
            for _ in walk:
                frame[COST] += each
                try:
                    value: object = test(frame)
                except CelError as error:
                    fault = fault or error
                    continue
                if value is settling:
                    # The loop notices at its next test that it is over, if there is a next item.
                    frame[COST] += IDENT + (test_again if next(walk, UNSET) is None else 0)
                    return settling
                if type(value) is not bool:
                    fault = fault or placed(no_such_overload(), offset)
            frame[COST] += IDENT
            if fault is not None:
                raise fault
            return not settling

        return quantifier

    return make


def _exists_one(rounds: Rounds, test: Step, offset: int) -> Step:
    def exists_one(frame: Frame) -> bool:
        fault: CelError | None = None
        count = 0
        for _ in rounds(frame):
            try:
                value = test(frame)
            except CelError as error:
                fault = fault or error
                continue
            if value is True:
                count += 1
                frame[COST] += IDENT + _CALL
            elif value is not False:
                fault = fault or placed(no_such_overload(), offset)
        frame[COST] += IDENT + _CALL
        if fault is not None:
            raise fault
        return count == 1

    return exists_one


# --- builders ---


def _list(rounds: Rounds, made: Step) -> Step:
    def build(frame: Frame) -> tuple[Value, ...]:
        result: list[Value] = []
        for _ in rounds(frame):
            result.append(made(frame))
            frame[COST] += _LIST_ROUND
        frame[COST] += IDENT
        return tuple(result)

    return build


def _map(rounds: Rounds, made: Step, key_slot: int) -> Step:
    def build(frame: Frame) -> dict[Any, Value]:
        result: dict[Any, Value] = {}
        for _ in rounds(frame):
            value = made(frame)
            frame[COST] += _MAP_ROUND
            result[key_of(frame[key_slot])] = value
        frame[COST] += IDENT
        return result

    return build


def _entries(rounds: Rounds, made: Step, offset: int) -> Step:
    def build(frame: Frame) -> dict[Any, Value]:
        result: dict[Any, Value] = {}
        for _ in rounds(frame):
            entries = made(frame)
            frame[COST] += _ENTRIES_ROUND
            if type(entries) not in MAPS:
                raise placed(no_such_overload("cel.@mapInsert", type_names(result, entries)), offset)
            within(len(result) + len(entries))
            for key, value in entries.items():
                if key in result:
                    raise placed(CelError(f"insert failed: key {key} already exists"), offset)
                result[key] = value
        frame[COST] += IDENT
        return result

    return build


# --- names ---


def _bind(planner: Planner, node: Fold) -> Plan:
    name = node.loop.accu
    slot = planner.bind(name, planner.plan(node.loop.init).run)
    body = planner.plan(node.loop.result).run
    planner.unbind(name)

    def bind(frame: Frame) -> Value:
        frame[slot] = UNSET
        return body(frame)

    return Plan(bind)


def plan_optional_map(planner: Planner, node: OptionalMap) -> Plan:
    """The plan of `target.optMap(name, made)`.

    Spelled out, the target stands there twice, and a chain of such macros would be evaluated over and over.
    Here it is evaluated once, and charged once more when the name is read.
    """
    target = planner.plan(node.target).run
    offset, flat = node.offset, node.flat
    kept = planner.bind("#kept")
    paid = planner.bind("#paid")

    def read(frame: Frame) -> Value:
        frame[COST] += frame[paid] + _CALL
        return value_of(frame[kept])

    slot = planner.bind(node.name, read)
    made = planner.plan(node.made).run
    for name in (node.name, "#paid", "#kept"):
        planner.unbind(name)

    def optional_map(frame: Frame) -> Value:
        before = frame[COST]
        value = target(frame)
        if type(value) is not Optional:
            raise placed(no_such_overload("hasValue", type_names(value)), offset)
        frame[kept], frame[paid] = value, frame[COST] - before
        spend(frame, _CALL)
        if value is NONE:
            frame[COST] += _CALL
            return NONE
        frame[slot] = UNSET
        result = made(frame)
        if flat:
            return result
        frame[COST] += _CALL
        return Optional(result)

    return Plan(optional_map)


_QUANTIFIERS: Final[dict[FoldKind, Callable[[Rounds, Step, int], Step]]] = {
    FoldKind.ALL: _quantifier(False),
    FoldKind.EXISTS: _quantifier(True),
    FoldKind.EXISTS_ONE: _exists_one,
}
