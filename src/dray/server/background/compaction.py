"""Compaction: removes the history of the store that is older than a few minutes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from dray.store import Store
from dray.store.errors import StoreError

HISTORY_SECONDS: Final = 300.0
"""How long past revisions stay readable for watches and pages of lists."""
_COMPACTION_SECONDS: Final = 15.0


async def compact_history(store: Store, monotonic: Callable[[], float]) -> None:
    """Compact the history periodically, forever; the owner runs this as a task."""
    revisions: deque[tuple[float, int]] = deque()
    while True:
        try:
            revisions.append((monotonic(), await store.get_revision()))
            while len(revisions) > 1 and revisions[1][0] <= monotonic() - HISTORY_SECONDS:
                revisions.popleft()
            if revisions[0][0] <= monotonic() - HISTORY_SECONDS:
                await store.compact(revisions[0][1])
        except StoreError:
            pass  # requests and the cache report a store that does not answer
        await asyncio.sleep(_COMPACTION_SECONDS)
