"""The objects that are alive, with those that Python's garbage collection does not visit.

API values are structs with `gc=False`: `gc.get_objects` does not list them. They are found through the
objects that hold them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import msgspec


def iterate_living_objects() -> Iterator[Any]:
    """Yield every object that garbage collection visits, and every struct below one that it does not."""
    seen: set[int] = set()
    for each in gc.get_objects():
        yield each
        waiting = gc.get_referents(each)
        while waiting:
            found = waiting.pop()
            if id(found) in seen or gc.is_tracked(found):
                continue
            if isinstance(found, msgspec.Struct):
                seen.add(id(found))
                yield found
                waiting += [getattr(found, name) for name in found.__struct_fields__]
            elif isinstance(found, (tuple, dict)):
                seen.add(id(found))
                waiting += gc.get_referents(found)
