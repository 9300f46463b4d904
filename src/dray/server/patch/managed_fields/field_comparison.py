"""Comparison of documents by field: which fields exist, and which differ.

Theory of operation: both walk the object along its `Structure` and stop at whatever is owned as one: plain
values, atomic maps and lists. Equal parts are skipped without looking inside, so a write costs what it
changes. A comparison gives two sets: what is new or different, and what is gone. A map or list that was
absent before is itself a member, with everything in it, unless it is always present. Of what is gone only the
topmost field is named.

This module knows objects and trees of fields, but no managers and no entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from dray.server.patch.managed_fields.field_set import LEAF, SELF, FieldTree, sort_tree
from dray.server.patch.schema.field_structure import ANY, Structure
from dray.server.patch.schema.path_elements import build_elements

_MISSING: Final = object()


class FieldChanges(NamedTuple):
    """The differences between two states of an object."""

    changed: FieldTree
    """Fields that are new or have another value."""
    removed: FieldTree
    """Fields that are gone, with everything below them."""


def collect_fields(structure: Structure, document: Mapping[str, Any]) -> FieldTree:
    """Collect the fields of an applied configuration: its leaves and the items of its lists."""
    tree: FieldTree = {}
    for name, value in document.items():
        if value is not None:
            tree["f:" + name] = _collect_value_fields(structure.get_field(name), value)
    return tree


def compare_documents(structure: Structure, old: Mapping[str, Any], new: Mapping[str, Any]) -> FieldChanges:
    """Compare two states of an object; the tree of what has changed is sorted."""
    changed: FieldTree = {}
    removed: FieldTree = {}
    _compare_maps(structure, old, new, (changed, removed))
    return FieldChanges(_sort_level(changed), removed)


def collect_new_fields(structure: Structure, document: Mapping[str, Any]) -> FieldTree:
    """Collect what a comparison with an empty object finds changed; the tree is sorted."""
    tree: FieldTree = {}
    fields = structure.fields
    rest = ANY if fields or structure.items is None else structure.items
    for name in sorted(document):
        step, value, below = "f:" + name, document[name], fields.get(name, rest)
        if not below.always_present:
            tree[step] = _collect_new_fields(below, value)
        elif type(value) is dict and not below.atomic:
            if new := collect_new_fields(below, value):
                tree[step] = new
        else:
            found: tuple[FieldTree, FieldTree] = {}, {}
            _compare_field(step, below, (_MISSING, value), found)
            tree |= sort_tree(found[0])
    return tree


def _collect_value_fields(structure: Structure, value: Any) -> FieldTree:
    if not value or structure.atomic:
        return LEAF
    if type(value) is dict:
        tree = collect_fields(structure, value)
        if structure.items is None or structure.fields:
            return tree
        return {step: {SELF: LEAF, **below} if below else below for step, below in tree.items()}
    if type(value) is list and structure.list_type != "atomic":
        steps = build_elements(structure, value)
        if steps is None:
            return LEAF
        if structure.list_type == "set":
            return dict.fromkeys(steps, LEAF)
        return {
            step: _collect_item_fields(structure.element, item)
            for step, item in zip(steps, value, strict=True)
        }
    return LEAF


def _collect_item_fields(structure: Structure, item: Any) -> FieldTree:
    below = _collect_value_fields(structure, item)
    return {SELF: LEAF, **below} if below else LEAF


def _collect_new_fields(structure: Structure, value: Any) -> FieldTree:
    """Collect everything in a value that was absent before, itself included; the tree is sorted."""
    if not value or structure.atomic:
        return LEAF
    if type(value) is dict:
        tree: FieldTree = {SELF: LEAF}
        fields = structure.fields
        rest = ANY if fields or structure.items is None else structure.items
        for name in sorted(value):
            item = value[name]
            if type(item) is dict or type(item) is list:
                tree["f:" + name] = _collect_new_fields(fields.get(name, rest), item)
            else:
                tree["f:" + name] = LEAF
        return tree
    if structure.list_type != "atomic" and type(value) is list:
        steps = build_elements(structure, value)
        if steps is not None:
            tree = {SELF: LEAF}
            element = structure.element
            for step, item in sorted(zip(steps, value, strict=True), key=itemgetter(0)):
                tree[step] = _collect_new_fields(element, item)
            return tree
    return LEAF


def _compare_maps(
    structure: Structure, old: Mapping[str, Any], new: Mapping[str, Any], found: tuple[FieldTree, FieldTree]
) -> None:
    fields = structure.fields
    rest = ANY if fields or structure.items is None else structure.items
    for name, value in new.items():
        was = old.get(name, _MISSING)
        if was is value or was == value:
            continue
        _compare_field("f:" + name, fields.get(name, rest), (was, value), found)
    for name, was in old.items():
        if name not in new:
            _compare_field("f:" + name, fields.get(name, rest), (was, _MISSING), found)


def _compare_field(
    step: str, structure: Structure, values: tuple[Any, Any], found: tuple[FieldTree, FieldTree]
) -> None:
    """Record the differences at one field, given that there are some."""
    was, now = values
    if was is _MISSING or now is _MISSING:
        if not structure.always_present:
            if was is _MISSING:
                found[0][step] = _collect_new_fields(structure, now)
            else:
                found[1][step] = LEAF
            return
        was, now = (None if was is _MISSING else was), (None if now is _MISSING else now)
    if was is None or now is None:
        was, now = _fill_null(was, now)
    kind = type(was)
    if kind is not type(now) or structure.atomic or not (kind is dict or kind is list):
        _record_value(step, was, now, found)
    elif kind is dict:
        below: tuple[FieldTree, FieldTree] = {}, {}
        _compare_maps(structure, was, now, below)
        _record_below(step, below, found)
    elif structure.list_type == "atomic":
        found[0][step] = LEAF
    else:
        below = {}, {}
        if _compare_lists(structure, was, now, below):
            _record_below(step, below, found)
        else:
            found[0][step] = LEAF


def _fill_null(was: Any, now: Any) -> tuple[Any, Any]:
    """Treat `null` as an empty map or list where the other value is one."""
    other = now if was is None else was
    if not isinstance(other, (dict, list)):
        return was, now
    empty: Any = type(other)()
    return (empty, now) if was is None else (was, empty)


def _record_value(step: str, was: Any, now: Any, found: tuple[FieldTree, FieldTree]) -> None:
    """Record that a value was replaced; empty ones are equal."""
    if _is_empty(was) and _is_empty(now):
        return
    found[0][step] = LEAF
    if isinstance(was, (dict, list)) and type(was) is not type(now):
        found[1][step] = LEAF


def _record_below(step: str, below: tuple[FieldTree, FieldTree], found: tuple[FieldTree, FieldTree]) -> None:
    changed, removed = below
    if changed:
        found[0][step] = _sort_level(changed)
    if removed:
        found[1][step] = removed


def _sort_level(tree: FieldTree) -> FieldTree:
    """Sort the elements of a tree whose branches are sorted."""
    return {step: tree[step] for step in sorted(tree)} if len(tree) > 1 else tree


def _is_empty(value: Any) -> bool:
    return value is None or value == {} or value == []


def _compare_lists(
    structure: Structure, was: list[Any], now: list[Any], found: tuple[FieldTree, FieldTree]
) -> bool:
    """Record which elements differ; False when they cannot be distinguished."""
    before, after = build_elements(structure, was), build_elements(structure, now)
    if before is None or after is None:
        return False
    old, new = dict(zip(before, was, strict=True)), dict(zip(after, now, strict=True))
    for step, item in new.items():
        earlier = old.get(step, _MISSING)
        if earlier is not item and earlier != item:
            _compare_field(step, structure.element, (earlier, item), found)
    for step, item in old.items():
        if step not in new:
            _compare_field(step, structure.element, (item, _MISSING), found)
    return True
