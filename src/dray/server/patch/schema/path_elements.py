"""The steps of a field path: names, items by key, values of a set, positions.

In FieldsV1 `f:name` is a field, `k:{"type":"Ready"}` the item of a list with these keys, `v:"x"` a value in a
set, `i:0` a position. Keys are written in the order of their names and without spaces, so that equal items
have equal steps. People read the same steps as `.name`, `[type="Ready"]`, `[="x"]`, `[0]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.api.json_text import ENCODER, read_json
from dray.errors import DecodeError
from dray.server.patch.schema.field_structure import Structure

_RANKS: Mapping[str, int] = {".": -1, "f": 0, "k": 1, "v": 2, "i": 3}


def encode_json_text(value: Any) -> str:
    """A plain value as compact JSON."""
    return ENCODER.encode(value).decode()


def build_key_element(structure: Structure, item: Any) -> str | None:
    """The step to an item of a list with keys, or None when the item has none of them."""
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
    """The step to an element of a list that is a set or has keys, or None when it cannot be told."""
    if structure.list_type == "map":
        return build_key_element(structure, item)
    return None if isinstance(item, (dict, list)) else f"v:{encode_json_text(item)}"


def build_elements(structure: Structure, items: Sequence[Any]) -> list[str] | None:
    """The steps to all elements, or None when they cannot all be told apart."""
    steps: list[str] = []
    for item in items:
        step = build_element(structure, item)
        if step is None:
            return None
        steps.append(step)
    return steps if len(set(steps)) == len(steps) else None


def format_element(step: str) -> str:
    """A step as Kubernetes writes it in messages: `.spec`, `[name="web"]`, `[="x"]`, `[0]`."""
    kind, text = step[0], step[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = read_json(text.encode())
        return "[" + ",".join(f"{name}={encode_json_text(keys[name])}" for name in sorted(keys)) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"


def get_sort_key(step: str) -> tuple[int, Any]:
    """Where a step stands among its neighbours: fields, items, values, positions, each in order."""
    rank = _RANKS[step[0]]
    return (rank, int(step[2:])) if rank == 3 else (rank, step)


def canonicalize_element(step: str) -> str:
    """A step as somebody else wrote it, in our spelling; `ValueError` when it is none."""
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
