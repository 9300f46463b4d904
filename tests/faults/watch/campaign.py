"""R-04: rounds of writers and watchers on one store, with compaction in between, each judged whole."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from dray.store import Committed, Delete, Put, Store, StoreEntry, Write
from tests.faults.watch.guarantees import broken
from tests.faults.watch.truth import Truth
from tests.faults.watch.watchers import HABITS, Watcher

PREFIXES = (b"", b"a/", b"a/x/", b"a/x/k1", b"a/x/k", b"b/", b"nothing/")
HOMES = (b"a/x/k%d", b"a/y/k%d", b"b/k%d", b"c%d")
KEYS = 12
WRITERS = 4


@dataclass
class Tally:
    """What a campaign saw; the pass line is that nothing is wrong."""

    changes: int = 0
    told: int = 0
    spans: int = 0
    bookmarks: int = 0
    cut_off: int = 0
    compacted: int = 0
    wrong: list[str] = field(default_factory=list)

    def take(self, watcher: Watcher, truth: Truth) -> None:
        self.told += sum(len(batch.events) for span in watcher.spans for batch in span.batches)
        self.bookmarks += sum(not batch.events for span in watcher.spans for batch in span.batches)
        self.spans += len(watcher.spans)
        self.cut_off += watcher.cut_off
        self.compacted += watcher.compacted
        self.wrong += watcher.wrong + broken(watcher.spans, truth)
        for page in watcher.lists:
            if {entry.key: entry for entry in page.entries} != truth.state(page.revision, watcher.prefix):
                self.wrong.append(f"a list at {page.revision} is not the state there")


async def one_round(writing: Store, watching: Store, transactions: int, seed: int, tally: Tally) -> None:
    """Write and watch at the same time, compact now and then, and judge."""
    rng = random.Random(seed)
    first = await writing.range(b"")
    done: list[tuple[int, Sequence[Write]]] = []
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watchers = [
        Watcher(watching, prefix, habit, random.Random(f"{seed} {prefix!r} {name}"))
        for prefix in PREFIXES
        for name, habit in HABITS.items()
    ]
    # Whoever starts late starts in this round: what came before is not part of its truth.
    await writing.compact(first.revision)
    following = [asyncio.create_task(watcher.follow(first.revision, end)) for watcher in watchers]
    await asyncio.gather(
        *(
            _write(writing, random.Random(f"{seed} {n}"), transactions // WRITERS, done)
            for n in range(WRITERS)
        ),
        _compact(writing, rng, transactions, done),
    )
    end.set_result(await writing.get_revision())
    async with asyncio.timeout(120):
        await asyncio.gather(*following)
    start: dict[bytes, StoreEntry] = {entry.key: entry for entry in first.entries}
    truth = Truth.of(start, done)
    tally.changes += len(done)
    for watcher in watchers:
        tally.take(watcher, truth)


async def _write(
    store: Store, rng: random.Random, transactions: int, done: list[tuple[int, Sequence[Write]]]
) -> None:
    for number in range(transactions):
        keys = {rng.choice(HOMES) % rng.randrange(KEYS) for _ in range(rng.choice([1, 1, 2, 4]))}
        writes: list[Write] = [
            Delete(key) if rng.random() < 0.2 else Put(key, b"%d" % number) for key in sorted(keys)
        ]
        outcome = await store.txn([], writes)
        assert isinstance(outcome, Committed)
        done.append((outcome.revision, writes))
        await asyncio.sleep(0)  # A store in memory never waits, and watchers should run beside it.


async def _compact(
    store: Store, rng: random.Random, transactions: int, done: list[tuple[int, Sequence[Write]]]
) -> None:
    """Compact the older half of what was written, three times."""
    for part in (0.3, 0.6, 0.8):
        while len(done) < transactions // WRITERS * WRITERS * part:
            await asyncio.sleep(0.005)
        revision, _ = done[rng.randrange(len(done) // 2, len(done))]
        with contextlib.suppress(ValueError):
            await store.compact(revision)


async def campaign(writing: Store, watching: Store, told: int, transactions: int, seed: int) -> Tally:
    """Run rounds until so many events were delivered to watchers."""
    tally = Tally()
    while tally.told < told:
        await one_round(writing, watching, transactions, seed, tally)
        seed += 1
    return tally
