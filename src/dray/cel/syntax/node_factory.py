"""Where nodes are made: each gets its number and its depth here, and too deep ones are refused.

The cap on depth is what keeps every later pass, and the evaluation itself, from running out of stack.
"""

from __future__ import annotations

from typing import Final, NoReturn

from dray.cel.faults import RejectedError
from dray.cel.source import Issue
from dray.cel.syntax.ast import (
    Call,
    Entry,
    Fold,
    FoldKind,
    Ident,
    ListLiteral,
    Literal,
    Loop,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
)
from dray.cel.values import Value

MAX_DEPTH: Final = 250
"""As in cel-go."""
_MACRO_DEPTH: Final = 2


def too_deep(offset: int) -> NoReturn:
    """Refuse an expression that is nested beyond the cap."""
    raise RejectedError((Issue(offset, f"expression recursion limit exceeded: {MAX_DEPTH}"),))


class Maker:
    """Makes the nodes of one expression."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def _number(self) -> int:
        self._count += 1
        return self._count

    @staticmethod
    def _depth(offset: int, *below: Node) -> int:
        depth = 1 + max((node.depth for node in below), default=0)
        if depth > MAX_DEPTH:
            too_deep(offset)
        return depth

    def literal(self, offset: int, value: Value) -> Literal:
        """A constant."""
        return Literal(self._number(), offset, 1, value)

    def ident(self, offset: int, name: str) -> Ident:
        """A name."""
        return Ident(self._number(), offset, 1, name)

    def select(self, offset: int, operand: Node, field: str, optional: bool = False) -> Select:
        """`operand.field`, `operand.?field`."""
        depth = self._depth(offset, operand)
        return Select(self._number(), offset, depth, operand, field, optional=optional)

    def presence(self, offset: int, operand: Node, field: str) -> Select:
        """`has(operand.field)`."""
        return Select(self._number(), offset, self._depth(offset, operand), operand, field, test=True)

    def call(self, offset: int, function: str, *args: Node, target: Node | None = None) -> Call:
        """A function or operator applied to arguments."""
        below = args if target is None else (target, *args)
        return Call(self._number(), offset, self._depth(offset, *below), function, target, args)

    def items(self, offset: int, items: tuple[Node, ...], optional: frozenset[int]) -> ListLiteral:
        """A list literal."""
        return ListLiteral(self._number(), offset, self._depth(offset, *items), items, optional)

    def entries(self, offset: int, entries: tuple[Entry, ...]) -> MapLiteral:
        """A map literal."""
        below = [part for entry in entries for part in (entry.key, entry.value)]
        return MapLiteral(self._number(), offset, self._depth(offset, *below), entries)

    def fold(self, offset: int, kind: FoldKind, source: Node, names: tuple[str, ...], loop: Loop) -> Fold:
        """A walk over a list or map, without what was written; see `written`."""
        return Fold(self._number(), offset, source.depth, kind, source, names, None, None, loop)

    def written(self, fold: Fold, test: Node | None, made: Node | None) -> Fold:
        """The fold together with the predicate and the result that were written in the macro.

        What was written counts, not the loop it stands for; but a macro inside another needs more of the
        stack than other things do.
        """
        parts = [part for part in (fold.source, fold.loop.init, test, made) if part is not None]
        depth = self._depth(fold.offset, *parts) + _MACRO_DEPTH
        return Fold(fold.id, fold.offset, depth, fold.kind, fold.source, fold.names, test, made, fold.loop)

    def optional_map(
        self, target: Node, bound: tuple[str, Node], flat: bool, spelled_out: Node
    ) -> OptionalMap:
        """`target.optMap(name, made)`."""
        offset = spelled_out.offset
        depth = max(self._depth(offset, target), self._depth(offset, bound[1]) + _MACRO_DEPTH)
        return OptionalMap(self._number(), offset, depth, target, *bound, flat, spelled_out)
