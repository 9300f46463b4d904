"""Comparisons: equality, order, and membership in a list of constants.

Theory of operation: nearly all comparisons are of an attribute with a constant; those are made at once.
Values that hold others can share parts and unfold to something enormous, which Kubernetes does not charge
for; where two such values may meet, their bulk is charged before they are compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from dray.cel.cost import call_costs
from dray.cel.cost.call_costs import Price, characters
from dray.cel.equality import HOLDING, bulk, contains, equal, unequal
from dray.cel.evaluation.dispatch import Run
from dray.cel.evaluation.frame import COST, UNSET, Frame, Plan, Step, placed, spend
from dray.cel.evaluation.strict_calls import fail_two, strict
from dray.cel.faults import CelError
from dray.cel.types import Kind, Type
from dray.cel.values import UInt, Value

SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
MEETING: Final = frozenset(
    {"_==_", "_!=_", "@in", "includes", "include", "indexOf", "lastIndexOf", "distinct"}
    | {"sets.contains", "sets.equivalent", "sets.intersects"}
)
"""Functions that compare what their arguments hold."""

_PRIMITIVES: Final = frozenset({bool, int, UInt, float, str, bytes})
_HOLDING_KINDS: Final = frozenset({Kind.LIST, Kind.MAP, Kind.OPAQUE})
_EQUALITY: Final = Price(0, lambda args, _: call_costs.equality(args[0], args[1]))
_FREE_BULK: Final = 64


# --- bulk ---


def may_meet(given: tuple[Type, ...]) -> bool:
    """Whether values with many parts can come together; not when one side is surely a plain value."""
    return all(one.is_open or one.kind in _HOLDING_KINDS for one in given)


def weighed(step: Step, per_part: float = 0.5) -> Step:
    """The step, charging for the bulk of a value that has more than a few parts."""

    def weigh(frame: Frame) -> Value:
        value = step(frame)
        if type(value) in HOLDING:
            parts = bulk(value)
            if parts > _FREE_BULK:
                spend(frame, int(parts * per_part))
        return value

    return weigh


# --- equality, the most frequent call of all ---


def equality(left: Plan, right: Plan, negated: bool, offset: int) -> Step:
    """The step of `==` and `!=`."""
    if right.known and type(right.value) is str and not negated:
        return _equal_to_text(left.run, right.value, offset)
    one, other = left.run, right.run
    holds = unequal if negated else equal

    def compare(frame: Frame) -> bool:
        a = b = UNSET
        try:
            a = one(frame)
            b = other(frame)
        except CelError as error:
            fail_two(frame, error, (a, b), other, _EQUALITY)
        frame[COST] += call_costs.equality(a, b)
        try:
            return holds(a, b)
        except CelError as error:
            raise placed(error, offset) from None

    return compare


def _equal_to_text(left: Step, text: str, offset: int) -> Step:
    size = len(text)

    def compare(frame: Frame) -> bool:
        try:
            value = left(frame)
        except CelError:
            frame[COST] += call_costs.equality(None, text)
            raise
        if type(value) is str:
            count = len(value)
            frame[COST] += characters(count if count < size else size)
            return value == text
        frame[COST] += call_costs.equality(value, text)
        try:
            return equal(value, text)
        except CelError as error:
            raise placed(error, offset) from None

    return compare


# --- order ---


def ordering(plans: tuple[Plan, ...], run: Run, price: Price, sign: str, offset: int) -> Step:
    """The step of `<` and its kin; whole numbers, the usual case, are compared at once."""
    left, right, compare = plans[0].run, plans[1].run, SIGNS[sign]
    if not plans[1].known or type(plans[1].value) is not int or price.before is not None:
        return strict((left, right), run, price, offset)
    number = plans[1].value

    def order(frame: Frame) -> bool:
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

    return order


# --- membership ---


def member_of(item: Plan, items: tuple[Value, ...]) -> Plan | None:
    """`x in [constants]`: cel-go looks it up in a set and charges nothing for that."""
    if any(type(one) not in _PRIMITIVES for one in items):
        return None
    run = item.run
    texts = frozenset(one for one in items if type(one) is str)

    def member(frame: Frame) -> bool:
        value = run(frame)
        return value in texts if type(value) is str else contains(items, value)

    return Plan(member)
