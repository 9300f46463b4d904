"""Deferred keys: objects that the garbage collector leaves to another program for some time.

Theory of operation: all keys of a table wait for the same time, so they are due in the order in which they
were added, and one task that sleeps until the first of them is due serves all. A key whose object is deleted
meanwhile is dropped, so the table has no more entries than there are objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeferredKeys:
    """Keys to look at again later, and the task that says when."""

    def __init__(self, get_seconds: Callable[[], float], on_due: Callable[[bytes], None]) -> None:
        """`get_seconds` returns how long a key waits."""
        self._get_seconds, self._on_due = get_seconds, on_due
        self._due: dict[bytes, float] = {}
        """When each key is due, the first one first."""
        self._added = asyncio.Event()

    def __contains__(self, key: bytes) -> bool:
        return key in self._due

    def __len__(self) -> int:
        return len(self._due)

    def restart(self, key: bytes) -> None:
        """Let a key wait for the whole time from now on."""
        self._due.pop(key, None)
        self._due[key] = asyncio.get_running_loop().time() + self._get_seconds()
        self._added.set()

    def discard(self, key: bytes) -> None:
        """Drop a key that is not looked at any more."""
        self._due.pop(key, None)

    async def run(self) -> None:
        """Tell of keys that are due, forever."""
        get_time = asyncio.get_running_loop().time
        while True:
            while self._due:
                key, due = next(iter(self._due.items()))
                rest = due - get_time()
                if rest > 0:
                    await asyncio.sleep(rest)
                    continue
                del self._due[key]
                self._on_due(key)
            self._added.clear()
            await self._added.wait()
