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
    """A map: in the order of the keys of `value`, where each key stands and the node of its value.

    Two lists beside one dict, because a large dump has a million small maps and dicts are not small.
    """

    __slots__ = ("items", "key_places")

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column, {})
        self.key_places: list[Position] = []
        self.items: list[Node] = []

    def set(self, key: str, place: Position, node: Node) -> Position | None:
        """Set a field; the place of the same key before, when there was one."""
        earlier = None
        if key in self.value:
            index = self._index(key)
            earlier, self.key_places[index], self.items[index] = self.key_places[index], place, node
        else:
            self.key_places.append(place)
            self.items.append(node)
        self.value[key] = node.value
        return earlier

    def field(self, key: str) -> tuple[Position, Node]:
        """Where a key stands, and its value."""
        index = self._index(key)
        return self.key_places[index], self.items[index]

    def _index(self, key: str) -> int:
        return next(i for i, known in enumerate(self.value) if known == key)

    def children(self) -> Iterator[Node]:
        return iter(self.items)


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
    place: Position | None = None
    rest = path
    while rest:
        found = _descend(node, rest)
        if found is None:
            break
        place, node, rest = found
    if place is not None and ((key and not rest) or _stands_below(node, place)):
        return place
    return node.position


def _stands_below(node: Node, key_place: Position) -> bool:
    # An alias may point to a place above; then, too, the key is where the field is.
    return node.value is None or node.line != key_place.line


def _descend(node: Node, rest: str) -> tuple[Position | None, Node, str] | None:
    """The child a path leads to next, with the place of its key and what remains of the path."""
    if isinstance(node, ListNode):
        closed = rest.find("]")
        index = rest[1:closed]
        if rest[0] == "[" and index.isascii() and index.isdigit() and int(index) < len(node.items):
            return None, node.items[int(index)], rest[closed + 1 :]
    elif isinstance(node, MapNode):
        # Keys are matched against the path, and not the path cut into keys: a key may hold any character.
        best = max((k for k in node.value if _after(rest, k) is not None), key=len, default=None)
        if best is not None:
            after = _after(rest, best)
            assert after is not None
            return *node.field(best), after
    return None


def _after(rest: str, key: str) -> str | None:
    """What follows a key at the start of a path: nothing, or the next step."""
    for spelling in (f".{key}", key, f"[{key}]"):
        if rest.startswith(spelling):
            after = rest[len(spelling) :]
            if not after or after[0] in ".[":
                return after
    return None
