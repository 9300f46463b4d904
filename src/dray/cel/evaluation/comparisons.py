"""Steps of comparisons: equality, order, and membership in a list of constants.

Theory of operation: nearly all comparisons are of an attribute with a constant; those have a fast path. Lists
and maps can share parts and expand to an enormous size, which Kubernetes does not charge for; where two such
values may be compared, the number of their parts is charged first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from dray.cel.cost import call_costs
from dray.cel.cost.call_costs import CallCost, compute_text_cost
from dray.cel.equality import CONTAINER_TYPES, contains_item, count_parts, is_equal, is_unequal
from dray.cel.evaluation.dispatch import Implementation
from dray.cel.evaluation.frame import COST, UNSET, Frame, PlannedNode, Step, attach_offset, spend
from dray.cel.evaluation.strict_calls import build_strict_step, fail_binary_call
from dray.cel.faults import CelError
from dray.cel.types import Type, TypeKind
from dray.cel.values import UInt, Value

ORDER_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
COMPARING_FUNCTIONS: Final = frozenset(
    {"_==_", "_!=_", "@in", "includes", "include", "indexOf", "lastIndexOf", "distinct"}
    | {"sets.contains", "sets.equivalent", "sets.intersects"}
)
"""Functions that compare the contents of their arguments."""

_PRIMITIVES: Final = frozenset({bool, int, UInt, float, str, bytes})
_CONTAINER_KINDS: Final = frozenset({TypeKind.LIST, TypeKind.MAP, TypeKind.OPAQUE})
_EQUALITY_COST: Final = CallCost(0, lambda args, _: call_costs.compute_equality_cost(args[0], args[1]))
_FREE_PARTS: Final = 64


# --- size of containers ---


def may_compare_containers(given: tuple[Type, ...]) -> bool:
    """Whether two containers may be compared; not when one side is certainly a plain value."""
    return all(one.is_open or one.kind in _CONTAINER_KINDS for one in given)


def charge_for_parts(step: Step, per_part: float = 0.5) -> Step:
    """The step, charging for the parts of a value that has more than a few."""

    def weigh(frame: Frame) -> Value:
        value = step(frame)
        if type(value) in CONTAINER_TYPES:
            parts = count_parts(value)
            if parts > _FREE_PARTS:
                spend(frame, int(parts * per_part))
        return value

    return weigh


# --- equality, the most frequent call of all ---


def build_equality_step(left: PlannedNode, right: PlannedNode, negated: bool, offset: int) -> Step:
    """The step of `==` and `!=`."""
    if right.is_constant and type(right.value) is str and not negated:
        return _build_text_equality_step(left.run, right.value, offset)
    one, other = left.run, right.run
    comparison = is_unequal if negated else is_equal

    def compare(frame: Frame) -> bool:
        a = b = UNSET
        try:
            a = one(frame)
            b = other(frame)
        except CelError as error:
            fail_binary_call(frame, error, (a, b), other, _EQUALITY_COST)
        frame[COST] += call_costs.compute_equality_cost(a, b)
        try:
            return comparison(a, b)
        except CelError as error:
            raise attach_offset(error, offset) from None

    return compare


def _build_text_equality_step(left: Step, text: str, offset: int) -> Step:
    size = len(text)

    def compare(frame: Frame) -> bool:
        try:
            value = left(frame)
        except CelError:
            frame[COST] += call_costs.compute_equality_cost(None, text)
            raise
        if type(value) is str:
            count = len(value)
            frame[COST] += compute_text_cost(count if count < size else size)
            return value == text
        frame[COST] += call_costs.compute_equality_cost(value, text)
        try:
            return is_equal(value, text)
        except CelError as error:
            raise attach_offset(error, offset) from None

    return compare


# --- order ---


def build_ordering_step(
    plans: tuple[PlannedNode, ...],
    implementation: Implementation,
    call_cost: CallCost,
    operator_name: str,
    offset: int,
) -> Step:
    """The step of `<` and its kin; whole numbers, the usual case, are compared directly."""
    left, right, compare = plans[0].run, plans[1].run, ORDER_OPERATORS[operator_name]
    if not plans[1].is_constant or type(plans[1].value) is not int or call_cost.before is not None:
        return build_strict_step((left, right), implementation, call_cost, offset)
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
            return bool(implementation(value, number))
        except CelError as error:
            raise attach_offset(error, offset) from None

    return order


# --- membership ---


def plan_membership(item: PlannedNode, items: tuple[Value, ...]) -> PlannedNode | None:
    """`x in [constants]`: cel-go looks it up in a set and charges nothing for that."""
    if any(type(one) not in _PRIMITIVES for one in items):
        return None
    run = item.run
    texts = frozenset(one for one in items if type(one) is str)

    def member(frame: Frame) -> bool:
        value = run(frame)
        return value in texts if type(value) is str else contains_item(items, value)

    return PlannedNode(member)
