"""Calls of functions and strict operators: all arguments are evaluated, then the function runs.

Theory of operation: a call is planned for its number of arguments and for its cost, which for most is one. An
error in an argument is the error of the call, but the other argument still runs and the call still costs, as
in cel-go; that is the slow way, taken only after an error. Calls of constants are folded where cel-go folds
them, and what must be parsed (`quantity("1Gi")`) is parsed once, though it costs every time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, NoReturn

from dray.cel import costs
from dray.cel.ast import Call, Node
from dray.cel.compare import contains, equal
from dray.cel.costs import Tracker, characters
from dray.cel.dispatch import Run, chosen
from dray.cel.faults import BudgetError, CelError, RejectedError, Stage
from dray.cel.frames import COST, UNSET, Frame, Plan, Planner, Step, constant, placed, spend
from dray.cel.source import Issue
from dray.cel.types import DYN
from dray.cel.values import UInt, Value

_CONVERSIONS: Final = frozenset({"bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
_PARSED_ONCE: Final = frozenset({"quantity", "semver", "ip", "cidr", "url"})
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
_PRIMITIVES: Final = frozenset({bool, int, UInt, float, str, bytes})


def plan_call(planner: Planner, node: Call) -> Plan:
    """The plan of a call."""
    name = planner.qualified(node)
    target = node.target if name is None else None
    name = name or node.function
    nodes: tuple[Node, ...] = node.args if target is None else (target, *node.args)
    plans = tuple(planner.plan(one) for one in nodes)
    overloads = planner.overloads_of(node)
    given = tuple(planner.type_of(one) if planner.is_certain(one) else DYN for one in nodes)
    run = chosen(name, planner.reachable(node), given)
    if name in _CONVERSIONS and len(plans) == 1 and plans[0].known:
        return _folded(node, run, plans[0].value)
    if name in _PATTERNS:
        _try_pattern(node, plans, overloads[0].run)
    if name == "dyn":
        return plans[0]
    if name in ("_==_", "_!=_"):
        return Plan(_equality(plans[0], plans[1], name == "_!=_", node.offset))
    if name == "@in" and len(overloads) == 1 and overloads[0].id == "in_list" and plans[1].known:
        member = _member_of(plans[0], plans[1].value)
        if member is not None:
            return member
    track = costs.tracker(name, overloads)
    if name in _PARSED_ONCE and all(planned.known for planned in plans):
        ready = _parsed(run, tuple(planned.value for planned in plans), track)
        if ready is not None:
            return ready
    if name in _SIGNS:
        return Plan(_ordering(plans, run, track, name, node.offset))
    steps = tuple(planned.run for planned in plans)
    return Plan(_strict(steps, run, track, node.offset))


def _folded(node: Call, run: Run, value: Value) -> Plan:
    """A conversion of a constant; one that fails makes the whole expression useless."""
    try:
        return constant(run(value))
    except CelError as error:
        raise RejectedError((Issue(node.offset, error.message),), Stage.PLAN) from None


def _try_pattern(node: Call, plans: tuple[Plan, ...], run: Run) -> None:
    """A pattern that is a constant must be one."""
    if plans[1].known and type(plans[1].value) is str:
        try:
            run("", plans[1].value)
        except CelError as error:
            raise RejectedError((Issue(node.offset, error.message),), Stage.PLAN) from None


def _parsed(run: Run, args: tuple[Value, ...], track: Tracker | None) -> Plan | None:
    try:
        value = run(*args)
    except (CelError, BudgetError):
        return None
    cost = 1 if track is None else track(args, value)

    def parsed(frame: Frame) -> Value:
        frame[COST] += cost
        return value

    return Plan(parsed)


def _member_of(item: Plan, items: tuple[Value, ...]) -> Plan | None:
    """`x in [constants]`: cel-go looks it up in a set and charges nothing for that."""
    if any(type(one) not in _PRIMITIVES for one in items):
        return None
    run = item.run
    texts = frozenset(one for one in items if type(one) is str)

    def member(frame: Frame) -> bool:
        value = run(frame)
        return value in texts if type(value) is str else contains(items, value)

    return Plan(member)


# --- equality, the most frequent call of all ---


def _equality(left: Plan, right: Plan, negated: bool, offset: int) -> Step:
    if right.known and type(right.value) is str and not negated:
        return _equal_to_text(left.run, right.value, offset)
    one, other = left.run, right.run

    def equality(frame: Frame) -> bool:
        a = b = UNSET
        try:
            a = one(frame)
            b = other(frame)
        except CelError as error:
            _fail_two(frame, error, (a, b), other, _equality_cost)
        frame[COST] += costs.equality(a, b)
        try:
            return equal(a, b) is not negated
        except CelError as error:
            raise placed(error, offset) from None

    return equality


def _equal_to_text(left: Step, text: str, offset: int) -> Step:
    size = len(text)

    def equality(frame: Frame) -> bool:
        try:
            value = left(frame)
        except CelError:
            frame[COST] += costs.equality(None, text)
            raise
        if type(value) is str:
            count = len(value)
            frame[COST] += characters(count if count < size else size)
            return value == text
        frame[COST] += costs.equality(value, text)
        try:
            return equal(value, text)
        except CelError as error:
            raise placed(error, offset) from None

    return equality


def _equality_cost(args: tuple[Value, ...], _: Value) -> int:
    return costs.equality(args[0], args[1])


# --- order ---


def _ordering(plans: tuple[Plan, ...], run: Run, track: Tracker | None, sign: str, offset: int) -> Step:
    """Two whole numbers, the usual case, are compared at once; everything else by the function itself."""
    left, right, compare = plans[0].run, plans[1].run, _SIGNS[sign]
    slow = _strict((left, right), run, track, offset)
    if not plans[1].known or type(plans[1].value) is not int or track is not None:
        return slow
    number = plans[1].value

    def ordering(frame: Frame) -> bool:
        try:
            value = left(frame)
        except CelError:
            frame[COST] += 1
            raise
        frame[COST] += 1
        if type(value) is int:
            return compare(value, number)
        try:
            return bool(run(value, number))
        except CelError as error:
            raise placed(error, offset) from None

    return ordering


# --- everything else ---


def _strict(steps: tuple[Step, ...], run: Run, track: Tracker | None, offset: int) -> Step:
    if len(steps) == 1:
        return _one(steps[0], run, track, offset)
    if len(steps) == 2:
        if track is None:
            return _two(steps[0], steps[1], run, offset)
        return _two_tracked(steps, run, track, offset)
    return _many(steps, run, track, offset)


def _one(step: Step, run: Run, track: Tracker | None, offset: int) -> Step:
    def unary(frame: Frame) -> Value:
        try:
            arg = step(frame)
        except CelError:
            frame[COST] += 1 if track is None else track((None,), None)
            raise
        try:
            result = run(arg)
        except CelError as error:
            frame[COST] += 1 if track is None else track((arg,), None)
            raise placed(error, offset) from None
        if track is None:
            frame[COST] += 1
        else:
            spend(frame, track((arg,), result))
        return result

    return unary


def _two(left: Step, right: Step, run: Run, offset: int) -> Step:
    def binary(frame: Frame) -> Value:
        a = b = UNSET
        try:
            a = left(frame)
            b = right(frame)
        except CelError as error:
            _fail_two(frame, error, (a, b), right, None)
        frame[COST] += 1
        try:
            return run(a, b)
        except CelError as error:
            raise placed(error, offset) from None

    return binary


def _two_tracked(steps: tuple[Step, ...], run: Run, track: Tracker, offset: int) -> Step:
    left, right = steps

    def binary(frame: Frame) -> Value:
        a = b = UNSET
        try:
            a = left(frame)
            b = right(frame)
        except CelError as error:
            _fail_two(frame, error, (a, b), right, track)
        try:
            result = run(a, b)
        except CelError as error:
            frame[COST] += track((a, b), None)
            raise placed(error, offset) from None
        spend(frame, track((a, b), result))
        return result

    return binary


def _fail_two(
    frame: Frame, error: CelError, args: tuple[Value, Value], right: Step, track: Tracker | None
) -> NoReturn:
    """An argument failed: the other one runs as well, and the call is charged, before the error goes on."""
    left, other = args
    if left is UNSET:
        left = None
        try:
            other = right(frame)
        except CelError:
            other = None
    else:
        other = None
    frame[COST] += 1 if track is None else track((left, other), None)
    raise error


def _many(steps: tuple[Step, ...], run: Run, track: Tracker | None, offset: int) -> Step:
    def call(frame: Frame) -> Value:
        args = tuple([step(frame) for step in steps])
        try:
            result = run(*args)
        except CelError as error:
            frame[COST] += 1 if track is None else track(args, None)
            raise placed(error, offset) from None
        spend(frame, 1 if track is None else track(args, result))
        return result

    return call
