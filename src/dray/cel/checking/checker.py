"""The type checker: the type of every node of an expression, and the overloads each call can mean.

Theory of operation: the checker walks the tree once, from the leaves up. It compares a call with every
overload of its name and keeps all that fit; the call gets the result type they agree on, else `dyn`. An
overload that fits only because an argument is `dyn` is decided again at run time. A node with an issue gets
the type `ERROR`, which fits everywhere, so that one mistake is reported once. Nodes that are used twice are
checked once.

Rules for this file: nothing is evaluated, and no value is rejected; see `literal_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dray.cel import types as t
from dray.cel.checking.unification import Substitution
from dray.cel.declarations import Functions, Overload
from dray.cel.issue_causes import (
    IssueCause,
    MixedTypes,
    NoFieldSelection,
    NoMatchingOverload,
    UndeclaredReference,
    UndefinedField,
)
from dray.cel.source import ExpressionIssue, sort_issues
from dray.cel.syntax.ast import (
    Comprehension,
    FunctionCall,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    get_children,
    get_dotted_name,
)
from dray.cel.syntax.traversal import MAX_RECURSION_DEPTH, visit_bottom_up
from dray.cel.types import Type, TypeKind
from dray.cel.values import get_type_name

MAX_WEIGHT: Final = 250
"""Larger types are rejected: nobody writes them, and they could grow without bound."""

TYPE_NAMES: Final[Mapping[str, Type]] = {
    **{one.name: one for one in (t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.NULL)},
    **{one.name: one for one in (t.DURATION, t.TIMESTAMP, t.IP, t.CIDR)},
    "list": t.make_list_type(t.DYN),
    "map": t.make_map_type(t.DYN, t.DYN),
    "type": t.make_type_type(t.DYN),
    t.OPTIONAL_NAME: t.make_optional_type(t.DYN),
}
"""Names that stand for a type as a value: `type(x) == string`."""

_LITERAL_TYPES: Final = {
    one.name: one for one in (t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.NULL)
}
_NO_RANGE: Final = "cannot be range of a comprehension (must be list, map, or dynamic)"
_LAST_NAME_PARTS: Final = frozenset(name.rpartition(".")[2] for name in TYPE_NAMES if "." in name)


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables, functions and types that an expression may use."""

    variables: Mapping[str, Type]
    functions: Functions
    fields: Mapping[str, Mapping[str, Type]]
    """The fields of each struct type, by the name of the type."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of the checker by node id."""

    types: Mapping[int, Type]
    overloads: Mapping[int, tuple[Overload, ...]]
    qualified: Mapping[int, str]
    """Nodes that are one qualified name: a type, or a function such as `optional.of`."""


def check(root: Node, scope: Scope) -> tuple[CheckResult, list[ExpressionIssue]]:
    """Check a tree; the issues are in the order of the text."""
    walk = _Checker(scope)
    walk.check_node(root)
    types = {
        number: walk.substitution.resolve(one, unknown_as_dyn=True) for number, one in walk.types.items()
    }
    return CheckResult(types, walk.overloads, walk.qualified), sort_issues(walk.issues)


