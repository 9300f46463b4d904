"""What a column is, and the small readings that most cells need.

Rules for this file: cells are made from documents that anybody may have written. Whatever stands in the way
of a reading, the reading is empty; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dray.server.tables.ages import since
from dray.server.watch.cache import Cache

NONE: Final = "<none>"
MANY: Final = 3
"""How many names a cell shows before it counts the rest."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What cells may look at besides their object: the time, and everything else there is."""

    now: datetime
    cache: Cache | None = None
    noted: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """What one row found out that the next may use, by namespace: why claims wait."""


Cell = Callable[[Any, Scene], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title and how its cells are made. A wide one is shown by `-o wide` only."""

    title: str
    cell: Cell
    wide: bool = False
    about: str = ""
    type: str = "string"
    format: str = ""

    @property
    def definition(self) -> dict[str, Any]:
        return {
            "name": self.title,
            "type": self.type,
            "format": self.format,
            "description": self.about,
            "priority": int(self.wide),
        }


def at(document: Any, path: str) -> Any:
    """What stands at a dotted path; None when there is nothing."""
    for name in path.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text(document: Any, path: str, empty: str = "") -> str:
    """A plain value at a path as text."""
    found = at(document, path)
    if found is None or found == "" or isinstance(found, Mapping | list):
        return empty
    return str(found).lower() if isinstance(found, bool) else str(found)


def items(document: Any, path: str) -> list[Any]:
    """A list at a path; empty when there is none."""
    found = at(document, path)
    return found if isinstance(found, list) else []


def entries(document: Any, path: str) -> Mapping[str, Any]:
    """A map at a path; empty when there is none."""
    found = at(document, path)
    return found if isinstance(found, Mapping) else {}


def count(document: Any, path: str) -> int:
    """A number at a path; what is none counts as zero."""
    found = at(document, path)
    return found if isinstance(found, int) else 0


def joined(names: Iterable[str]) -> str:
    """All names of a list."""
    return ",".join(names) or NONE


def shortened(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    rest = len(names) - MANY
    return joined([*names[:MANY], *([f"+{rest} more"] if rest > 0 else [])])


def pairs(labels: Mapping[str, Any]) -> str:
    """Labels as one selects by them."""
    return joined(f"{name}={value}" for name, value in sorted(labels.items()))


def condition(document: Any, kind: str, path: str = "status.conditions") -> Mapping[str, Any]:
    """The condition of a type; empty when there is none."""
    found = (one for one in items(document, path) if isinstance(one, Mapping) and one.get("type") == kind)
    return next(found, {})


def shows(path: str, empty: str = "") -> Cell:
    """Cells with the plain value at a path."""
    return lambda document, _: text(document, path, empty)


def counts(path: str) -> Cell:
    """Cells with the number at a path."""
    return lambda document, _: count(document, path)


def ago(path: str) -> Cell:
    """Cells with how long ago the time at a path was."""
    return lambda document, scene: since(at(document, path), scene.now)


def number(title: str, path: str) -> Column:
    """A column of numbers."""
    return Column(title, counts(path), type="integer")


NAME: Final = Column(
    "Name", shows("metadata.name"), about="The name, which nobody else of this kind has here", format="name"
)
AGE: Final = Column("Age", ago("metadata.creationTimestamp"), about="How long ago the object was created")
CREATED_AT: Final = Column(
    "Created At", shows("metadata.creationTimestamp"), about="When the object was created", type="date"
)
