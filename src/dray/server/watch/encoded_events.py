"""Lines of watches that several clients get: written once, and kept for a short while within bounds."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

Known = tuple[object, ...]
"""What tells lines apart."""

LINES: Final = 1024
BYTES: Final = 16 * 1024 * 1024
"""So many lines are kept, and no more than weigh so much; those who are further behind write their own."""


class SharedLines:
    """The newest lines."""

    def __init__(self, lines: int = LINES, heaviest: int = BYTES) -> None:
        self._most, self._heaviest = lines, heaviest
        self._lines: OrderedDict[Known, bytes] = OrderedDict()
        self.weight = 0

    def __len__(self) -> int:
        return len(self._lines)

    def find(self, known: Known) -> bytes | None:
        """The line, if somebody wrote it lately."""
        return self._lines.get(known)

    def keep(self, known: Known, line: bytes) -> bytes:
        """Keep a line for others, and let the oldest go."""
        self.weight += len(line) - len(self._lines.pop(known, b""))
        self._lines[known] = line
        while len(self._lines) > self._most or self.weight > self._heaviest:
            self.weight -= len(self._lines.popitem(last=False)[1])
        return line
