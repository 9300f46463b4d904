"""Who may act on what now: one at a time on a claim, one attempt after the other for a pod.

Work on a claim is never cut off: a call to a driver that was begun is waited for, even when whoever wanted it
does not wait any more, so that letting go of a claim always comes after preparing it, as the driver sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*waits: Awaitable[object]) -> None:
    """Wait for whichever comes first, and stop waiting for the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class Bell:
    """Wakes everybody who waits for it at this moment."""

    def __init__(self) -> None:
        self._rings = asyncio.Event()

    def ring(self) -> None:
        self._rings.set()
        self._rings = asyncio.Event()

    async def heard(self) -> None:
        await self._rings.wait()


class Busy:
    """The claims that are being worked on."""

    def __init__(self) -> None:
        self.claims: set[str] = set()
        self._bell = Bell()

    @asynccontextmanager
    async def taking(
        self, needed: Callable[[], frozenset[str]], unless: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[bool]:
        """Claims that nobody else works on while the block lasts; False when it came to nothing.

        What is needed is asked again each time something became free.
        """
        while (wanted := needed()) & self.claims and not unless():
            await self._bell.heard()
        if unless():
            yield False
            return
        self.claims |= wanted
        try:
            yield True
        finally:
            self.claims -= wanted
            self._bell.ring()

    async def waited(self, needed: Callable[[], frozenset[str]]) -> bool:
        """Wait until nobody works on claims; False when nobody did."""
        if not needed() & self.claims:
            return False
        while needed() & self.claims:
            await self._bell.heard()
        return True

    def look_again(self) -> None:
        """What those who wait need, or whether they still do, may have changed."""
        self._bell.ring()


class Turns:
    """Work that goes on to its end, one piece after the other for each pod."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Task[Any]] = {}
        self._all: set[asyncio.Task[Any]] = set()

    async def after(self, pod_uid: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do work for a pod when what was begun for it before has ended."""
        before = self._last.get(pod_uid)

        async def in_turn() -> T:
            if before is not None:
                await asyncio.wait((before,))
            return await work()

        task = asyncio.create_task(in_turn())
        self._last[pod_uid] = task
        self._all.add(task)
        task.add_done_callback(lambda done: self._ended(pod_uid, done))
        return await asyncio.shield(task)

    def _ended(self, pod_uid: str, task: asyncio.Task[Any]) -> None:
        self._all.discard(task)
        if self._last.get(pod_uid) is task:
            del self._last[pod_uid]

    async def close(self) -> None:
        """Stop everything; what was under way is found in the record by the next agent."""
        tasks = tuple(self._all)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
