"""Declared size bounds of variables, on which the worst-case cost of an expression depends.

A `SizeBound` mirrors the type of a variable. `size` is the largest number of characters, items or entries;
`fields` are those of a struct, `keys` and `values` those of a map or list, `named` is for the fields of a map
(`m.name`). A value without a bound may have any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

KEYS: Final = "@keys"
ITEMS: Final = "@items"
VALUES: Final = "@values"
INDICES: Final = "@indices"

SizePath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SizeBound:
    """The largest a value can be, and its parts."""

    size: int
    fields: Mapping[str, SizeBound] = field(default_factory=dict)
    keys: SizeBound | None = None
    values: SizeBound | None = None
    named: SizeBound | None = None

    def get_part(self, step: str) -> SizeBound | None:
        """The bound of a field, key or value."""
        if step == KEYS:
            return self.keys
        if step in (ITEMS, VALUES):
            return self.values
        return self.fields.get(step, self.named)


def find_size_bound(variables: Mapping[str, SizeBound], path: SizePath) -> SizeBound | None:
    """The bound of a path such as `("device", "attributes", "@keys")`."""
    bound = variables.get(path[0]) if path else None
    for step in path[1:]:
        if bound is None:
            return None
        bound = bound.get_part(step)
    return bound
