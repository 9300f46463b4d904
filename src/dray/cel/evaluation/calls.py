"""Planning of calls: which implementation runs, what it costs, and what is computed ahead of time.

Theory of operation: a call is planned from its arguments. Conversions of constants are folded where cel-go
folds them; an argument that must be parsed (`quantity("1Gi")`) is parsed once, though it is charged every
time. Comparisons have their own steps; every other call is strict.
"""

from __future__ import annotations

from typing import Final

from dray.cel.cost import call_costs
from dray.cel.cost.call_costs import CallCost
from dray.cel.evaluation.comparisons import (
    COMPARING_FUNCTIONS,
    ORDER_OPERATORS,
    build_equality_step,
    build_ordering_step,
    charge_for_parts,
    may_compare_containers,
    plan_membership,
)
from dray.cel.evaluation.dispatch import Implementation, select_implementation
from dray.cel.evaluation.frame import COST, Frame, PlannedNode, Planner, make_constant
from dray.cel.evaluation.strict_calls import build_strict_step
from dray.cel.faults import BudgetError, CelError, CompileStage, RejectedError
from dray.cel.source import ExpressionIssue
from dray.cel.syntax.ast import FunctionCall, Node
from dray.cel.types import DYN
from dray.cel.values import Value

_CONVERSIONS: Final = frozenset({"bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
_PARSED_ONCE: Final = frozenset({"quantity", "semver", "ip", "cidr", "url"})


def plan_call(planner: Planner, node: FunctionCall) -> PlannedNode:
    """The plan of a call."""
    name = planner.get_qualified_name(node)
    target = node.target if name is None else None
    name = name or node.function
    nodes: tuple[Node, ...] = node.args if target is None else (target, *node.args)
    plans = tuple(planner.plan(one) for one in nodes)
    given = tuple(planner.get_type(one) if planner.is_static(one) else DYN for one in nodes)
    run = select_implementation(name, planner.get_reachable_overloads(node), given)
    ready = _plan_early(planner, node, name, plans, run)
    if ready is not None:
        return ready
    if name in COMPARING_FUNCTIONS and may_compare_containers(given):
        plans = tuple(one if one.is_constant else PlannedNode(charge_for_parts(one.run)) for one in plans)
    elif name == "format" and not plans[1].is_constant:
        plans = (plans[0], PlannedNode(charge_for_parts(plans[1].run, per_part=2.0)))
    if name in ("_==_", "_!=_"):
        return PlannedNode(build_equality_step(plans[0], plans[1], name == "_!=_", node.offset))
    fresh = name in _PATTERN_FUNCTIONS and not plans[1].is_constant
    call_cost = call_costs.plan_call_cost(name, planner.get_overloads(node), fresh)
    if name == "_+_" and call_cost.flat and not may_compare_containers(given):
        # Only lists can make a sum expensive; sums of anything else should stay quick.
        call_cost = CallCost(1)
    if name in ORDER_OPERATORS:
        return PlannedNode(build_ordering_step(plans, run, call_cost, name, node.offset))
    return PlannedNode(build_strict_step(tuple(one.run for one in plans), run, call_cost, node.offset))


def _plan_early(
    planner: Planner,
    node: FunctionCall,
    name: str,
    plans: tuple[PlannedNode, ...],
    implementation: Implementation,
) -> PlannedNode | None:
    """The plan of a call that is computed, or at least prepared, before the expression runs."""
    overloads = planner.get_overloads(node)
    if name == "dyn":
        return plans[0]
    if name in _CONVERSIONS and len(plans) == 1 and plans[0].is_constant:
        return _fold_conversion(node, implementation, plans[0].value)
    if name in _PATTERN_FUNCTIONS:
        _check_pattern(node, plans, overloads[0].run)
    if name in _PARSED_ONCE and all(one.is_constant for one in plans):
        return _parse_once(
            implementation, tuple(one.value for one in plans), call_costs.plan_call_cost(name, overloads)
        )
    if name == "@in" and [one.id for one in overloads] == ["in_list"] and plans[1].is_constant:
        return plan_membership(plans[0], plans[1].value)
    return None


def _fold_conversion(node: FunctionCall, implementation: Implementation, value: Value) -> PlannedNode:
    """A conversion of a constant; one that fails rejects the whole expression."""
    try:
        return make_constant(implementation(value))
    except CelError as error:
        raise RejectedError((ExpressionIssue(node.offset, error.message),), CompileStage.PLAN) from None


def _check_pattern(
    node: FunctionCall, plans: tuple[PlannedNode, ...], implementation: Implementation
) -> None:
    """Reject a constant pattern that does not compile."""
    if plans[1].is_constant and type(plans[1].value) is str:
        try:
            implementation("", plans[1].value)
        except CelError as error:
            raise RejectedError((ExpressionIssue(node.offset, error.message),), CompileStage.PLAN) from None


def _parse_once(
    implementation: Implementation, args: tuple[Value, ...], call_cost: CallCost
) -> PlannedNode | None:
    try:
        value = implementation(*args)
    except (CelError, BudgetError):
        return None
    cost = call_cost.compute_failure_cost(args)

    def return_parsed(frame: Frame) -> Value:
        frame[COST] += cost
        return value

    return PlannedNode(return_parsed)
