"""A document as a tree: plain values, and beside them where each of them stands.

Rules for this file: a tree is built once, by one of the readers (`yamltext`, `jsontext`), and never changed
after that. Aliases of YAML share their nodes, so a tree may be a graph without circles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dray.manifests.source import Position


class Node:
    """One value and its place; `fields` of a map and `items` of a list are nodes again."""

    __slots__ = ("column", "line", "value")

    def __init__(self, line: int, column: int, value: Any) -> None:
        self.line = line
        self.column = column
        self.value = value

    @property
    def position(self) -> Position:
        return Position(self.line, self.column)

    def children(self) -> Iterator[Node]:
        """The nodes directly below."""
        return iter(())


class ListNode(Node):
    """A list, item by item."""

    __slots__ = ("items",)

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column, [])
        self.items: list[Node] = []

    def append(self, node: Node) -> None:
        self.items.append(node)
        self.value.append(node.value)

    def children(self) -> Iterator[Node]:
        return iter(self.items)


class MapNode(Node):
    """A map: for every key the node of the key and the node of its value."""

    __slots__ = ("fields", "keys")

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column, {})
        self.fields: dict[str, Node] = {}
        self.keys: dict[str, Node] = {}

    def set(self, key: str, key_node: Node, node: Node) -> None:
        self.keys[key] = key_node
        self.fields[key] = node
        self.value[key] = node.value

    def children(self) -> Iterator[Node]:
        return iter(self.fields.values())


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    """A key that a map holds twice; readers keep the last value."""

    path: str
    key: str
    first: Position
    again: Position


def step(key: str) -> str:
    """A key as one step of a field path; bracketed when it holds characters that separate steps."""
    return f"[{key}]" if not key or any(char in "./[] " for char in key) else f".{key}"


def locate(root: Node, path: str, *, key: bool = False) -> Position:
    """Where a field stands; when it does not exist, the nearest parent that does.

    A value that goes on over lines below its key is found at its key, because that is where a person looks;
    `key` asks for the key of any field.
    """
    node: Node = root
    key_node: Node | None = None
    rest = path
    while rest:
        found = _descend(node, rest)
        if found is None:
            break
        key_node, node, rest = found
    if key_node is not None and ((key and not rest) or _stands_below(node, key_node)):
        return key_node.position
    return node.position


def _stands_below(node: Node, key_node: Node) -> bool:
    # An alias may point to a place above; then, too, the key is where the field is.
    return node.value is None or node.line != key_node.line


def _descend(node: Node, rest: str) -> tuple[Node | None, Node, str] | None:
    """The child a path leads to next, with its key and what remains of the path."""
    if isinstance(node, ListNode):
        closed = rest.find("]")
        index = rest[1:closed]
        if rest[0] == "[" and index.isascii() and index.isdigit() and int(index) < len(node.items):
            return None, node.items[int(index)], rest[closed + 1 :]
    elif isinstance(node, MapNode):
        # Keys are matched against the path, and not the path cut into keys: a key may hold any character.
        best = max((k for k in node.fields if _after(rest, k) is not None), key=len, default=None)
        if best is not None:
            after = _after(rest, best)
            assert after is not None
            return node.keys[best], node.fields[best], after
    return None


def _after(rest: str, key: str) -> str | None:
    """What follows a key at the start of a path: nothing, or the next step."""
    for spelling in (f".{key}", key, f"[{key}]"):
        if rest.startswith(spelling):
            after = rest[len(spelling) :]
            if not after or after[0] in ".[":
                return after
    return None
