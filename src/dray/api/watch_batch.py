"""A part of a watch that knows what it says, for readers in the same process.

A watch is bytes, whoever reads it. A reader in the process of the writer may look at `events` instead of
reading them: what happened, and something that gives the object as its struct, in the internal version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class WatchedObject(Protocol):
    """An object that can be seen as its struct."""

    @property
    def view(self) -> Any: ...


class EncodedWatchBatch(bytes):
    """Whole lines of a watch, and the events in them."""

    events: Sequence[tuple[str, WatchedObject]]

    @classmethod
    def from_events(cls, lines: bytes, events: Sequence[tuple[str, WatchedObject]]) -> EncodedWatchBatch:
        told = cls(lines)
        told.events = events
        return told
