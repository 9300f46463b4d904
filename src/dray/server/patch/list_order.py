"""The order of items in a merged list.

Theory of operation: two orders meet: that of the patch, for the items it names, and that of the object, for
the others. Both are preserved. The object decides how they interleave: an item that only the object has stays
before an item of the patch when it preceded it; otherwise the patch goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dray.server.patch.schema.path_elements import encode_json_text

IdentifyItem = Callable[[Any], str | None]
"""Identifies an item among others, as text; None when the item has no identity."""


def identify_by_value(item: Any) -> str:
    """Identify a plain value by itself."""
    return encode_json_text(item)


def identify_by_key(key: str) -> IdentifyItem:
    """Identify an object by one of its fields."""

    def identity(item: Any) -> str | None:
        if not isinstance(item, dict) or item.get(key) is None:
            return None
        return encode_json_text(item[key])

    return identity


def arrange_items(items: Sequence[str], patched: Sequence[str], original: Sequence[str]) -> list[str]:
    """Arrange all items, given those a patch names and the order of the object."""
    there = set(items)
    chosen = [mark for mark in dict.fromkeys(patched) if mark in there]
    places = {mark: place for place, mark in enumerate(original)}
    mine = set(chosen)
    others = sorted((mark for mark in items if mark not in mine), key=lambda mark: places.get(mark, 0))
    result: list[str] = []
    waiting = 0
    for mark in chosen:
        place = places.get(mark)
        while waiting < len(others) and place is not None and places.get(others[waiting], place) < place:
            result.append(others[waiting])
            waiting += 1
        result.append(mark)
    return result + others[waiting:]
