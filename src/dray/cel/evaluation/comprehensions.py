"""Steps of macros: `all`, `exists`, `map`, `filter` and the others, `cel.bind`, `optMap`.

Theory of operation: each macro runs as a Python loop, and charges what the loop of the specification would
cost: the condition, the accumulator, and the predicate. Quantifiers absorb errors like `&&` and `||`: one
item may decide the result although another failed. The budget is checked in every iteration. `cel.bind`
evaluates its value when the name is first read, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from dray.cel.cost.call_costs import IDENT_COST, LIST_COST
from dray.cel.evaluation.frame import COST, UNSET, Frame, PlannedNode, Planner, Step, attach_offset, spend
from dray.cel.faults import CelError, make_overload_error
from dray.cel.library.optionals import unwrap_optional
from dray.cel.syntax.ast import Comprehension, ComprehensionKind, OptionalMap
from dray.cel.values import (
    MAP_TYPES,
    NONE,
    OptionalValue,
    Value,
    check_size,
    iterate_items,
    iterate_pairs,
    join_type_names,
    to_map_key,
)

_CALL: Final = 1
# `@not_strictly_false(accu)`, and the accumulator in `accu && predicate`.
_ALL_TEST: Final = IDENT_COST + _CALL
_ALL_ITERATION: Final = _ALL_TEST + IDENT_COST
# The same with `!accu` in the test.
_EXISTS_TEST: Final = IDENT_COST + 2 * _CALL
_EXISTS_ITERATION: Final = _EXISTS_TEST + IDENT_COST
# `accu + [transform]`, `insert(accu, key, transform)`, `insert(accu, transform)`.
_LIST_ITERATION: Final = IDENT_COST + LIST_COST + _CALL
_MAP_ITERATION: Final = 2 * IDENT_COST + _CALL
_ENTRIES_ITERATION: Final = IDENT_COST + _CALL

Iterations = Callable[[Frame], Iterator[None]]


def plan_comprehension(planner: Planner, node: Comprehension) -> PlannedNode:
    """The plan of a macro."""
    if node.kind is ComprehensionKind.BIND:
        return _plan_bind(planner, node)
    source = planner.plan(node.source).run
    slots = [planner.bind(name) for name in node.names]
    iterations = _build_iterations(source, slots, node.source.offset)
    test = None if node.test is None else planner.plan(node.test).run
    transform = None if node.transform is None else planner.plan(node.transform).run
    for name in reversed(node.names):
        planner.unbind(name)
    if node.kind in _QUANTIFIERS:
        assert test is not None
        return PlannedNode(_QUANTIFIERS[node.kind](iterations, test, node.offset))
    assert transform is not None
    kept = _filter_iterations(iterations, test, node.offset)
    if node.kind is ComprehensionKind.LIST:
        return PlannedNode(_build_list_step(kept, transform))
    if node.kind is ComprehensionKind.MAP:
        return PlannedNode(_build_map_step(kept, transform, slots[0]))
    return PlannedNode(_build_entries_step(kept, transform, node.offset))


def _build_iterations(source: Step, slots: list[int], offset: int) -> Iterations:
    """One iteration per item, with the variables bound; the budget is checked before each."""
    walk: Callable[[Value], Iterator[Any]] = iterate_items if len(slots) == 1 else iterate_pairs

    def iterations(frame: Frame) -> Iterator[None]:
        value = source(frame)
        try:
            walked = walk(value)
        except CelError as error:
            raise attach_offset(error, offset) from None
        for item in walked:
            if len(slots) == 1:
                frame[slots[0]] = item
            else:
                frame[slots[0]], frame[slots[1]] = item
            spend(frame, 0)
            yield

    return iterations


def _filter_iterations(iterations: Iterations, test: Step | None, offset: int) -> Iterations:
    """The iterations in which the test is true."""
    if test is None:
        return iterations

    def filter_iterations(frame: Frame) -> Iterator[None]:
        for _ in iterations(frame):
            value = test(frame)
            if value is True:
                yield
            elif value is not False:
                raise attach_offset(make_overload_error(), offset)

    return filter_iterations


# --- quantifiers ---


def _make_quantifier(short_circuit: bool) -> Callable[[Iterations, Step, int], Step]:
    """The first true decides `exists`, the first false `all`."""
    each, test_again = (_EXISTS_ITERATION, _EXISTS_TEST) if short_circuit else (_ALL_ITERATION, _ALL_TEST)

    def make(iterations: Iterations, test: Step, offset: int) -> Step:
        def quantifier(frame: Frame) -> bool:
            fault: CelError | None = None
            walk = iterations(frame)
            for _ in walk:
                frame[COST] += each
                try:
                    value: object = test(frame)
                except CelError as error:
                    fault = fault or error
                    continue
                if value is short_circuit:
                    # The loop notices at its next test that it is over, if there is a next item.
                    frame[COST] += IDENT_COST + (test_again if next(walk, UNSET) is None else 0)
                    return short_circuit
                if type(value) is not bool:
                    fault = fault or attach_offset(make_overload_error(), offset)
            frame[COST] += IDENT_COST
            if fault is not None:
                raise fault
            return not short_circuit

        return quantifier

    return make


def _build_exists_one_step(iterations: Iterations, test: Step, offset: int) -> Step:
    def exists_one(frame: Frame) -> bool:
        fault: CelError | None = None
        count = 0
        for _ in iterations(frame):
            try:
                value = test(frame)
            except CelError as error:
                fault = fault or error
                continue
            if value is True:
                count += 1
                frame[COST] += IDENT_COST + _CALL
            elif value is not False:
                fault = fault or attach_offset(make_overload_error(), offset)
        frame[COST] += IDENT_COST + _CALL
        if fault is not None:
            raise fault
        return count == 1

    return exists_one


# --- builders ---


def _build_list_step(iterations: Iterations, transform: Step) -> Step:
    def build(frame: Frame) -> tuple[Value, ...]:
        result: list[Value] = []
        for _ in iterations(frame):
            result.append(transform(frame))
            frame[COST] += _LIST_ITERATION
        frame[COST] += IDENT_COST
        return tuple(result)

    return build


def _build_map_step(iterations: Iterations, transform: Step, key_slot: int) -> Step:
    def build(frame: Frame) -> dict[Any, Value]:
        result: dict[Any, Value] = {}
        for _ in iterations(frame):
            value = transform(frame)
            frame[COST] += _MAP_ITERATION
            result[to_map_key(frame[key_slot])] = value
        frame[COST] += IDENT_COST
        return result

    return build


def _build_entries_step(iterations: Iterations, transform: Step, offset: int) -> Step:
    def build(frame: Frame) -> dict[Any, Value]:
        result: dict[Any, Value] = {}
        for _ in iterations(frame):
            entries = transform(frame)
            frame[COST] += _ENTRIES_ITERATION
            if type(entries) not in MAP_TYPES:
                raise attach_offset(
                    make_overload_error("cel.@mapInsert", join_type_names(result, entries)), offset
                )
            check_size(len(result) + len(entries))
            for key, value in entries.items():
                if key in result:
                    raise attach_offset(CelError(f"insert failed: key {key} already exists"), offset)
                result[key] = value
        frame[COST] += IDENT_COST
        return result

    return build


# --- names ---


def _plan_bind(planner: Planner, node: Comprehension) -> PlannedNode:
    name = node.loop.accu
    slot = planner.bind(name, planner.plan(node.loop.init).run)
    body = planner.plan(node.loop.result).run
    planner.unbind(name)

    def bind(frame: Frame) -> Value:
        frame[slot] = UNSET
        return body(frame)

    return PlannedNode(bind)


def plan_optional_map(planner: Planner, node: OptionalMap) -> PlannedNode:
    """The plan of `target.optMap(name, transform)`.

    Its expansion contains the target twice, and a chain of such macros would be evaluated over and over.
    Here it is evaluated once, and charged once more when the name is read.
    """
    target = planner.plan(node.target).run
    offset, flat = node.offset, node.flat
    kept = planner.bind("#kept")
    paid = planner.bind("#paid")

    def read(frame: Frame) -> Value:
        frame[COST] += frame[paid] + _CALL
        return unwrap_optional(frame[kept])

    slot = planner.bind(node.name, read)
    transform = planner.plan(node.transform).run
    for name in (node.name, "#paid", "#kept"):
        planner.unbind(name)

    def optional_map(frame: Frame) -> Value:
        before = frame[COST]
        value = target(frame)
        if type(value) is not OptionalValue:
            raise attach_offset(make_overload_error("hasValue", join_type_names(value)), offset)
        frame[kept], frame[paid] = value, frame[COST] - before
        spend(frame, _CALL)
        if value is NONE:
            frame[COST] += _CALL
            return NONE
        frame[slot] = UNSET
        result = transform(frame)
        if flat:
            return result
        frame[COST] += _CALL
        return OptionalValue(result)

    return PlannedNode(optional_map)


_QUANTIFIERS: Final[dict[ComprehensionKind, Callable[[Iterations, Step, int], Step]]] = {
    ComprehensionKind.ALL: _make_quantifier(False),
    ComprehensionKind.EXISTS: _make_quantifier(True),
    ComprehensionKind.EXISTS_ONE: _build_exists_one_step,
}
