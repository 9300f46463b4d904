"""Limits of the depth of patches."""

from __future__ import annotations

from typing import Any

from dray.api.json_text import MAX_DEPTH
from dray.server.patch.errors import build_malformed


def measure_depth(value: Any, limit: int = MAX_DEPTH) -> int:
    """Measure how deeply a value is nested; stops one level below `limit`."""
    depth = 0
    level = [value]
    while level and depth <= limit:
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
    if measure_depth(patch) > MAX_DEPTH:
        raise build_malformed(f"the patch is nested more than {MAX_DEPTH} levels deep")
