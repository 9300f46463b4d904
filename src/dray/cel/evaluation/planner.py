"""The planner: turns a checked tree into steps that can run.

Theory of operation: every node becomes a `PlannedNode`, bottom up; a node that is used twice is planned once.
The planner resolves names to slots of the frame, so that nothing is looked up by name while the expression
runs, and builds lists and maps of constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.cel.checking.checker import CheckResult
from dray.cel.checking.static_types import StaticTypes
from dray.cel.cost.call_costs import IDENT_COST, LIST_COST, MAP_COST
from dray.cel.declarations import Functions, Overload
from dray.cel.evaluation.calls import plan_call
from dray.cel.evaluation.comprehensions import plan_comprehension, plan_optional_map
from dray.cel.evaluation.frame import (
    COST,
    FIRST_SLOT,
    UNSET,
    Frame,
    PlannedNode,
    Step,
    attach_offset,
    make_constant,
)
from dray.cel.evaluation.logic import plan_alternative, plan_chain, plan_conditional
from dray.cel.evaluation.paths import is_path, plan_path, plan_presence, split_path
from dray.cel.faults import CelError, make_overload_error
from dray.cel.syntax.ast import (
    Comprehension,
    ComprehensionKind,
    FunctionCall,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    get_children,
)
from dray.cel.syntax.traversal import MAX_RECURSION_DEPTH, visit_bottom_up
from dray.cel.types import Type
from dray.cel.values import NONE, OptionalValue, TypeName, Value, to_map_key

_CONTROL_OPERATORS: Final[dict[str, Callable[[Any, FunctionCall], PlannedNode]]] = {
    "_&&_": plan_chain,
    "_||_": plan_chain,
    "_?_:_": plan_conditional,
}
_ALTERNATIVES: Final = frozenset({"or", "orValue"})


class ExecutionPlan:
    """An expression that can run: its first step, and where its variables go."""

    __slots__ = ("frame_size", "run", "slots")

    def __init__(self, run: Step, slots: Mapping[str, int], frame_size: int) -> None:
        self.run = run
        self.slots = slots
        self.frame_size = frame_size


def plan_expression(root: Node, checked: CheckResult, functions: Functions) -> ExecutionPlan:
    """The steps of a checked tree; raises `RejectedError` when a constant part fails."""
    planner = _Planner(checked, functions)
    plan = planner.plan(root)
    return ExecutionPlan(plan.run, planner.variables, planner.frame_size)


class _Planner:
    """Plans one tree."""

    def __init__(self, checked: CheckResult, functions: Functions) -> None:
        self.checked = checked
        self.functions = functions
        self.plans: dict[int, PlannedNode] = {}
        self.variables: dict[str, int] = {}
        self.locals: dict[str, list[tuple[int, Step | None]]] = {}
        self.frame_size = FIRST_SLOT
        self.is_static = StaticTypes(self.get_reachable_overloads, self.locals)

    # --- the `Planner` protocol ---

    def plan(self, node: Node) -> PlannedNode:
        known = self.plans.get(node.id)
        if known is not None:
            return known
        if node.depth > MAX_RECURSION_DEPTH:
            visit_bottom_up(node, self.plans, self._get_children_first, self._visit)
        return self._visit(node)

    def _visit(self, node: Node) -> PlannedNode:
        found = self.plans[node.id] = _VISITORS[type(node)](self, node)
        return found

    def _get_children_first(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Comprehension() if node.kind is ComprehensionKind.BIND:
                return (node.loop.init,)
            case Comprehension():
                return (node.source,)
            case OptionalMap():
                return (node.target,)
            case FunctionCall() if node.id in self.checked.qualified:
                return node.args
            case Select() if node.id in self.checked.qualified:
                return ()
            case Select() | FunctionCall() if is_path(node):
                return split_path(self, node)
            case _:
                return get_children(node)

    def get_type(self, node: Node) -> Type:
        return self.checked.types[node.id]

    def get_overloads(self, node: Node) -> tuple[Overload, ...]:
        return self.checked.overloads[node.id]

    def get_reachable_overloads(self, node: Node) -> tuple[Overload, ...]:
        matched = self.checked.overloads[node.id]
        if not matched[0].dispatched_by_value or not isinstance(node, FunctionCall):
            return matched
        first = matched[0]
        return tuple(
            one
            for one in self.functions[self.checked.qualified.get(node.id, node.function)]
            if one.member is first.member and len(one.params) == len(first.params)
        )

    def get_qualified_name(self, node: Node) -> str | None:
        return self.checked.qualified.get(node.id)

    def bind(self, name: str, source: Step | None = None) -> int:
        slot = self.frame_size
        self.frame_size += 1
        self.locals.setdefault(name, []).append((slot, source))
        return slot

    def unbind(self, name: str) -> None:
        self.locals[name].pop()

    # --- nodes ---

    def _plan_literal(self, node: Literal) -> PlannedNode:
        return make_constant(node.value)

    def _plan_ident(self, node: Ident) -> PlannedNode:
        name = self.get_qualified_name(node)
        if name is not None:
            return make_constant(TypeName(name))
        bound = self.locals.get(node.name)
        if bound:
            slot, source = bound[-1]
            return PlannedNode(
                _build_read_step(slot) if source is None else _build_lazy_read_step(slot, source),
                is_path=True,
            )
        if node.name not in self.variables:
            self.variables[node.name] = self.frame_size
            self.frame_size += 1
        return PlannedNode(_build_read_step(self.variables[node.name]), is_path=True)

    def _plan_select(self, node: Select) -> PlannedNode:
        name = self.get_qualified_name(node)
        if name is not None:
            return make_constant(TypeName(name))
        return plan_presence(self, node) if node.test else plan_path(self, node)

    def _plan_call(self, node: FunctionCall) -> PlannedNode:
        deciding = _CONTROL_OPERATORS.get(node.function)
        if deciding is not None and node.target is None:
            return deciding(self, node)
        if is_path(node):
            return plan_path(self, node)
        if node.function in _ALTERNATIVES and node.target is not None:
            return plan_alternative(self, node)
        return plan_call(self, node)

    def _plan_list(self, node: ListLiteral) -> PlannedNode:
        plans = [self.plan(item) for item in node.items]
        if all(plan.is_constant for plan in plans) and not node.optional:
            return make_constant(tuple(plan.value for plan in plans))
        steps = tuple(plan.run for plan in plans)
        return PlannedNode(_build_list_step(steps, node.optional, node.offset))

    def _plan_map(self, node: MapLiteral) -> PlannedNode:
        pairs = [(self.plan(entry.key), self.plan(entry.value), entry.optional) for entry in node.entries]
        steps = tuple((key.run, value.run, optional) for key, value, optional in pairs)
        build = _build_map_step(steps, node.offset)
        if all(key.is_constant and value.is_constant and not optional for key, value, optional in pairs):
            try:
                return make_constant(build([0, 0]))
            except CelError:
                # Such a map fails when the expression runs, if it is needed at all.
                return PlannedNode(build)
        return PlannedNode(build)

    def _plan_comprehension(self, node: Comprehension) -> PlannedNode:
        return plan_comprehension(self, node)

    def _plan_optional_map(self, node: OptionalMap) -> PlannedNode:
        return plan_optional_map(self, node)


def _build_read_step(slot: int) -> Step:
    def read(frame: Frame) -> Value:
        frame[COST] += IDENT_COST
        return frame[slot]

    return read


def _build_lazy_read_step(slot: int, source: Step) -> Step:
    """A name of `cel.bind`: its value is computed when it is first read."""

    def read(frame: Frame) -> Value:
        frame[COST] += IDENT_COST
        value = frame[slot]
        if value is UNSET:
            value = frame[slot] = source(frame)
        return value

    return read


def _build_list_step(steps: tuple[Step, ...], optional: frozenset[int], offset: int) -> Step:
    def build(frame: Frame) -> tuple[Value, ...]:
        values = [step(frame) for step in steps]
        frame[COST] += LIST_COST
        if not optional:
            return tuple(values)
        kept: list[Value] = []
        for place, value in enumerate(values):
            kept += (value,) if place not in optional else _unwrap_optional_entry(value, offset)
        return tuple(kept)

    return build


def _build_map_step(steps: tuple[tuple[Step, Step, bool], ...], offset: int) -> Step:
    def build(frame: Frame) -> dict[Any, Value]:
        result: dict[Any, Value] = {}
        for key_step, value_step, optional in steps:
            key, value = key_step(frame), value_step(frame)
            try:
                place = to_map_key(key)
                if place in result:
                    raise CelError(f"Failed with repeated key: {key}")
            except CelError as error:
                raise attach_offset(error, offset) from None
            for one in _unwrap_optional_entry(value, offset) if optional else (value,):
                result[place] = one
        frame[COST] += MAP_COST
        return result

    return build


def _unwrap_optional_entry(value: Value, offset: int) -> tuple[Value, ...]:
    """The value of an optional entry, or nothing."""
    if type(value) is not OptionalValue:
        raise attach_offset(make_overload_error(), offset)
    return () if value is NONE else (value.value,)


_VISITORS: Final[dict[type, Callable[..., PlannedNode]]] = {
    Literal: _Planner._plan_literal,
    Ident: _Planner._plan_ident,
    Select: _Planner._plan_select,
    FunctionCall: _Planner._plan_call,
    ListLiteral: _Planner._plan_list,
    MapLiteral: _Planner._plan_map,
    Comprehension: _Planner._plan_comprehension,
    OptionalMap: _Planner._plan_optional_map,
}
