"""Watchers of several kinds: steady, reconnecting, slow, and starting in a past that may be compacted."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import dataclass, field

from dray.store import EntryPage, Store
from dray.store.errors import CompactedError, SlowWatcherError
from tests.faults.watch.guarantees import Span

BOOKMARKS = 0.02


@dataclass(frozen=True)
class Habit:
    """How often a watcher stops and comes back, how long it dawdles, and how far back it starts."""

    leaves: float = 0.0
    dawdles: float = 0.0
    back: int = 0


HABITS = {
    "steady": Habit(),
    "restless": Habit(leaves=0.02),
    "slow": Habit(dawdles=0.3),
    "late": Habit(leaves=0.005, back=10**9),
    "restless and late": Habit(leaves=0.02, back=300),
}


@dataclass
class Watcher:
    """One watcher and what it saw."""

    store: Store
    prefix: bytes
    habit: Habit
    rng: random.Random
    spans: list[Span] = field(default_factory=list)
    lists: list[EntryPage] = field(default_factory=list)
    cut_off: int = 0
    compacted: int = 0
    wrong: list[str] = field(default_factory=list)

    async def follow(self, after: int, end: asyncio.Future[int]) -> None:
        """Watch until everything up to `end`, once that is known, was delivered."""
        cursor = max(after - self.habit.back, 1)
        while not (end.done() and cursor >= end.result()):
            span = Span(self.prefix, cursor)
            try:
                await self._one_span(span, end)
                self.spans.append(span)
                cursor = span.reached
                # Sometimes back over what was seen already: the past must not have changed.
                if self.habit.back and self.rng.random() < 0.2:
                    cursor = max(cursor - self.rng.randrange(self.habit.back), 1)
            except SlowWatcherError as error:
                self.cut_off += 1
                self.spans.append(span)
                if error.revision != span.reached:
                    self.wrong.append(f"cut off at {error.revision}, but told up to {span.reached}")
                cursor = error.revision
            except CompactedError:
                self.compacted += 1
                self.spans.append(span)
                page = await self.store.range(self.prefix)
                self.lists.append(page)
                cursor = page.revision

    async def _one_span(self, span: Span, end: asyncio.Future[int]) -> None:
        async with aclosing(self.store.watch(span.prefix, span.after, bookmarks=BOOKMARKS)) as batches:
            async for batch in batches:
                span.batches.append(batch)
                if end.done() and batch.revision >= end.result():
                    return
                if self.rng.random() < self.habit.leaves:
                    return
                if not end.done() and self.rng.random() < self.habit.dawdles / 20:
                    await asyncio.sleep(self.habit.dawdles)
