"""How large the parts of a variable can be: what the worst case of an expression depends on.

An `SizeBound` mirrors the type of a variable. `size` is the most characters, items or entries there can be;
`fields` are those of a struct, `keys` and `values` those of a map or list, `named` is for the fields of a map
(`m.name`). Where an extent is missing, anything is possible.
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
        """The extent one step further down."""
        if step == KEYS:
            return self.keys
        if step in (ITEMS, VALUES):
            return self.values
        return self.fields.get(step, self.named)


def find_size_bound(variables: Mapping[str, SizeBound], path: SizePath) -> SizeBound | None:
    """The extent of a path such as `("device", "attributes", "@keys")`."""
    extent = variables.get(path[0]) if path else None
    for step in path[1:]:
        if extent is None:
            return None
        extent = extent.get_part(step)
    return extent
