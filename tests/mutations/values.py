"""Values that a field is given instead of a good one, by the type of the good one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from tests.mutations.field_paths import REMOVED, Path

LONG = "x" * 300
TOO_LARGE = 2**70
BEYOND_INT32 = 2**40

_STRINGS: tuple[tuple[str, Any], ...] = (
    ("removed", REMOVED),
    ("empty", ""),
    ("overlong", LONG),
    ("upper case and underscore", "Not_Valid"),
    ("spaces", "not valid"),
    ("unicode", "größe"),
    ("number", 7),
    ("object", {}),
    ("null", None),
)
_NUMBERS: tuple[tuple[str, Any], ...] = (
    ("removed", REMOVED),
    ("negative", -1),
    ("zero", 0),
    ("beyond 32 bits", BEYOND_INT32),
    ("beyond 64 bits", TOO_LARGE),
    ("fraction", 1.5),
    ("text", "many"),
    ("null", None),
)
_BOOLEANS: tuple[tuple[str, Any], ...] = (("removed", REMOVED), ("text", "yes"), ("null", None))
_LISTS: tuple[tuple[str, Any], ...] = (
    ("removed", REMOVED),
    ("empty", []),
    ("null item", [None]),
    ("number item", [7]),
    ("object", {}),
    ("text", "list"),
    ("null", None),
)
_OBJECTS: tuple[tuple[str, Any], ...] = (
    ("removed", REMOVED),
    ("empty", {}),
    ("list", []),
    ("text", "object"),
    ("null", None),
)

_WRONG_TYPES = frozenset({"number", "object", "text", "list", "number item", "fraction", "beyond 64 bits"})


def list_values(good: Any) -> list[tuple[str, Any]]:
    """Values to try instead of a good one, with what is wrong about them."""
    if isinstance(good, bool):
        return [*_BOOLEANS, ("flipped", not good)]
    if isinstance(good, str):
        return list(_STRINGS)
    if isinstance(good, int):
        return list(_NUMBERS)
    if isinstance(good, list):
        return [*_LISTS, ("last item twice", [*good, good[-1]])] if good else list(_LISTS)
    return list(_OBJECTS)


def list_wrong_types(good: Any) -> list[tuple[str, Any]]:
    """Values that cannot be decoded."""
    return [(name, value) for name, value in list_values(good) if name in _WRONG_TYPES]


def change_value(good: Any) -> Any:
    """Another value of the same type."""
    if isinstance(good, bool):
        return not good
    if isinstance(good, int):
        return good + 1
    return f"{good}x" if isinstance(good, str) else REMOVED


def choose(values: list[tuple[str, Any]], count: int, seed: str) -> list[tuple[str, Any]]:
    """Some of the values, always the same for a seed."""
    start = zlib.crc32(seed.encode()) % max(1, len(values))
    return [values[(start + step) % len(values)] for step in range(min(count, len(values)))]


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a document with its path, except the document itself."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value[:2]):
            yield from walk(inner, (*path, position))
