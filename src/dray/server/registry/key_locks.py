"""Locks on keys of the store, for writers that lost several races: waiting is faster than losing again.

A lock exists while it has users. It only saves work: what a write relies on is compared when it is committed,
whoever holds which lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class _KeyLock:
    """The lock of one key."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class KeyLocks:
    """The locks of contended keys: objects, rows of the ledger, quotas."""

    def __init__(self) -> None:
        self._locks: dict[bytes, _KeyLock] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[bytes]) -> AsyncIterator[None]:
        """Hold the locks of some keys.

        Everybody takes them in the order of the keys, so nobody waits for each other in a circle.
        """
        async with AsyncExitStack() as held:
            for key in sorted(set(keys)):
                await held.enter_async_context(self._hold_one(key))
            yield

    @asynccontextmanager
    async def _hold_one(self, key: bytes) -> AsyncIterator[None]:
        key_lock = self._locks.setdefault(key, _KeyLock())
        key_lock.users += 1
        try:
            async with key_lock.lock:
                yield
        finally:
            key_lock.users -= 1
            if not key_lock.users:
                del self._locks[key]
