"""Encoded watch events with their objects attached, for readers in the same process.

A watch is bytes for every reader. A reader in the process of the server may use `events` instead of decoding
the bytes: the type of each event, and its object as a struct in the internal version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class WatchedObject(Protocol):
    """An object that can return its struct."""

    @property
    def view(self) -> Any: ...


class EncodedWatchBatch(bytes):
    """Complete lines of a watch, and the events they encode."""

    events: Sequence[tuple[str, WatchedObject]]

    @classmethod
    def from_events(cls, lines: bytes, events: Sequence[tuple[str, WatchedObject]]) -> EncodedWatchBatch:
        batch = cls(lines)
        batch.events = events
        return batch
