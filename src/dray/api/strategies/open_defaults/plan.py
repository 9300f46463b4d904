"""The plan of one kind: its rows as a tree, applied in one walk.

Theory of operation: rows are grouped by the object that holds their field. For each object, the plan fills
the fields that are unset, in the order of the table; then it walks into the fields that have rows below them;
then it applies the rewrites of the object, which read the parts that are complete by now. A part is copied
when the first of its fields changes, and returned as it is when none does, so that a complete document costs
a walk and no copies. Values of another type than expected are left for the decoder to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dray.api.strategies.open_defaults.rows import DefaultsRow, DocumentDefault, Holder

_Row = tuple[str, Any, bool, Callable[[Mapping[str, Any]], bool] | None, Callable[[Any], Any] | None]


def _copy_value(value: Any) -> Any:
    """A copy of a default, so that no two documents share a part that someone may change."""
    if type(value) is dict:
        return {name: _copy_value(item) for name, item in value.items()}
    return [_copy_value(item) for item in value] if type(value) is list else value


class DocumentDefaultsPlan:
    """The rows for one object in a document, and the plans of the objects below it."""

    __slots__ = ("_branches", "_rewrites", "_rows")

    def __init__(self, rows: Iterable[tuple[tuple[str, ...], DefaultsRow]]) -> None:
        own: list[_Row] = []
        rewrites: list[Callable[[Holder], Holder]] = []
        below: dict[str, list[tuple[tuple[str, ...], DefaultsRow]]] = {}
        for steps, row in rows:
            if len(steps) > 1 or (steps and not isinstance(row, DocumentDefault)):
                below.setdefault(steps[0], []).append((steps[1:], row))
            elif isinstance(row, DocumentDefault):
                own.append((steps[0], row.value, row.replaces_zero, row.when, row.compute))
            else:
                rewrites.append(row.rewrite)
        self._rows = tuple(own)
        self._rewrites = tuple(rewrites)
        self._branches = tuple(
            (step.removesuffix("[]"), step.endswith("[]"), DocumentDefaultsPlan(further))
            for step, further in below.items()
        )

    @classmethod
    def build(cls, rows: Iterable[DefaultsRow]) -> DocumentDefaultsPlan:
        """The plan of a table whose patterns begin at the whole document."""
        return cls(
            [(_split(row.field if isinstance(row, DocumentDefault) else row.holder), row) for row in rows]
        )

    def fill(self, holder: Holder, stored: Mapping[str, Any] | None = None) -> Holder:
        """The object with its defaults; parts that it shares with the stored object are left as they are."""
        filled = holder
        for name, value, replaces_zero, when, compute in self._rows:
            found = filled.get(name)
            if found is not None and (found or not replaces_zero or found is False):
                continue
            if when is not None and not when(filled):
                continue
            given = _copy_value(value) if compute is None else compute(filled)
            if given is None:
                continue
            if filled is holder:
                filled = holder.copy()
            filled[name] = given
        for name, many, plan in self._branches:
            part = filled.get(name)
            if part is None or (stored is not None and part is stored.get(name)):
                continue
            if many:
                new = plan.fill_all(part)
            elif type(part) is dict:
                new = plan.fill(part)
            else:
                continue
            if new is not part:
                if filled is holder:
                    filled = holder.copy()
                filled[name] = new
        for rewrite in self._rewrites:
            filled = rewrite(filled)
        return filled

    def fill_all(self, holders: Any) -> Any:
        if type(holders) is not list:
            return holders
        filled: list[Any] | None = None
        for index, holder in enumerate(holders):
            if type(holder) is dict:
                new = self.fill(holder)
                if new is not holder:
                    if filled is None:
                        filled = holders.copy()
                    filled[index] = new
        return holders if filled is None else filled


def _split(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split(".")) if pattern else ()
