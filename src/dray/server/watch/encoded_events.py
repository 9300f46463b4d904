"""The cache of encoded watch events: several watches share the bytes of an event, within bounds."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

EventKey = tuple[object, ...]
"""What distinguishes encoded events."""

MAX_EVENTS: Final = 1024
MAX_BYTES: Final = 16 * 1024 * 1024
"""The bounds of the cache; watches that are further behind encode their events themselves."""


class EncodedEventCache:
    """The most recently encoded events."""

    def __init__(self, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._lines: OrderedDict[EventKey, bytes] = OrderedDict()
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def find(self, event_key: EventKey) -> bytes | None:
        """The encoded event, if it is cached."""
        return self._lines.get(event_key)

    def add(self, event_key: EventKey, line: bytes) -> bytes:
        """Cache an encoded event, and evict the oldest beyond the bounds."""
        self.total_bytes += len(line) - len(self._lines.pop(event_key, b""))
        self._lines[event_key] = line
        while len(self._lines) > self._max_events or self.total_bytes > self._max_bytes:
            self.total_bytes -= len(self._lines.popitem(last=False)[1])
        return line
