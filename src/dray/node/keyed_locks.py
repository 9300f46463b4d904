"""Locks by claim and task queues by pod.

A driver call in progress is never cancelled with its caller: it runs to its end under the lock of its claims,
so that a driver always sees unprepare after prepare.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Broadcast:
    """Wakes all tasks that wait for it now."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class NodeClaimLocks:
    """Locks on claims, by uid."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self._freed = Broadcast()

    @asynccontextmanager
    async def hold(
        self, get_uids: Callable[[], frozenset[str]], should_cancel: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[bool]:
        """Lock claims inside the block; yield False, without a lock, when `should_cancel` says so.

        `get_uids` is called again each time a lock is released.
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
        """Wait until no claim is locked; False when none was."""
        if not get_uids() & self.locked:
            return False
        while get_uids() & self.locked:
            await self._freed.wait()
        return True

    def recheck(self) -> None:
        """Let waiting tasks check again which claims they need, and whether they are cancelled."""
        self._freed.notify_all()


class PodTaskQueues:
    """Runs tasks to their end, one after the other for each pod."""

    def __init__(self) -> None:
        self._last_tasks: dict[str, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run_in_order(self, pod_uid: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run work for a pod after its earlier tasks have ended; a cancelled caller does not stop it."""
        previous = self._last_tasks.get(pod_uid)

        async def run_after_previous() -> T:
            if previous is not None:
                await asyncio.wait((previous,))
            return await work()

        task = asyncio.create_task(run_after_previous())
        self._last_tasks[pod_uid] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget_task(pod_uid, done))
        return await asyncio.shield(task)

    def _forget_task(self, pod_uid: str, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._last_tasks.get(pod_uid) is task:
            del self._last_tasks[pod_uid]

    async def close(self) -> None:
        """Cancel all tasks; the next agent finds the calls in progress in the record."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
