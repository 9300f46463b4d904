"""Calls: which function runs, with what price, and what of it can be done beforehand.

Theory of operation: a call is planned from its arguments. Conversions of constants are folded where cel-go
folds them; what must be parsed (`quantity("1Gi")`) is parsed once, though it costs every time. Comparisons
have steps of their own; everything else is a strict call.
"""

from __future__ import annotations

from typing import Final

from dray.cel.cost import call_costs
from dray.cel.cost.call_costs import Price
from dray.cel.evaluation.comparisons import MEETING, SIGNS, equality, may_meet, member_of, ordering, weighed
from dray.cel.evaluation.dispatch import Run, chosen
from dray.cel.evaluation.frame import COST, Frame, Plan, Planner, constant
from dray.cel.evaluation.strict_calls import strict
from dray.cel.faults import BudgetError, CelError, RejectedError, Stage
from dray.cel.source import Issue
from dray.cel.syntax.ast import Call, Node
from dray.cel.types import DYN
from dray.cel.values import Value

_CONVERSIONS: Final = frozenset({"bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
_PARSED_ONCE: Final = frozenset({"quantity", "semver", "ip", "cidr", "url"})


def plan_call(planner: Planner, node: Call) -> Plan:
    """The plan of a call."""
    name = planner.qualified(node)
    target = node.target if name is None else None
    name = name or node.function
    nodes: tuple[Node, ...] = node.args if target is None else (target, *node.args)
    plans = tuple(planner.plan(one) for one in nodes)
    given = tuple(planner.type_of(one) if planner.is_certain(one) else DYN for one in nodes)
    run = chosen(name, planner.reachable(node), given)
    ready = _ready(planner, node, name, plans, run)
    if ready is not None:
        return ready
    if name in MEETING and may_meet(given):
        plans = tuple(one if one.known else Plan(weighed(one.run)) for one in plans)
    elif name == "format" and not plans[1].known:
        plans = (plans[0], Plan(weighed(plans[1].run, per_part=2.0)))
    if name in ("_==_", "_!=_"):
        return Plan(equality(plans[0], plans[1], name == "_!=_", node.offset))
    fresh = name in _PATTERNS and not plans[1].known
    price = call_costs.price(name, planner.overloads_of(node), fresh)
    if name == "_+_" and price.flat and not may_meet(given):
        # Only lists can make a sum expensive; sums of anything else should stay quick.
        price = Price(1)
    if name in SIGNS:
        return Plan(ordering(plans, run, price, name, node.offset))
    return Plan(strict(tuple(one.run for one in plans), run, price, node.offset))


def _ready(planner: Planner, node: Call, name: str, plans: tuple[Plan, ...], run: Run) -> Plan | None:
    """What can be answered, or at least prepared, before the expression runs."""
    overloads = planner.overloads_of(node)
    if name == "dyn":
        return plans[0]
    if name in _CONVERSIONS and len(plans) == 1 and plans[0].known:
        return _folded(node, run, plans[0].value)
    if name in _PATTERNS:
        _try_pattern(node, plans, overloads[0].run)
    if name in _PARSED_ONCE and all(one.known for one in plans):
        return _parsed(run, tuple(one.value for one in plans), call_costs.price(name, overloads))
    if name == "@in" and [one.id for one in overloads] == ["in_list"] and plans[1].known:
        return member_of(plans[0], plans[1].value)
    return None


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


def _parsed(run: Run, args: tuple[Value, ...], price: Price) -> Plan | None:
    try:
        value = run(*args)
    except (CelError, BudgetError):
        return None
    cost = price.unpaid(args)

    def parsed(frame: Frame) -> Value:
        frame[COST] += cost
        return value

    return Plan(parsed)
