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


class Broadcast:
    """Wakes everybody who waits for it at this moment."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class NodeClaimLocks:
    """The claims that are being worked on."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self._freed = Broadcast()

    @asynccontextmanager
    async def hold(
        self, get_uids: Callable[[], frozenset[str]], should_cancel: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[bool]:
        """Claims that nobody else works on while the block lasts; False when it came to nothing.

        What is needed is asked again each time something became free.
        """
        while (wanted := get_uids()) & self.locked and not should_cancel():
            await self._freed.wait()
        if should_cancel():
            yield False
            return
        self.locked |= wanted
        try:
            yield True
        finally:
            self.locked -= wanted
            self._freed.notify_all()

    async def wait_until_free(self, get_uids: Callable[[], frozenset[str]]) -> bool:
        """Wait until nobody works on claims; False when nobody did."""
        if not get_uids() & self.locked:
            return False
        while get_uids() & self.locked:
            await self._freed.wait()
        return True

    def recheck(self) -> None:
        """What those who wait need, or whether they still do, may have changed."""
        self._freed.notify_all()


class PodTaskQueues:
    """Work that goes on to its end, one piece after the other for each pod."""

    def __init__(self) -> None:
        self._last_tasks: dict[str, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run_in_order(self, pod_uid: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do work for a pod when what was begun for it before has ended."""
        before = self._last_tasks.get(pod_uid)

        async def in_turn() -> T:
            if before is not None:
                await asyncio.wait((before,))
            return await work()

        task = asyncio.create_task(in_turn())
        self._last_tasks[pod_uid] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget_task(pod_uid, done))
        return await asyncio.shield(task)

    def _forget_task(self, pod_uid: str, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._last_tasks.get(pod_uid) is task:
            del self._last_tasks[pod_uid]

    async def close(self) -> None:
        """Stop everything; what was under way is found in the record by the next agent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
