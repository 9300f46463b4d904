"""How deep and how large a patch may make a document."""

from __future__ import annotations

from typing import Any

from dray.api.json_text import MAX_DEPTH
from dray.server.patch.errors import malformed


def depth_of(value: Any, at_most: int = MAX_DEPTH) -> int:
    """How deeply a value is nested; looking stops one level below `at_most`."""
    depth = 0
    level = [value]
    while level and depth <= at_most:
        containers = [item for item in level if isinstance(item, (dict, list))]
        if not containers:
            return depth
        depth += 1
        level = [
            inner
            for item in containers
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return depth
    return depth


def check_depth(patch: Any) -> None:
    """Refuse a patch that is nested more deeply than any object may be."""
    if depth_of(patch) > MAX_DEPTH:
        raise malformed(f"the patch is nested more than {MAX_DEPTH} levels deep")
