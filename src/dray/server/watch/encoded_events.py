"""Lines of watches that several clients get: written once, and kept for a short while within bounds."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

EventKey = tuple[object, ...]
"""What tells lines apart."""

MAX_EVENTS: Final = 1024
MAX_BYTES: Final = 16 * 1024 * 1024
"""So many lines are kept, and no more than weigh so much; those who are further behind write their own."""


class EncodedEventCache:
    """The newest lines."""

    def __init__(self, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._lines: OrderedDict[EventKey, bytes] = OrderedDict()
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def find(self, event_key: EventKey) -> bytes | None:
        """The line, if somebody wrote it lately."""
        return self._lines.get(event_key)

    def add(self, event_key: EventKey, line: bytes) -> bytes:
        """Keep a line for others, and let the oldest go."""
        self.total_bytes += len(line) - len(self._lines.pop(event_key, b""))
        self._lines[event_key] = line
        while len(self._lines) > self._max_events or self.total_bytes > self._max_bytes:
            self.total_bytes -= len(self._lines.popitem(last=False)[1])
        return line
