"""The snapshot worker: takes over changes of many nodes before a pod waits for them.

Theory of operation: a decision takes over every change since the last one. When thousands of nodes join or
publish their devices, or the scheduler starts, the first pods would wait for all of them: 50 µs for each
node. So the worker updates the snapshot a moment after nodes or slices changed, or the allocations of many
claims, some nodes at a time, and yields to other tasks in between.

Rules for this file: it changes nothing that the next decision would not change in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dray.scheduler.cache import SchedulerCache

DELAY_SECONDS: Final = 0.1
"""From a change to the update: changes come in numbers."""
NODES_AT_ONCE: Final = 100
"""Nodes between two turns of other tasks."""


class SnapshotWorker:
    """Keeps the snapshot of a cache up to date while no pod is decided."""

    def __init__(self, cache: SchedulerCache, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._cache, self._sleep = cache, sleep
        self._has_changes = asyncio.Event()
        cache.on_nodes_changed = self._has_changes.set

    async def run(self) -> None:
        """Update the snapshot until cancelled."""
        while True:
            await self._has_changes.wait()
            await self._sleep(DELAY_SECONDS)
            self._has_changes.clear()
            while self._cache.has_changes:
                self._cache.update_snapshot(NODES_AT_ONCE)
                await asyncio.sleep(0)
