"""Types of every part of an expression, and which overload each call means.

Theory of operation: one walk from the leaves up. A call is compared with every overload of its name; all that
fit are kept, and the call has the result type they agree on, else `dyn`. What fits only because an argument
is `dyn` is decided again at run time. A part that was complained about gets the type `ERROR`, which fits
everywhere. Nodes that are used twice are checked once.

Rules for this file: nothing is evaluated, and nothing is refused because of a value; see `validators`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dray.cel import types as t
from dray.cel.checking.unification import Substitution
from dray.cel.declarations import Functions, Overload
from dray.cel.source import Issue
from dray.cel.syntax.ast import (
    Call,
    Fold,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    children,
    dotted,
)
from dray.cel.syntax.traversal import SHALLOW, settle
from dray.cel.types import Kind, Type
from dray.cel.values import type_name

MAX_WEIGHT: Final = 250
"""Types with more names in them are refused: nobody writes them, and they can grow without bound."""

TYPE_NAMES: Final[Mapping[str, Type]] = {
    **{one.name: one for one in (t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.NULL)},
    **{one.name: one for one in (t.DURATION, t.TIMESTAMP, t.IP, t.CIDR)},
    "list": t.list_of(t.DYN),
    "map": t.map_of(t.DYN, t.DYN),
    "type": t.type_of(t.DYN),
    t.OPTIONAL_NAME: t.optional_of(t.DYN),
}
"""Names that stand for a type as a value: `type(x) == string`."""

_LITERALS: Final = {one.name: one for one in (t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.NULL)}
_NO_RANGE: Final = "cannot be range of a comprehension (must be list, map, or dynamic)"
_LAST_WORDS: Final = frozenset(name.rpartition(".")[2] for name in TYPE_NAMES if "." in name)


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may mention."""

    variables: Mapping[str, Type]
    functions: Functions
    fields: Mapping[str, Mapping[str, Type]]
    """The fields of each struct type, by the name of the type."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checker found out, by the id of the node."""

    types: Mapping[int, Type]
    overloads: Mapping[int, tuple[Overload, ...]]
    qualified: Mapping[int, str]
    """Names with dots that mean one thing: a type, or a function such as `optional.of`."""


def check(root: Node, scope: Scope) -> tuple[Checked, list[Issue]]:
    """Check a tree; the issues are in the order of the text."""
    walk = _Checker(scope)
    walk.type_of(root)
    types = {number: walk.unified.resolved(one, loose=True) for number, one in walk.types.items()}
    issues = sorted(set(walk.issues))
    return Checked(types, walk.overloads, walk.qualified), issues


