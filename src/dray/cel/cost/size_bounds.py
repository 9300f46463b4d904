"""How large the parts of a variable can be: what the worst case of an expression depends on.

An `Extent` mirrors the type of a variable. `size` is the most characters, items or entries there can be;
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

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """The largest a value can be, and its parts."""

    size: int
    fields: Mapping[str, Extent] = field(default_factory=dict)
    keys: Extent | None = None
    values: Extent | None = None
    named: Extent | None = None

    def part(self, step: str) -> Extent | None:
        """The extent one step further down."""
        if step == KEYS:
            return self.keys
        if step in (ITEMS, VALUES):
            return self.values
        return self.fields.get(step, self.named)


def extent_at(variables: Mapping[str, Extent], path: Path) -> Extent | None:
    """The extent of a path such as `("device", "attributes", "@keys")`."""
    extent = variables.get(path[0]) if path else None
    for step in path[1:]:
        if extent is None:
            return None
        extent = extent.part(step)
    return extent
