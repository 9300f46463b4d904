"""The keys of one kind in order, sorted when they are listed after a change."""

from __future__ import annotations

import bisect


class KeyIndex:
    """The keys of a kind; sorted on the next list, not on every write."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self._ordered: list[bytes] | None = []

    def update(self, key: bytes, *, present: bool) -> None:
        ordered = self._ordered
        if present:
            self.keys.add(key)
            if ordered is not None and (not ordered or ordered[-1] < key):
                ordered.append(key)
                return
        else:
            self.keys.discard(key)
            if ordered is not None and ordered and ordered[-1] == key:
                # The newest key, for example one that a transaction shows only for a moment.
                ordered.pop()
                return
        self._ordered = None

    def list_under(self, prefix: bytes) -> list[bytes]:
        if self._ordered is None:
            self._ordered = sorted(self.keys)
        ordered = self._ordered
        first = bisect.bisect_left(ordered, prefix)
        if first == 0 and ordered and ordered[-1].startswith(prefix):
            return list(ordered)
        return ordered[first : bisect.bisect_left(ordered, prefix + b"\xff")]