class _Checker:
    """One walk over one tree."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.unified = Substitution()
        self.locals: list[dict[str, Type]] = []
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[Overload, ...]] = {}
        self.qualified: dict[int, str] = {}
        self.issues: list[Issue] = []

    def type_of(self, node: Node) -> Type:
        known = self.types.get(node.id)
        if known is not None:
            return known
        if node.depth > SHALLOW:
            settle(node, self.types, self._below, self._visit)
        return self._visit(node)

    def _visit(self, node: Node) -> Type:
        found = _WAYS[type(node)](self, node)
        if found.weight > MAX_WEIGHT:
            found = self._complain(node, "the type of this expression is too complex")
        self.types[node.id] = found
        return found

    def _below(self, node: Node) -> tuple[Node, ...]:
        """What can be checked before a node without knowing more; the inside of a macro needs its names."""
        match node:
            case Fold():
                return (node.source,)
            case OptionalMap():
                return (node.target,)
            case Call() if node.target is not None and self._space(node) is not None:
                return node.args
            case Select() if node.field in _LAST_WORDS:
                return ()
            case _:
                return children(node)

    def _complain(self, node: Node, message: str) -> Type:
        self.issues.append(Issue(node.offset, message))
        return t.ERROR

    def _undeclared(self, node: Node, name: str) -> Type:
        return self._complain(node, f"undeclared reference to '{name}' (in container '')")

    def _variable(self, name: str) -> Type | None:
        for scope in reversed(self.locals):
            if name in scope:
                return scope[name]
        return self.scope.variables.get(name)

    # --- leaves and selections ---

    def _literal(self, node: Literal) -> Type:
        return _LITERALS[type_name(node.value)]

    def _ident(self, node: Ident) -> Type:
        found = self._variable(node.name)
        if found is not None:
            return found
        if node.name in TYPE_NAMES:
            self.qualified[node.id] = node.name
            return t.type_of(TYPE_NAMES[node.name])
        return self._undeclared(node, node.name)

    def _select(self, node: Select) -> Type:
        if node.field in _LAST_WORDS and not node.optional:
            name = dotted(node) or ""
            if name in TYPE_NAMES:
                self.qualified[node.id] = name
                return t.type_of(TYPE_NAMES[name])
        operand = self.unified.resolved(self.type_of(node.operand))
        chained = t.is_optional(operand)
        found = self._field(node, operand.params[0] if chained else operand)
        if node.test:
            return t.BOOL
        return t.optional_of(found) if node.optional or chained else found

    def _field(self, node: Select, operand: Type) -> Type:
        if operand.is_dyn:
            return t.DYN
        if operand.kind is Kind.MAP:
            return operand.params[1]
        if operand.kind is Kind.VARIABLE:
            self.unified.fits(operand, t.DYN)
            return t.DYN
        if operand.kind is Kind.STRUCT and operand.name in self.scope.fields:
            found = self.scope.fields[operand.name].get(node.field)
            return self._complain(node, f"undefined field '{node.field}'") if found is None else found
        return self._complain(node, f"type '{t.spelled(operand)}' does not support field selection")

    # --- calls ---

    def _call(self, node: Call) -> Type:
        given = tuple(self.type_of(arg) for arg in node.args)
        target = node.target
        if target is None:
            return self._resolved(node, node.function, given, False)
        qualified = self._space(node)
        if qualified is not None:
            self.qualified[node.id] = qualified
            return self._resolved(node, qualified, given, False)
        return self._resolved(node, node.function, (self.type_of(target), *given), True)

    def _space(self, node: Call) -> str | None:
        """The name of a function with dots, when the target of a call is no value but part of that name."""
        space = None if node.target is None else dotted(node.target)
        name = f"{space}.{node.function}"
        return name if space is not None and name in self.scope.functions else None

    def _resolved(self, node: Call, name: str, given: tuple[Type, ...], member: bool) -> Type:
        declared = self.scope.functions.get(name)
        if declared is None:
            return self._undeclared(node, name)
        matching: list[Overload] = []
        result: Type | None = None
        for overload in declared:
            if overload.member is not member or len(overload.params) != len(given):
                continue
            found = self._matched(overload, given)
            if found is None:
                continue
            matching.append(overload)
            result = found if result is None or result == found else t.DYN
        if result is None:
            words = t.call_spelled(tuple(self.unified.resolved(one) for one in given), member)
            return self._complain(node, f"found no matching overload for '{name}' applied to '{words}'")
        self.overloads[node.id] = tuple(matching)
        return result

    def _matched(self, overload: Overload, given: tuple[Type, ...]) -> Type | None:
        """The result type when the overload takes such arguments."""
        if not all(_may_fit(wanted, one) for wanted, one in zip(overload.params, given, strict=True)):
            return None
        unified = self.unified
        params, result = overload.params, overload.result
        if overload.generic:
            *params_renamed, result = unified.renamed((*params, result))
            params = tuple(params_renamed)
        mark = unified.mark()
        for wanted, one in zip(params, given, strict=True):
            if not unified.fits(wanted, one):
                unified.rewind(mark)
                return None
        return unified.resolved(result) if overload.generic else result

    # --- aggregates ---

    def _list(self, node: ListLiteral) -> Type:
        item: Type | None = None
        for place, one in enumerate(node.items):
            found = self.type_of(one)
            if place in node.optional:
                found = self._unwrapped(one, found)
            item = self.unified.joined(item, found)
        return t.list_of(item or self.unified.fresh())

    def _map(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.unified.joined(key, self.type_of(entry.key))
            found = self.type_of(entry.value)
            if entry.optional:
                found = self._unwrapped(entry.value, found)
            value = self.unified.joined(value, found)
        return t.map_of(key or self.unified.fresh(), value or self.unified.fresh())

    def _unwrapped(self, node: Node, found: Type) -> Type:
        """The type inside an optional; only optionals may be written with a question mark."""
        inner = self.unified.fresh()
        if self.unified.fits(t.optional_of(inner), found):
            return self.unified.resolved(inner, loose=found.is_dyn)
        shown = t.spelled(self.unified.resolved(found))
        return self._complain(node, f"expected type 'optional_type({shown})' but found '{shown}'")

    # --- macros ---

    def _fold(self, node: Fold) -> Type:
        loop = node.loop
        variables = self._walked(node, self.unified.resolved(self.type_of(node.source)))
        accu = self.type_of(loop.init)
        self.locals.append({loop.accu: accu})
        self.locals.append(variables)
        self.type_of(loop.condition)
        step = self.type_of(loop.step)
        if not self.unified.fits(accu, step):
            found = (t.spelled(self.unified.resolved(one)) for one in (accu, step))
            self._complain(loop.step, "expected type '{}' but found '{}'".format(*found))
        self.locals.pop()
        result = self.type_of(loop.result)
        self.locals.pop()
        return self.unified.resolved(result)

    def _walked(self, node: Fold, source: Type) -> dict[str, Type]:
        """The variables of a macro and their types."""
        if source.kind is Kind.LIST:
            types = (t.INT, source.params[0])
        elif source.kind is Kind.MAP:
            types = (source.params[0], source.params[1])
        elif source.kind in (Kind.DYN, Kind.ERROR, Kind.VARIABLE):
            types = (t.DYN, t.DYN)
        else:
            message = f"expression of type '{t.spelled(source)}' {_NO_RANGE}"
            types = (self._complain(node.source, message), t.ERROR)
        if len(node.names) == 2:
            return dict(zip(node.names, types, strict=True))
        return {node.names[0]: types[1] if source.kind is Kind.LIST else types[0]}

    def _optional_map(self, node: OptionalMap) -> Type:
        return self.type_of(node.spelled_out)


def _may_fit(wanted: Type, given: Type) -> bool:
    """A first look that assumes nothing, to spare most overloads the second one."""
    return wanted.is_open or given.is_open or wanted.kind is given.kind or given.kind is Kind.NULL


_WAYS: Final[dict[type, Callable[..., Type]]] = {
    Literal: _Checker._literal,
    Ident: _Checker._ident,
    Select: _Checker._select,
    Call: _Checker._call,
    ListLiteral: _Checker._list,
    MapLiteral: _Checker._map,
    Fold: _Checker._fold,
    OptionalMap: _Checker._optional_map,
}
