"""A checked tree to steps that can run.

Theory of operation: every node becomes a `Plan`, bottom up; a node that is used twice is planned once. Names
are resolved to slots of the frame here, so that nothing is looked up by name while the expression runs. Lists
and maps of constants are built now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.cel.checking.checker import Checked
from dray.cel.checking.static_types import Certainty
from dray.cel.cost.call_costs import IDENT, LIST, MAP
from dray.cel.declarations import Functions, Overload
from dray.cel.evaluation.calls import plan_call
from dray.cel.evaluation.comprehensions import plan_fold, plan_optional_map
from dray.cel.evaluation.frame import COST, FIRST_SLOT, UNSET, Frame, Plan, Step, constant, placed
from dray.cel.evaluation.logic import plan_alternative, plan_chain, plan_conditional
from dray.cel.evaluation.paths import is_path, path_parts, plan_path, plan_presence
from dray.cel.faults import CelError, no_such_overload
from dray.cel.syntax.ast import (
    Call,
    Fold,
    FoldKind,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    children,
)
from dray.cel.syntax.traversal import SHALLOW, settle
from dray.cel.types import Type
from dray.cel.values import NONE, Optional, TypeName, Value, key_of

_DECIDING: Final[dict[str, Callable[[Any, Call], Plan]]] = {
    "_&&_": plan_chain,
    "_||_": plan_chain,
    "_?_:_": plan_conditional,
}
_ALTERNATIVES: Final = frozenset({"or", "orValue"})


class Planned:
    """An expression that can run: its first step, and where its variables go."""

    __slots__ = ("run", "slots", "width")

    def __init__(self, run: Step, slots: Mapping[str, int], width: int) -> None:
        self.run = run
        self.slots = slots
        self.width = width


def planned(root: Node, checked: Checked, functions: Functions) -> Planned:
    """The steps of a checked tree; raises `RejectedError` when a constant part fails."""
    planner = _Planner(checked, functions)
    plan = planner.plan(root)
    return Planned(plan.run, planner.variables, planner.width)


class _Planner:
    """Plans one tree."""

    def __init__(self, checked: Checked, functions: Functions) -> None:
        self.checked = checked
        self.functions = functions
        self.plans: dict[int, Plan] = {}
        self.variables: dict[str, int] = {}
        self.locals: dict[str, list[tuple[int, Step | None]]] = {}
        self.width = FIRST_SLOT
        self.is_certain = Certainty(self.reachable, self.locals)

    # --- what the makers of steps ask for ---

    def plan(self, node: Node) -> Plan:
        known = self.plans.get(node.id)
        if known is not None:
            return known
        if node.depth > SHALLOW:
            settle(node, self.plans, self._below, self._visit)
        return self._visit(node)

    def _visit(self, node: Node) -> Plan:
        found = self.plans[node.id] = _WAYS[type(node)](self, node)
        return found

    def _below(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Fold() if node.kind is FoldKind.BIND:
                return (node.loop.init,)
            case Fold():
                return (node.source,)
            case OptionalMap():
                return (node.target,)
            case Call() if node.id in self.checked.qualified:
                return node.args
            case Select() if node.id in self.checked.qualified:
                return ()
            case Select() | Call() if is_path(node):
                return path_parts(self, node)
            case _:
                return children(node)

    def type_of(self, node: Node) -> Type:
        return self.checked.types[node.id]

    def overloads_of(self, node: Node) -> tuple[Overload, ...]:
        return self.checked.overloads[node.id]

    def reachable(self, node: Node) -> tuple[Overload, ...]:
        matched = self.checked.overloads[node.id]
        if not matched[0].shared or not isinstance(node, Call):
            return matched
        first = matched[0]
        return tuple(
            one
            for one in self.functions[self.checked.qualified.get(node.id, node.function)]
            if one.member is first.member and len(one.params) == len(first.params)
        )

    def qualified(self, node: Node) -> str | None:
        return self.checked.qualified.get(node.id)

    def bind(self, name: str, source: Step | None = None) -> int:
        slot = self.width
        self.width += 1
        self.locals.setdefault(name, []).append((slot, source))
        return slot

    def unbind(self, name: str) -> None:
        self.locals[name].pop()

    # --- nodes ---

    def _literal(self, node: Literal) -> Plan:
        return constant(node.value)

    def _ident(self, node: Ident) -> Plan:
        name = self.qualified(node)
        if name is not None:
            return constant(TypeName(name))
        bound = self.locals.get(node.name)
        if bound:
            slot, source = bound[-1]
            return Plan(_read(slot) if source is None else _read_late(slot, source), is_path=True)
        if node.name not in self.variables:
            self.variables[node.name] = self.width
            self.width += 1
        return Plan(_read(self.variables[node.name]), is_path=True)

    def _select(self, node: Select) -> Plan:
        name = self.qualified(node)
        if name is not None:
            return constant(TypeName(name))
        return plan_presence(self, node) if node.test else plan_path(self, node)

    def _call(self, node: Call) -> Plan:
        deciding = _DECIDING.get(node.function)
        if deciding is not None and node.target is None:
            return deciding(self, node)
        if is_path(node):
            return plan_path(self, node)
        if node.function in _ALTERNATIVES and node.target is not None:
            return plan_alternative(self, node)
        return plan_call(self, node)

    def _list(self, node: ListLiteral) -> Plan:
        plans = [self.plan(item) for item in node.items]
        if all(plan.known for plan in plans) and not node.optional:
            return constant(tuple(plan.value for plan in plans))
        steps = tuple(plan.run for plan in plans)
        return Plan(_list_step(steps, node.optional, node.offset))

    def _map(self, node: MapLiteral) -> Plan:
        pairs = [(self.plan(entry.key), self.plan(entry.value), entry.optional) for entry in node.entries]
        steps = tuple((key.run, value.run, optional) for key, value, optional in pairs)
        build = _map_step(steps, node.offset)
        if all(key.known and value.known and not optional for key, value, optional in pairs):
            try:
                return constant(build([0, 0]))
            except CelError:
                # Such a map fails when the expression runs, if it is needed at all.
                return Plan(build)
        return Plan(build)

    def _fold(self, node: Fold) -> Plan:
        return plan_fold(self, node)

    def _optional_map(self, node: OptionalMap) -> Plan:
        return plan_optional_map(self, node)


def _read(slot: int) -> Step:
    def read(frame: Frame) -> Value:
        frame[COST] += IDENT
        return frame[slot]

    return read


def _read_late(slot: int, source: Step) -> Step:
    """A name of `cel.bind`: its value is computed when it is first read."""

    def read(frame: Frame) -> Value:
        frame[COST] += IDENT
        value = frame[slot]
        if value is UNSET:
            value = frame[slot] = source(frame)
        return value

    return read


def _list_step(steps: tuple[Step, ...], optional: frozenset[int], offset: int) -> Step:
    def build(frame: Frame) -> tuple[Value, ...]:
        values = [step(frame) for step in steps]
        frame[COST] += LIST
        if not optional:
            return tuple(values)
        kept: list[Value] = []
        for place, value in enumerate(values):
            kept += (value,) if place not in optional else _present(value, offset)
        return tuple(kept)

    return build


def _map_step(steps: tuple[tuple[Step, Step, bool], ...], offset: int) -> Step:
    def build(frame: Frame) -> dict[Any, Value]:
        result: dict[Any, Value] = {}
        for key_step, value_step, optional in steps:
            key, value = key_step(frame), value_step(frame)
            try:
                place = key_of(key)
                if place in result:
                    raise CelError(f"Failed with repeated key: {key}")
            except CelError as error:
                raise placed(error, offset) from None
            for one in _present(value, offset) if optional else (value,):
                result[place] = one
        frame[COST] += MAP
        return result

    return build


def _present(value: Value, offset: int) -> tuple[Value, ...]:
    """What an optional entry contributes: its value, or nothing."""
    if type(value) is not Optional:
        raise placed(no_such_overload(), offset)
    return () if value is NONE else (value.value,)


_WAYS: Final[dict[type, Callable[..., Plan]]] = {
    Literal: _Planner._literal,
    Ident: _Planner._ident,
    Select: _Planner._select,
    Call: _Planner._call,
    ListLiteral: _Planner._list,
    MapLiteral: _Planner._map,
    Fold: _Planner._fold,
    OptionalMap: _Planner._optional_map,
}
