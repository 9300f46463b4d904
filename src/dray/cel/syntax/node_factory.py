"""The node factory: numbers the nodes of an expression, computes their depth and limits it.

The limit on depth keeps every later pass, and the evaluation itself, from running out of stack.
"""

from __future__ import annotations

from typing import Final, NoReturn

from dray.cel.faults import RejectedError
from dray.cel.source import ExpressionIssue
from dray.cel.syntax.ast import (
    Comprehension,
    ComprehensionKind,
    ComprehensionLoop,
    FunctionCall,
    Ident,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
)
from dray.cel.values import Value

MAX_DEPTH: Final = 250
"""As in cel-go."""
_MACRO_DEPTH: Final = 2


def reject_depth(offset: int) -> NoReturn:
    """Refuse an expression that is nested beyond the cap."""
    raise RejectedError((ExpressionIssue(offset, f"expression recursion limit exceeded: {MAX_DEPTH}"),))


class NodeFactory:
    """Makes the nodes of one expression."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def _next_id(self) -> int:
        self._count += 1
        return self._count

    @staticmethod
    def _compute_depth(offset: int, *below: Node) -> int:
        depth = 1 + max((node.depth for node in below), default=0)
        if depth > MAX_DEPTH:
            reject_depth(offset)
        return depth

    def make_literal(self, offset: int, value: Value) -> Literal:
        """A constant."""
        return Literal(self._next_id(), offset, 1, value)

    def make_ident(self, offset: int, name: str) -> Ident:
        """A name."""
        return Ident(self._next_id(), offset, 1, name)

    def make_select(self, offset: int, operand: Node, field: str, optional: bool = False) -> Select:
        """`operand.field`, `operand.?field`."""
        depth = self._compute_depth(offset, operand)
        return Select(self._next_id(), offset, depth, operand, field, optional=optional)

    def make_presence_test(self, offset: int, operand: Node, field: str) -> Select:
        """`has(operand.field)`."""
        return Select(
            self._next_id(), offset, self._compute_depth(offset, operand), operand, field, test=True
        )

    def make_call(self, offset: int, function: str, *args: Node, target: Node | None = None) -> FunctionCall:
        """A function or operator applied to arguments."""
        below = args if target is None else (target, *args)
        return FunctionCall(
            self._next_id(), offset, self._compute_depth(offset, *below), function, target, args
        )

    def make_list(self, offset: int, items: tuple[Node, ...], optional: frozenset[int]) -> ListLiteral:
        """A list literal."""
        return ListLiteral(self._next_id(), offset, self._compute_depth(offset, *items), items, optional)

    def make_map(self, offset: int, entries: tuple[MapEntry, ...]) -> MapLiteral:
        """A map literal."""
        below = [part for entry in entries for part in (entry.key, entry.value)]
        return MapLiteral(self._next_id(), offset, self._compute_depth(offset, *below), entries)

    def make_comprehension(
        self,
        offset: int,
        kind: ComprehensionKind,
        source: Node,
        names: tuple[str, ...],
        loop: ComprehensionLoop,
    ) -> Comprehension:
        """A loop over a list or map, without the macro as written; see `attach_written`."""
        return Comprehension(self._next_id(), offset, source.depth, kind, source, names, None, None, loop)

    def attach_written(
        self, comprehension: Comprehension, test: Node | None, transform: Node | None
    ) -> Comprehension:
        """The comprehension together with the predicate and the transform that the macro was written with.

        The depth counts what was written, not the loop it expands to; but a nested macro needs more of the
        stack than other nodes do.
        """
        parts = [
            part
            for part in (comprehension.source, comprehension.loop.init, test, transform)
            if part is not None
        ]
        depth = self._compute_depth(comprehension.offset, *parts) + _MACRO_DEPTH
        return Comprehension(
            comprehension.id,
            comprehension.offset,
            depth,
            comprehension.kind,
            comprehension.source,
            comprehension.names,
            test,
            transform,
            comprehension.loop,
        )

    def make_optional_map(
        self, target: Node, bound: tuple[str, Node], flat: bool, expansion: Node
    ) -> OptionalMap:
        """`target.optMap(name, transform)`."""
        offset = expansion.offset
        depth = max(self._compute_depth(offset, target), self._compute_depth(offset, bound[1]) + _MACRO_DEPTH)
        return OptionalMap(self._next_id(), offset, depth, target, *bound, flat, expansion)
