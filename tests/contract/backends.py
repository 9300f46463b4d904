"""The back ends under test, each able to open fresh stores that start empty."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dray.store import Store
from dray.store.base import MAX_BUFFERED_EVENTS
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore

NAMES = ("memory", "sqlite", "etcd")

numbers = itertools.count()


class Backend:
    """Opens stores of one kind, each empty."""

    def __init__(self, name: str, folder: Path, endpoints: tuple[str, ...] = ()) -> None:
        self.name = name
        self._folder = folder
        self._endpoints = endpoints

    @asynccontextmanager
    async def open(self, buffered_events: int = MAX_BUFFERED_EVENTS) -> AsyncIterator[Store]:
        store = await self._opened(buffered_events)
        try:
            yield store
        finally:
            await store.close()

    async def _opened(self, buffered_events: int) -> Store:
        number = next(numbers)
        if self.name == "memory":
            return MemoryStore(buffered_events)
        if self.name == "sqlite":
            path = self._folder / f"store-{number}.db"
            return await SqliteStore.open(path, buffered_events=buffered_events)
        from dray.store.etcd.store import EtcdStore

        prefix = f"/test-{number}/".encode()
        # Patient, since a fresh etcd elects its leader first.
        return await EtcdStore.open(
            self._endpoints, prefix=prefix, timeout=20, buffered_events=buffered_events
        )
