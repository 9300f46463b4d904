"""Sets of fields in the format FieldsV1.

Theory of operation: the set is the tree of FieldsV1: a dict from path elements to the sets below. A node
without elements is a member and nothing below it is; a node with elements is a member when one of them is
`.`. The root is never a member, so there an empty dict is the empty set. All operations look only where both
sides have something and share what they do not change; trees are never changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dray.api.json_text import MAX_DEPTH
from dray.server.patch.limits import measure_depth
from dray.server.patch.schema.path_elements import canonicalize_element, format_element, get_sort_key

FieldTree = dict[str, Any]

SELF: Final = "."

LEAF: Final[FieldTree] = {}
"""A member with nothing below. One dict for all: never to be changed."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldSet:
    """A set of field paths."""

    tree: FieldTree

    @classmethod
    def parse(cls, fields: Any) -> FieldSet:
        """Parse a set from the value of `fieldsV1`; raises `ValueError`."""
        if measure_depth(fields) > MAX_DEPTH:
            raise ValueError(f"a field set is nested more than {MAX_DEPTH} levels deep")
        return cls(parse_tree(fields))

    def to_fields_v1(self) -> FieldTree:
        """Return the value of `fieldsV1`, sorted."""
        return sort_tree(self.tree)

    def union(self, other: FieldSet) -> FieldSet:
        return FieldSet(unite_trees(self.tree, other.tree))

    def difference(self, other: FieldSet) -> FieldSet:
        return FieldSet(subtract_tree(self.tree, other.tree))

    def intersection(self, other: FieldSet) -> FieldSet:
        return FieldSet(intersect_trees(self.tree, other.tree))

    def contains(self, other: FieldSet) -> bool:
        """Return whether every member of the other is one of this."""
        return not subtract_tree(other.tree, self.tree)

    def list_paths(self) -> list[str]:
        """Return the members in readable form, in order."""
        return list(list_paths(self.tree))

    def __bool__(self) -> bool:
        return bool(self.tree)

    def __eq__(self, other: object) -> bool:
        return self.tree == other.tree if isinstance(other, FieldSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.list_paths()))


def parse_tree(fields: Any) -> FieldTree:
    """Parse a tree to its canonical form; raises `ValueError`."""
    root = _parse_tree(fields)
    if SELF not in root:
        return root
    return {step: below for step, below in root.items() if step != SELF}


def _parse_tree(fields: Any) -> FieldTree:
    if not isinstance(fields, Mapping):
        raise ValueError("a field set is a map of maps")
    tree: FieldTree = {}
    for step, below in fields.items():
        name = canonicalize_element(step)
        tree[name] = LEAF if name == SELF else _parse_tree(below)
    return LEAF if len(tree) == 1 and SELF in tree else tree


def sort_tree(tree: FieldTree) -> FieldTree:
    """Return the same tree with its elements sorted."""
    if len(tree) < 2:
        return {step: sort_tree(below) if below else LEAF for step, below in tree.items()}
    steps = sorted(tree)
    place = bisect_left(steps, "i:")
    if place < len(steps) and steps[place][0] == "i":  # only positions do not sort like texts
        steps.sort(key=get_sort_key)
    return {step: sort_tree(tree[step]) if tree[step] else LEAF for step in steps}


def unite_trees(a: FieldTree, b: FieldTree) -> FieldTree:
    """Return the members of either."""
    if not a or not b:
        return a or b
    return _unite_nodes(a, b)


def _unite_nodes(a: FieldTree, b: FieldTree) -> FieldTree:
    if not a:
        return b if not b or SELF in b else {SELF: LEAF, **b}
    if not b:
        return a if SELF in a else {SELF: LEAF, **a}
    joined = dict(a)
    for step, below in b.items():
        known = joined.get(step)
        joined[step] = below if known is None else _unite_nodes(known, below)
    return joined


def subtract_tree(a: FieldTree, b: FieldTree) -> FieldTree:
    """Return the members of the first that are none of the second."""
    if not a or not b:
        return a
    return _subtract_nodes(a, b)


def _subtract_nodes(a: FieldTree, b: FieldTree) -> FieldTree:
    """Return the rest of a node with elements; an empty one means that nothing is left, not even the node."""
    rest: FieldTree = {}
    changed = False
    for step, below in a.items():
        other = b.get(step)
        if other is None:
            rest[step] = below
            continue
        kept = _subtract_node(below, other)
        changed = changed or kept is not below
        if kept is not None:
            rest[step] = kept
    if not changed:
        return a
    return rest


def _subtract_node(below: FieldTree, other: FieldTree) -> FieldTree | None:
    if not below:
        return None if not other or SELF in other else below
    if not other:
        if SELF not in below:
            return below
        return {step: deeper for step, deeper in below.items() if step != SELF}
    rest = _subtract_nodes(below, other)
    if len(rest) == 1 and SELF in rest:
        return LEAF
    return rest or None


def remove_subtrees(a: FieldTree, removed: FieldTree) -> FieldTree:
    """Return the members of the first that are neither in the second nor below one of its members."""
    if not a or not removed or removed.keys().isdisjoint(a):
        return a
    rest: FieldTree = {}
    for step, below in a.items():
        other = removed.get(step)
        if other is None:
            rest[step] = below
        elif other and SELF not in other:
            kept = remove_subtrees(below, other)
            if kept or not below:
                rest[step] = LEAF if len(kept) == 1 and SELF in kept else kept
    return rest


def intersect_trees(a: FieldTree, b: FieldTree) -> FieldTree:
    """Return the members of both."""
    shared: FieldTree = {}
    for step, below in a.items():
        other = b.get(step)
        if other is None:
            continue
        both = intersect_trees(below, other)
        here = (not below or SELF in below) and (not other or SELF in other)
        if both:
            shared[step] = {SELF: LEAF, **both} if here and SELF not in both else both
        elif here:
            shared[step] = LEAF
    if len(shared) == 1 and SELF in shared:
        return {}
    return shared


def list_paths(tree: FieldTree, start: str = "") -> Iterator[str]:
    """Return the paths of the members in readable form, in order."""
    for step in sorted(tree, key=get_sort_key):
        if step == SELF:
            continue
        below = tree[step]
        path = start + format_element(step)
        if not below or SELF in below:
            yield path
        yield from list_paths(below, path)
