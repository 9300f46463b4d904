"""Merging of an applied configuration into an object, and removal of fields.

Theory of operation: `merge_configuration` merges a configuration into an object along the structure: maps
entry by entry, lists with keys item by item, atomic values as a whole. Items keep the order of the
configuration, and items that only the object has stay between their neighbours. `remove_fields` removes
fields from an object. `add_parents` adds the named fields above the members of a set: the owner of a field
also owns the fields that contain it, so that these are removed when nobody needs them any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.server.patch.errors import build_malformed
from dray.server.patch.managed_fields.field_set import LEAF, SELF, FieldTree
from dray.server.patch.schema.field_structure import Structure
from dray.server.patch.schema.path_elements import build_element, build_elements, format_element

Document = dict[str, Any]


def check_list_items(structure: Structure, configuration: Any, path: str = "") -> None:
    """Refuse a configuration whose list items cannot be distinguished."""
    if structure.atomic:
        return
    if isinstance(configuration, dict):
        for name, value in configuration.items():
            if isinstance(value, (dict, list)):
                check_list_items(structure.get_field(name), value, f"{path}.{name}")
    elif isinstance(configuration, list) and structure.list_type != "atomic":
        seen: set[str] = set()
        for position, item in enumerate(configuration):
            step = build_element(structure, item)
            if step is None:
                keys = ", ".join(f"`{key}`" for key in structure.map_keys) or "plain values"
                raise build_malformed(f"{path}[{position}]: items of this list are identified by {keys}")
            if step in seen:
                raise build_malformed(f"{path}: duplicate entries for key {format_element(step)}")
            seen.add(step)
            check_list_items(structure.element, item, f"{path}{format_element(step)}")


def merge_configuration(structure: Structure, live: Any, configuration: Any) -> Any:
    """Merge a configuration into an object; `null` in a configuration has no meaning."""
    if structure.atomic:
        return configuration
    if isinstance(configuration, dict):
        merged = dict(live) if isinstance(live, dict) else {}
        for name, value in configuration.items():
            if value is not None:
                merged[name] = merge_configuration(structure.get_field(name), merged.get(name), value)
        return merged
    if isinstance(configuration, list) and structure.list_type != "atomic":
        there = live if isinstance(live, list) else []
        known = build_elements(structure, there)
        if known is None:
            return configuration
        return _merge_list(structure, dict(zip(known, there, strict=True)), configuration)
    return configuration


def _merge_list(structure: Structure, live: Document, configuration: list[Any]) -> list[Any]:
    steps = build_elements(structure, configuration) or []
    wanted = dict(zip(steps, configuration, strict=True))
    return [
        merge_configuration(structure.element, live.get(step), wanted[step]) if step in wanted else live[step]
        for step in _interleave_elements(list(live), steps)
    ]


def _interleave_elements(live: list[str], wanted: list[str]) -> Iterator[str]:
    """Interleave elements: the wanted ones in their order, the others before the neighbour that followed
    them.
    """
    chosen, there = set(wanted), set(live)
    shared = [step for step in wanted if step in there]
    position = following = 0
    for step in wanted:
        anchor = shared[following] if following < len(shared) else None
        while position < len(live) and live[position] != anchor:
            if live[position] not in chosen:
                yield live[position]
            position += 1
        yield step
        if step == anchor:
            following += 1
    yield from (step for step in live[position:] if step not in chosen)


def remove_fields(structure: Structure, value: Any, fields: FieldTree) -> Any:
    """Remove fields from a value, with everything below them."""
    if isinstance(value, dict):
        rest = {}
        for name, item in value.items():
            below = fields.get("f:" + name)
            if below is None:
                rest[name] = item
            elif below and SELF not in below:
                rest[name] = remove_fields(structure.get_field(name), item, below)
        return rest
    if isinstance(value, list) and structure.list_type != "atomic":
        kept = []
        for item in value:
            step = build_element(structure, item)
            below = None if step is None else fields.get(step)
            if below is None:
                kept.append(item)
            elif below and SELF not in below:
                kept.append(remove_fields(structure.element, item, below))
        return kept
    return value


def add_parents(structure: Structure, fields: FieldTree) -> FieldTree:
    """Add every named field above the members of a set; list items and entries of maps are not added."""
    named = structure.items is None or bool(structure.fields)
    tree: FieldTree = {}
    for step, below in fields.items():
        if not below:
            tree[step] = below
            continue
        is_field = step[0] == "f"
        deeper = add_parents(structure.get_field(step[2:]) if is_field else structure.element, below)
        tree[step] = {SELF: LEAF, **deeper} if is_field and named and SELF not in deeper else deeper
    return tree
