"""The nodes of the syntax tree.

Every node has an `id` that is unique in its expression (the checker's findings are kept by it), the `offset`
that messages point to, and its `depth`, the longest path down to a leaf. A node may occur twice in the tree:
macros that use their target twice do not copy it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

import msgspec

from dray.cel.values import Value


class _AstNode(msgspec.Struct, frozen=True, eq=False):
    id: int
    offset: int
    depth: int


class Literal(_AstNode, frozen=True, eq=False):
    """A constant as it was written."""

    value: Value


class Ident(_AstNode, frozen=True, eq=False):
    """A name that stands for a value."""

    name: str


class Select(_AstNode, frozen=True, eq=False):
    """`operand.field`; with `test` the macro `has`, with `optional` the form `operand.?field`."""

    operand: Node
    field: str
    test: bool = False
    optional: bool = False


class FunctionCall(_AstNode, frozen=True, eq=False):
    """A function or operator; a member function has a target."""

    function: str
    target: Node | None
    args: tuple[Node, ...]


class ListLiteral(_AstNode, frozen=True, eq=False):
    """`[a, ?b]`; `optional` has the places written with a question mark."""

    items: tuple[Node, ...]
    optional: frozenset[int] = frozenset()


class MapEntry(msgspec.Struct, frozen=True, eq=False):
    """One `key: value` of a map."""

    key: Node
    value: Node
    optional: bool = False


class MapLiteral(_AstNode, frozen=True, eq=False):
    """`{a: b, ?c: d}`."""

    entries: tuple[MapEntry, ...]


class ComprehensionKind(Enum):
    """Which macro a comprehension was written as."""

    ALL = auto()
    EXISTS = auto()
    EXISTS_ONE = auto()
    LIST = auto()
    """`map`, `filter`, `transformList`."""
    MAP = auto()
    """`transformMap`."""
    ENTRIES = auto()
    """`transformMapEntry`."""
    BIND = auto()
    """`cel.bind`."""


class ComprehensionLoop(msgspec.Struct, frozen=True, eq=False):
    """The loop that the CEL specification gives a macro; types and costs are computed on it."""

    accu: str
    init: Node
    condition: Node
    step: Node
    result: Node


class Comprehension(_AstNode, frozen=True, eq=False):
    """A macro that iterates over a list or a map, or binds a name.

    `test` and `transform` are what was written; `loop` says the same as a loop with an accumulator.
    """

    kind: ComprehensionKind
    source: Node
    names: tuple[str, ...]
    test: Node | None
    transform: Node | None
    loop: ComprehensionLoop


class OptionalMap(_AstNode, frozen=True, eq=False):
    """`target.optMap(name, transform)`, or `optFlatMap`; `expansion` is the equivalent without a macro."""

    target: Node
    name: str
    transform: Node
    flat: bool
    expansion: Node


Node: TypeAlias = (
    Literal | Ident | Select | FunctionCall | ListLiteral | MapLiteral | Comprehension | OptionalMap
)


def get_children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below one; of a macro, those of the loop it stands for."""
    match node:
        case Select():
            return (node.operand,)
        case FunctionCall():
            return node.args if node.target is None else (node.target, *node.args)
        case ListLiteral():
            return node.items
        case MapLiteral():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case Comprehension():
            loop = node.loop
            return (node.source, loop.init, loop.condition, loop.step, loop.result)
        case OptionalMap():
            return (node.expansion,)
        case _:
            return ()


def get_dotted_name(node: Node) -> str | None:
    """`a.b.c` as one name, when the node is nothing but names and dots."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))