class _Checker:
    """One walk over one tree."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.substitution = Substitution()
        self.locals: list[dict[str, Type]] = []
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[Overload, ...]] = {}
        self.qualified: dict[int, str] = {}
        self.issues: list[ExpressionIssue] = []

    def check_node(self, node: Node) -> Type:
        known = self.types.get(node.id)
        if known is not None:
            return known
        if node.depth > MAX_RECURSION_DEPTH:
            visit_bottom_up(node, self.types, self._get_children_first, self._visit)
        return self._visit(node)

    def _visit(self, node: Node) -> Type:
        found = _VISITORS[type(node)](self, node)
        if found.weight > MAX_WEIGHT:
            found = self._add_issue(node, "the type of this expression is too complex")
        self.types[node.id] = found
        return found

    def _get_children_first(self, node: Node) -> tuple[Node, ...]:
        """The children to check before a node; the body of a macro needs the variables it binds."""
        match node:
            case Comprehension():
                return (node.source,)
            case OptionalMap():
                return (node.target,)
            case FunctionCall() if (
                node.target is not None and self._find_qualified_function(node) is not None
            ):
                return node.args
            case Select() if node.field in _LAST_NAME_PARTS:
                return ()
            case _:
                return get_children(node)

    def _add_issue(self, node: Node, message: str, cause: IssueCause | None = None) -> Type:
        self.issues.append(ExpressionIssue(node.offset, message, cause))
        return t.ERROR

    def _report_undeclared(self, node: Node, name: str) -> Type:
        message = f"undeclared reference to '{name}' (in container '')"
        return self._add_issue(node, message, UndeclaredReference(name))

    def _find_variable(self, name: str) -> Type | None:
        for scope in reversed(self.locals):
            if name in scope:
                return scope[name]
        return self.scope.variables.get(name)

    # --- leaves and selections ---

    def _check_literal(self, node: Literal) -> Type:
        return _LITERAL_TYPES[get_type_name(node.value)]

    def _check_ident(self, node: Ident) -> Type:
        found = self._find_variable(node.name)
        if found is not None:
            return found
        if node.name in TYPE_NAMES:
            self.qualified[node.id] = node.name
            return t.make_type_type(TYPE_NAMES[node.name])
        return self._report_undeclared(node, node.name)

    def _check_select(self, node: Select) -> Type:
        if node.field in _LAST_NAME_PARTS and not node.optional:
            name = get_dotted_name(node) or ""
            if name in TYPE_NAMES:
                self.qualified[node.id] = name
                return t.make_type_type(TYPE_NAMES[name])
        operand = self.substitution.resolve(self.check_node(node.operand))
        chained = t.is_optional(operand)
        found = self._check_field(node, operand.params[0] if chained else operand)
        if node.test:
            return t.BOOL
        return t.make_optional_type(found) if node.optional or chained else found

    def _check_field(self, node: Select, operand: Type) -> Type:
        if operand.is_dyn:
            return t.DYN
        if operand.kind is TypeKind.MAP:
            return operand.params[1]
        if operand.kind is TypeKind.VARIABLE:
            self.substitution.is_assignable(operand, t.DYN)
            return t.DYN
        if operand.kind is TypeKind.STRUCT and operand.name in self.scope.fields:
            found = self.scope.fields[operand.name].get(node.field)
            if found is not None:
                return found
            return self._add_issue(node, f"undefined field '{node.field}'", UndefinedField(node.field))
        message = f"type '{t.format_type(operand)}' does not support field selection"
        return self._add_issue(node, message, NoFieldSelection(operand))

    # --- calls ---

    def _check_call(self, node: FunctionCall) -> Type:
        given = tuple(self.check_node(arg) for arg in node.args)
        target = node.target
        if target is None:
            return self._resolve_overload(node, node.function, given, False)
        qualified = self._find_qualified_function(node)
        if qualified is not None:
            self.qualified[node.id] = qualified
            return self._resolve_overload(node, qualified, given, False)
        return self._resolve_overload(node, node.function, (self.check_node(target), *given), True)

    def _find_qualified_function(self, node: FunctionCall) -> str | None:
        """The qualified name of a function, when the target of a call is part of that name."""
        space = None if node.target is None else get_dotted_name(node.target)
        name = f"{space}.{node.function}"
        return name if space is not None and name in self.scope.functions else None

    def _resolve_overload(self, node: FunctionCall, name: str, given: tuple[Type, ...], member: bool) -> Type:
        declared = self.scope.functions.get(name)
        if declared is None:
            return self._report_undeclared(node, name)
        matching: list[Overload] = []
        result: Type | None = None
        for overload in declared:
            if overload.member is not member or len(overload.params) != len(given):
                continue
            found = self._match_overload(overload, given)
            if found is None:
                continue
            matching.append(overload)
            result = found if result is None or result == found else t.DYN
        if result is None:
            types = tuple(self.substitution.resolve(one) for one in given)
            applied = t.format_call_types(types, member)
            message = f"found no matching overload for '{name}' applied to '{applied}'"
            return self._add_issue(node, message, NoMatchingOverload(name, types))
        self.overloads[node.id] = tuple(matching)
        return result

    def _match_overload(self, overload: Overload, given: tuple[Type, ...]) -> Type | None:
        """The result type if the overload accepts these arguments."""
        if not all(_may_fit(wanted, one) for wanted, one in zip(overload.params, given, strict=True)):
            return None
        unified = self.substitution
        params, result = overload.params, overload.result
        if overload.generic:
            *params_renamed, result = unified.rename_variables((*params, result))
            params = tuple(params_renamed)
        mark = unified.mark()
        for wanted, one in zip(params, given, strict=True):
            if not unified.is_assignable(wanted, one):
                unified.rewind(mark)
                return None
        return unified.resolve(result) if overload.generic else result

    # --- aggregates ---

    def _check_list(self, node: ListLiteral) -> Type:
        item: Type | None = None
        for place, one in enumerate(node.items):
            found = self.check_node(one)
            if place in node.optional:
                found = self._unwrap_optional(one, found)
            item = self.substitution.join_types(item, found)
        return t.make_list_type(item or self.substitution.make_variable())

    def _check_map(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.substitution.join_types(key, self.check_node(entry.key))
            found = self.check_node(entry.value)
            if entry.optional:
                found = self._unwrap_optional(entry.value, found)
            value = self.substitution.join_types(value, found)
        return t.make_map_type(
            key or self.substitution.make_variable(), value or self.substitution.make_variable()
        )

    def _unwrap_optional(self, node: Node, found: Type) -> Type:
        """The type inside an optional; only optionals may be marked with a question mark."""
        inner = self.substitution.make_variable()
        if self.substitution.is_assignable(t.make_optional_type(inner), found):
            return self.substitution.resolve(inner, unknown_as_dyn=found.is_dyn)
        return self._report_mixed_types(node, t.make_optional_type(found), found)

    def _report_mixed_types(self, node: Node, expected: Type, found: Type) -> Type:
        expected, found = self.substitution.resolve(expected), self.substitution.resolve(found)
        message = f"expected type '{t.format_type(expected)}' but found '{t.format_type(found)}'"
        return self._add_issue(node, message, MixedTypes(expected, found))

    # --- macros ---

    def _check_comprehension(self, node: Comprehension) -> Type:
        loop = node.loop
        variables = self._get_iteration_types(node, self.substitution.resolve(self.check_node(node.source)))
        accu = self.check_node(loop.init)
        self.locals.append({loop.accu: accu})
        self.locals.append(variables)
        self.check_node(loop.condition)
        step = self.check_node(loop.step)
        if not self.substitution.is_assignable(accu, step):
            self._report_mixed_types(loop.step, accu, step)
        self.locals.pop()
        result = self.check_node(loop.result)
        self.locals.pop()
        return self.substitution.resolve(result)

    def _get_iteration_types(self, node: Comprehension, source: Type) -> dict[str, Type]:
        """The variables of a macro and their types."""
        if source.kind is TypeKind.LIST:
            types = (t.INT, source.params[0])
        elif source.kind is TypeKind.MAP:
            types = (source.params[0], source.params[1])
        elif source.kind in (TypeKind.DYN, TypeKind.ERROR, TypeKind.VARIABLE):
            types = (t.DYN, t.DYN)
        else:
            message = f"expression of type '{t.format_type(source)}' {_NO_RANGE}"
            types = (self._add_issue(node.source, message), t.ERROR)
        if len(node.names) == 2:
            return dict(zip(node.names, types, strict=True))
        return {node.names[0]: types[1] if source.kind is TypeKind.LIST else types[0]}

    def _check_optional_map(self, node: OptionalMap) -> Type:
        return self.check_node(node.expansion)


def _may_fit(wanted: Type, given: Type) -> bool:
    """Whether an overload can fit at all: a cheap test without unification that rules most overloads out."""
    return wanted.is_open or given.is_open or wanted.kind is given.kind or given.kind is TypeKind.NULL


_VISITORS: Final[dict[type, Callable[..., Type]]] = {
    Literal: _Checker._check_literal,
    Ident: _Checker._check_ident,
    Select: _Checker._check_select,
    FunctionCall: _Checker._check_call,
    ListLiteral: _Checker._check_list,
    MapLiteral: _Checker._check_map,
    Comprehension: _Checker._check_comprehension,
    OptionalMap: _Checker._check_optional_map,
}
