"""Runs tests that are coroutines, each in an event loop of its own and with a time limit."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing

import pytest

from dray.store import EventBatch, Store

LONGEST = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        async with asyncio.timeout(LONGEST):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True


async def take(store: Store, prefix: bytes, after: int, until: int) -> list[EventBatch]:
    """What a watch hands out until it has come to revision `until`."""
    seen: list[EventBatch] = []
    async with aclosing(store.watch(prefix, after, bookmarks=0.005)) as batches:
        async for batch in batches:
            if batch.events:
                seen.append(batch)
            if batch.revision >= until:
                break
    return seen
