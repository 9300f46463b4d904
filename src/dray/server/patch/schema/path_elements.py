"""Elements of field paths: names, items by key, values of a set, positions.

In FieldsV1 `f:name` is a field, `k:{"type":"Ready"}` the item of a list with these keys, `v:"x"` a value in a
set, `i:0` a position. Keys are written in the order of their names and without spaces, so that equal items
have equal elements. The readable form of the same elements is `.name`, `[type="Ready"]`, `[="x"]`, `[0]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.api.json_text import ENCODER, read_json
from dray.errors import DecodeError
from dray.server.patch.schema.field_structure import Structure

_RANKS: Mapping[str, int] = {".": -1, "f": 0, "k": 1, "v": 2, "i": 3}


def encode_json_text(value: Any) -> str:
    """Encode a plain value as compact JSON."""
    return ENCODER.encode(value).decode()


def build_key_element(structure: Structure, item: Any) -> str | None:
    """Return the element of an item of a keyed list, or None when the item has none of the keys."""
    if type(item) is not dict:
        return None
    keys = structure.map_keys
    if len(keys) == 1:
        name = keys[0]
        value = item.get(name)
        if value is None:
            value = structure.key_defaults.get(name)
        return None if value is None else f'k:{{"{name}":{encode_json_text(value)}}}'
    found = {}
    for name in keys:
        value = item.get(name)
        if value is None:
            value = structure.key_defaults.get(name)
        if value is not None:
            found[name] = value
    return f"k:{encode_json_text(found)}" if found else None


def build_element(structure: Structure, item: Any) -> str | None:
    """Return the element of an item of a set or keyed list, or None when it has none."""
    if structure.list_type == "map":
        return build_key_element(structure, item)
    return None if isinstance(item, (dict, list)) else f"v:{encode_json_text(item)}"


def build_elements(structure: Structure, items: Sequence[Any]) -> list[str] | None:
    """Return the elements of all items, or None when they cannot all be distinguished."""
    steps: list[str] = []
    for item in items:
        step = build_element(structure, item)
        if step is None:
            return None
        steps.append(step)
    return steps if len(set(steps)) == len(steps) else None


def format_element(step: str) -> str:
    """Format an element as Kubernetes writes it in messages: `.spec`, `[name="web"]`, `[="x"]`, `[0]`."""
    kind, text = step[0], step[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = read_json(text.encode())
        return "[" + ",".join(f"{name}={encode_json_text(keys[name])}" for name in sorted(keys)) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"


def get_sort_key(step: str) -> tuple[int, Any]:
    """Return the sort key of an element: fields, items, values, positions, each in order."""
    rank = _RANKS[step[0]]
    return (rank, int(step[2:])) if rank == 3 else (rank, step)


def canonicalize_element(step: str) -> str:
    """Return an element in its canonical form; raises `ValueError`."""
    if step == ".":
        return step
    kind, colon, text = step[:1], step[1:2], step[2:]
    if colon != ":":
        raise ValueError(f"`{step}` is not a step of a field path")
    match kind:
        case "f":
            return step
        case "i":
            return f"i:{int(text)}"
        case "k" | "v":
            value = _parse_value(text)
            if kind == "v":
                return f"v:{encode_json_text(value)}"
            if isinstance(value, dict) and value:
                return f"k:{encode_json_text({name: value[name] for name in sorted(value)})}"
    raise ValueError(f"`{step}` is not a step of a field path")


def _parse_value(text: str) -> Any:
    try:
        return read_json(text.encode())
    except DecodeError as broken:
        raise ValueError(str(broken)) from None
