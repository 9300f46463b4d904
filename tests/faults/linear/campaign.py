"""R-03: histories of eight clients under kills and pauses, each judged by both checkers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from dray.store import Store
from dray.store.sqlite.store import SqliteStore
from tests.faults.linear import clients
from tests.faults.linear.checker import judge
from tests.faults.linear.host import PREFIX, Ask, Tell, answer
from tests.faults.linear.operations import ABSENT, Change, Op
from tests.faults.linear.order import judge_order
from tests.faults.linear.process import hosted


@dataclass
class Tally:
    """What a campaign saw; the pass line is that no history is wrong."""

    histories: int = 0
    operations: int = 0
    unknown: int = 0
    refused: int = 0
    kills: int = 0
    pauses: int = 0
    wrong: list[str] = field(default_factory=list)

    def judge(self, history: list[Op], truth: list[Change]) -> None:
        """Add one history."""
        self.histories += 1
        self.operations += len(history)
        self.unknown += sum(not op.known and op.kind != "get" for op in history)
        self.refused += sum(op.known and not op.done for op in history)
        self.wrong += judge(history) + judge_order(history, truth)


async def in_a_process(folder: Path, size: tuple[int, int], seed: int, fault: str = "") -> Tally:
    """Histories of the store in one file, in a process that is killed; `size` is histories and operations."""
    tally, rng = Tally(), random.Random(seed)
    for number in range(size[0]):
        path = folder / f"{number}.db"
        async with hosted(path, fault) as store:
            stop = asyncio.Event()
            disturbing = asyncio.create_task(store.disturb(rng, 0.25, stop))
            history = await clients.traffic([store], size[1], seed + number)
            stop.set()
            await disturbing
            tally.kills += store.kills
            tally.pauses += store.pauses
        async with await SqliteStore.open(path) as kept:
            tally.judge(history, await truth_of(kept, 1))
    return tally


class Direct:
    """A line to a store in this process, for a store whose servers are elsewhere."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(self, ask: Ask) -> Tell:
        return await answer(self._store, ask)


@contextlib.asynccontextmanager
async def in_etcd(endpoints: tuple[str, ...], prefix: bytes) -> AsyncIterator[list[Store]]:
    """One store per member, each asking that member first."""
    from dray.store.etcd.store import EtcdStore

    async with contextlib.AsyncExitStack() as stack:
        orders = [endpoints[start:] + endpoints[:start] for start in range(len(endpoints))]
        yield [
            await stack.enter_async_context(await EtcdStore.open(order, prefix=prefix, timeout=10))
            for order in orders
        ]


async def truth_of(store: Store, after: int) -> list[Change]:
    """Everything that ever changed, from the store's own history."""
    changes: list[Change] = []
    end = await store.get_revision()
    async with contextlib.aclosing(store.watch(PREFIX, after, bookmarks=0.05)) as batches:
        async for batch in batches:
            for event in batch.events:
                value = int(event.entry.value) if event.entry else ABSENT
                changes.append(Change(event.revision, int(event.key.removeprefix(PREFIX)), value))
            if batch.revision >= end:
                return changes
    raise AssertionError("the watch ended by itself")
