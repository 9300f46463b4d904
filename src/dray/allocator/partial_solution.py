"""The partial solution of a search: what the devices taken so far use up, with an undo log.

Theory of operation: every kind of fact has a typed table of its own. The search and the checks read the
tables directly and change them only through `assign`, which first appends the old value to the undo log.
`mark` returns a position in the log; `rewind` undoes everything after it, whichever tables it belongs to.

This module must not contain the rules that refuse candidates (see checks), feature gates, or a clock.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from dray.allocator.requests import ClaimConstraint

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

AttributeValues = frozenset[tuple[str, Any]]
"""Typed values of an attribute; a scalar is a set of one."""

EVERY_CLAIM: Final = -1
"""Key in `used_devices` of the devices that any claim of this attempt took."""

_ABSENT: Final[Any] = object()


class PartialSolution:
    """Tables of facts with one undo log."""

    __slots__ = (
        "charged_devices",
        "constraint_values",
        "counter_draws",
        "share_amounts",
        "undo_log",
        "used_devices",
    )

    def __init__(self) -> None:
        self.used_devices: dict[int, int] = {}
        """Mask of the unshared candidates that a claim took, by claim index; see `EVERY_CLAIM`."""
        self.charged_devices: dict[int, bool] = {}
        """Shared candidates whose counters are charged: further shares draw nothing."""
        self.share_amounts: dict[tuple[int, str], int] = {}
        """Nanos that shares take, by candidate and capacity."""
        self.counter_draws: dict[tuple[int, str, str], int] = {}
        """Nanos that devices draw, by pool index, counter set and counter."""
        self.constraint_values: dict[ClaimConstraint, AttributeValues] = {}
        """Values that are still common ("match") or already taken ("distinct"), by constraint."""
        self.undo_log: list[tuple[dict[Any, Any], Any, Any]] = []

    def assign(self, table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
        """Set a fact in one of the tables; its old value goes to the undo log."""
        self.undo_log.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def mark(self) -> int:
        """The position in the undo log to rewind to."""
        return len(self.undo_log)

    def rewind(self, mark: int) -> None:
        """Undo every assignment after a mark, the last one first."""
        log = self.undo_log
        while len(log) > mark:
            table, key, old = log.pop()
            if old is _ABSENT:
                del table[key]
            else:
                table[key] = old
