"""Table columns, and the accessors that most cells need.

Cells are made from documents that anybody may have written. An accessor that finds nothing usable returns an
empty value; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dray.server.tables.ages import format_age
from dray.server.watch.cache import WatchCache

NONE: Final = "<none>"
MAX_SHOWN_NAMES: Final = 3
"""How many names a cell shows before it counts the rest."""


@dataclass(frozen=True, slots=True)
class TableContext:
    """What cells may use besides their object: the time, and the cache."""

    now: datetime
    cache: WatchCache | None = None
    pending_reasons: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Results that rows share, by namespace: why claims wait."""


RenderCell = Callable[[Any, TableContext], Any]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column: its title and how its cells are rendered. A wide one is shown by `-o wide` only."""

    title: str
    render: RenderCell
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


def get_path(document: Any, path: str) -> Any:
    """Return the value at a dotted path; None when there is none."""
    for name in path.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def get_text(document: Any, path: str, empty: str = "") -> str:
    """Return a plain value at a path as text."""
    found = get_path(document, path)
    if found is None or found == "" or isinstance(found, Mapping | list):
        return empty
    return str(found).lower() if isinstance(found, bool) else str(found)


def get_list(document: Any, path: str) -> list[Any]:
    """Return the list at a path; empty when there is none."""
    found = get_path(document, path)
    return found if isinstance(found, list) else []


def get_map(document: Any, path: str) -> Mapping[str, Any]:
    """Return the map at a path; empty when there is none."""
    found = get_path(document, path)
    return found if isinstance(found, Mapping) else {}


def get_number(document: Any, path: str) -> int:
    """Return the number at a path; zero when there is none."""
    found = get_path(document, path)
    return found if isinstance(found, int) else 0


def join_names(names: Iterable[str]) -> str:
    """Join all names of a list."""
    return ",".join(names) or NONE


def shorten_names(names: Sequence[str]) -> str:
    """Join the first names of a list, and count the rest."""
    rest = len(names) - MAX_SHOWN_NAMES
    return join_names([*names[:MAX_SHOWN_NAMES], *([f"+{rest} more"] if rest > 0 else [])])


def format_labels(labels: Mapping[str, Any]) -> str:
    """Format labels like a selector."""
    return join_names(f"{name}={value}" for name, value in sorted(labels.items()))


def find_condition(document: Any, kind: str, path: str = "status.conditions") -> Mapping[str, Any]:
    """Return the condition of a type; empty when there is none."""
    found = (one for one in get_list(document, path) if isinstance(one, Mapping) and one.get("type") == kind)
    return next(found, {})


def build_text_cell(path: str, empty: str = "") -> RenderCell:
    """Build a renderer of the plain value at a path."""
    return lambda document, _: get_text(document, path, empty)


def build_number_cell(path: str) -> RenderCell:
    """Build a renderer of the number at a path."""
    return lambda document, _: get_number(document, path)


def build_age_cell(path: str) -> RenderCell:
    """Build a renderer of the age of the time at a path."""
    return lambda document, context: format_age(get_path(document, path), context.now)


def build_number_column(title: str, path: str) -> TableColumn:
    """Build a column of numbers."""
    return TableColumn(title, build_number_cell(path), type="integer")


NAME: Final = TableColumn(
    "Name",
    build_text_cell("metadata.name"),
    about="The name, which nobody else of this kind has here",
    format="name",
)
AGE: Final = TableColumn(
    "Age", build_age_cell("metadata.creationTimestamp"), about="How long ago the object was created"
)
CREATED_AT: Final = TableColumn(
    "Created At",
    build_text_cell("metadata.creationTimestamp"),
    about="When the object was created",
    type="date",
)
