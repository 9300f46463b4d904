"""Rows of the tables of defaults: one field of a document, or one change that follows from several fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Holder = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentDefault:
    """The default of one field, named by a pattern such as `spec.containers[].ports[].protocol`."""

    field: str
    value: Any = None
    when: Callable[[Mapping[str, Any]], bool] | None = None
    """A test of the object that holds the field."""
    about: str = "always"
    compute: Callable[[Mapping[str, Any]], Any] | None = None
    """The value, when it depends on the object that holds the field; `value` then says it in words."""
    replaces_zero: bool = False
    """Whether an empty string, a zero or an empty list counts as unset, as a missing field and a null do."""

    def prefix(self, prefix: str) -> DocumentDefault:
        """The same row for a field below another one."""
        return replace(self, field=f"{prefix}.{self.field}")


@dataclass(frozen=True, slots=True)
class DocumentRewrite:
    """A change of one object inside a document; `rewrite` returns the same object when nothing changes."""

    holder: str
    """The pattern of the object; empty for the whole document."""
    fields: tuple[str, ...]
    """The fields it sets, relative to the object."""
    rewrite: Callable[[Holder], Holder]
    about: str

    def prefix(self, prefix: str) -> DocumentRewrite:
        """The same row for an object below another one."""
        return replace(self, holder=f"{prefix}.{self.holder}" if self.holder else prefix)


DefaultsRow = DocumentDefault | DocumentRewrite


def prefix_rows(prefix: str, rows: Iterable[DefaultsRow]) -> tuple[DefaultsRow, ...]:
    """The same rows for the fields below another one."""
    return tuple(row.prefix(prefix) for row in rows)


def fill_text(field: str, value: Any, **more: Any) -> DocumentDefault:
    """A row for a field whose empty value (an empty string, zero or an empty list) counts as unset."""
    return DocumentDefault(field, value, replaces_zero=True, **more)
