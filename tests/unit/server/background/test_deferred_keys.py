"""Deferred keys become due in their order, each once, and not when they were dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dray.server.background.deferred_keys import DeferredKeys

Work = Callable[[DeferredKeys, asyncio.Queue[bytes]], Awaitable[None]]


def run(work: Work, seconds: float = 0.02) -> None:
    async def main() -> None:
        due: asyncio.Queue[bytes] = asyncio.Queue()
        keys = DeferredKeys(lambda: seconds, due.put_nowait)
        task = asyncio.create_task(keys.run())
        async with asyncio.timeout(30):
            await work(keys, due)
        task.cancel()

    asyncio.run(main())


def test_keys_are_due_in_the_order_in_which_they_were_added():
    async def work(keys: DeferredKeys, due: asyncio.Queue[bytes]) -> None:
        for key in (b"a", b"b", b"c"):
            keys.restart(key)
        assert b"a" in keys
        assert [await due.get() for _ in range(3)] == [b"a", b"b", b"c"]
        assert len(keys) == 0
        keys.restart(b"d")
        assert await due.get() == b"d"

    run(work)


def test_a_key_that_is_added_again_waits_from_then_on():
    async def work(keys: DeferredKeys, due: asyncio.Queue[bytes]) -> None:
        for key in (b"a", b"b", b"a"):
            keys.restart(key)
        assert [await due.get() for _ in range(2)] == [b"b", b"a"]
        assert due.empty()

    run(work)


def test_a_key_that_is_dropped_is_never_due():
    async def work(keys: DeferredKeys, due: asyncio.Queue[bytes]) -> None:
        for key in (b"a", b"b", b"c"):
            keys.restart(key)
        keys.discard(b"a")
        keys.discard(b"unknown")
        assert [await due.get() for _ in range(2)] == [b"b", b"c"]
        assert due.empty()

    run(work)
