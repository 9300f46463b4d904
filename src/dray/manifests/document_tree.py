"""Document tree: plain values with their positions in the text.

Rules for this file: a tree is built once, by one of the readers (`yaml_reader`, `json_reader`), and never
changed after that. Aliases of YAML share their nodes, so a tree may be an acyclic graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dray.manifests.source import TextPosition


class DocumentNode:
    """One value and its position; `fields` of a map and `items` of a list are nodes again."""

    __slots__ = ("column", "line", "value")

    def __init__(self, line: int, column: int, value: Any) -> None:
        self.line = line
        self.column = column
        self.value = value

    @property
    def position(self) -> TextPosition:
        return TextPosition(self.line, self.column)

    def iterate_children(self) -> Iterator[DocumentNode]:
        """Iterate over the nodes directly below."""
        return iter(())


class ListNode(DocumentNode):
    """A list, item by item."""

    __slots__ = ("items",)

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column, [])
        self.items: list[DocumentNode] = []

    def append(self, node: DocumentNode) -> None:
        self.items.append(node)
        self.value.append(node.value)

    def iterate_children(self) -> Iterator[DocumentNode]:
        return iter(self.items)


class MapNode(DocumentNode):
    """A map: in the order of the keys of `value`, the position of each key and the node of its value.

    Two lists beside one dict, because a large dump has a million small maps and dicts are not small.
    """

    __slots__ = ("items", "key_positions")

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column, {})
        self.key_positions: list[TextPosition] = []
        self.items: list[DocumentNode] = []

    def set_field(self, key: str, position: TextPosition, node: DocumentNode) -> TextPosition | None:
        """Set a field; returns the position of the same key before, when there was one."""
        earlier = None
        if key in self.value:
            index = self._find_index(key)
            earlier, self.key_positions[index], self.items[index] = self.key_positions[index], position, node
        else:
            self.key_positions.append(position)
            self.items.append(node)
        self.value[key] = node.value
        return earlier

    def get_field(self, key: str) -> tuple[TextPosition, DocumentNode]:
        """Return the position of a key, and the node of its value."""
        index = self._find_index(key)
        return self.key_positions[index], self.items[index]

    def _find_index(self, key: str) -> int:
        return next(i for i, known in enumerate(self.value) if known == key)

    def iterate_children(self) -> Iterator[DocumentNode]:
        return iter(self.items)


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    """A key that a map has twice; readers keep the last value."""

    path: str
    key: str
    first: TextPosition
    second: TextPosition


def format_step(key: str) -> str:
    """Format a key as one step of a field path; in brackets when it contains separators of steps."""
    return f"[{key}]" if not key or any(char in "./[] " for char in key) else f".{key}"


def locate_field(root: DocumentNode, path: str, *, key: bool = False) -> TextPosition:
    """Return the position of a field; when it does not exist, of its nearest parent.

    A value that starts on a line below its key is located at its key, because that is where a person looks;
    `key` asks for the key of any field.
    """
    node: DocumentNode = root
    place: TextPosition | None = None
    rest = path
    while rest:
        found = _descend(node, rest)
        if found is None:
            break
        place, node, rest = found
    if place is not None and ((key and not rest) or _is_below_key(node, place)):
        return place
    return node.position


def _is_below_key(node: DocumentNode, key_place: TextPosition) -> bool:
    # An alias may point to a position above; then, too, the field is located at its key.
    return node.value is None or node.line != key_place.line


def _descend(node: DocumentNode, rest: str) -> tuple[TextPosition | None, DocumentNode, str] | None:
    """Return the child that a path leads to next, with the position of its key and the rest of the path."""
    if isinstance(node, ListNode):
        closed = rest.find("]")
        index = rest[1:closed]
        if rest[0] == "[" and index.isascii() and index.isdigit() and int(index) < len(node.items):
            return None, node.items[int(index)], rest[closed + 1 :]
    elif isinstance(node, MapNode):
        # Keys are matched against the path, instead of splitting the path into keys: a key may contain any
        # character.
        best = max((k for k in node.value if _strip_key(rest, k) is not None), key=len, default=None)
        if best is not None:
            after = _strip_key(rest, best)
            assert after is not None
            return *node.get_field(best), after
    return None


def _strip_key(rest: str, key: str) -> str | None:
    """Return what follows a key at the start of a path: nothing, or the next step."""
    for spelling in (f".{key}", key, f"[{key}]"):
        if rest.startswith(spelling):
            after = rest[len(spelling) :]
            if not after or after[0] in ".[":
                return after
    return None
