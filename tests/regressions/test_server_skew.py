"""Servers of two versions on one store."""

from __future__ import annotations

from dray.store import Delete, Put
from dray.store.memory import MemoryStore
from tests.contract.api import path, serving
from tests.contract.documents import config

NEWER = b"/registry/newer.example.com/things/default/thing"


async def test_a_kind_that_only_a_newer_server_knows_does_no_harm() -> None:
    """While servers are replaced one by one, the old ones must live with what the new ones keep."""
    store = MemoryStore()
    await store.txn([], [Put(NEWER, b"{}")])
    async with serving(store) as api:
        async with api.watch(path("configmaps")) as watch:
            await store.txn([], [Put(NEWER, b'{"format":"of tomorrow"}'), Put(NEWER + b"2", b"\xff")])
            await store.txn([], [Delete(NEWER)])
            await api.create(config("still-there"))
            assert await watch.tell(1) == [("ADDED", "still-there")]
        assert await api.names(path("configmaps")) == ["still-there"]
    await store.close()
