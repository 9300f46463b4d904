"""Which static types can be relied on at run time.

The checker uses `dyn`, which fits everywhere: it takes `[1] + dyn(["a"])` for a list of ints, and an item of
it for an int. Such a type may turn out wrong at run time. A type is *static* when it is that of a literal, of
a declared variable or of a field of one, or of a call that can return only one plain type: either all its
overloads do, or its arguments have static types themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dray.cel.declarations import Overload
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
)
from dray.cel.types import TypeKind

_INDEX: Final = frozenset({"_[_]", "_[?_]"})


class StaticTypes:
    """Answers which types of one expression are static."""

    __slots__ = ("_known", "_locals", "_reachable")

    def __init__(
        self, get_reachable_overloads: Callable[[Node], tuple[Overload, ...]], locals: Mapping[str, object]
    ) -> None:
        self._reachable = get_reachable_overloads
        self._locals = locals
        self._known: dict[int, bool] = {}

    def __call__(self, node: Node) -> bool:
        """Whether every value of the node has the outermost kind that the checker found."""
        known = self._known.get(node.id)
        if known is None:
            known = self._known[node.id] = self._is_static(node)
        return known

    def _is_static(self, node: Node) -> bool:
        match node:
            case Literal() | ListLiteral() | MapLiteral():
                return True
            case Comprehension():
                return node.kind is not ComprehensionKind.BIND
            case OptionalMap():
                return not node.flat
            case Ident():
                return not self._locals.get(node.name)
            case Select():
                return node.test or self._has_static_contents(node.operand)
            case FunctionCall() if node.function in _INDEX:
                return self._has_static_contents(node.args[0])
            case FunctionCall():
                return self._is_call_static(node)

    def _has_static_contents(self, node: Node) -> bool:
        """Whether the items inside a value have the type that the checker found, too."""
        while isinstance(node, Select) or (isinstance(node, FunctionCall) and node.function in _INDEX):
            node = node.operand if isinstance(node, Select) else node.args[0]
        if isinstance(node, FunctionCall):
            return not any(one.generic or one.without_type_guards for one in self._reachable(node))
        return isinstance(node, Ident) and not self._locals.get(node.name)

    def _is_call_static(self, node: FunctionCall) -> bool:
        overloads = self._reachable(node)
        if any(one.result.kind in (TypeKind.VARIABLE, TypeKind.DYN) for one in overloads):
            return False
        if len({(one.result.kind, one.result.name) for one in overloads}) == 1:
            return True
        return all(self(arg) for arg in node.args)
