"""Writes per second of the stores, each a compare-and-swap of 800 bytes: `python -m bench.store [SECONDS]`.

sqlite runs with full durability: an acknowledged write is on the disk. The floor below it is what an append
followed by fdatasync costs on the same disk, one at a time; `x` says how many times that floor was reached,
which is a figure that survives a change of machine. `plain` is SQLite as one would use it first: the same
compare-and-swap into two tables, one commit for each, in a loop. `busy` is sqlite under a server: before each
write the event loop is kept busy for 200 µs, as by a request over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from dray.store import Committed, EventBatch, KeyUnchanged, Put, Store, StoreEvent
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore
from dray.store.watch_broadcaster import WatchBroadcaster
from dray.store.watch_buffer import WatchBuffer

WRITERS = (1, 16, 64)
VALUE = b"x" * 800
BUSY = 200e-6


async def measure(store: Store, writers: int, seconds: float, busy: float = 0.0) -> tuple[float, list[float]]:
    """Writes per second, and how long each one took, sorted."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def writer(number: int) -> None:
        key, revision = b"bench/%d/%d/%f" % (writers, number, busy), 0
        while time.perf_counter() < end:
            free = time.perf_counter() + busy
            while (begun := time.perf_counter()) < free:
                pass
            outcome = await store.txn([KeyUnchanged(key, revision)], [Put(key, VALUE)])
            assert isinstance(outcome, Committed)
            revision = outcome.revision
            took.append(time.perf_counter() - begun)
            await asyncio.sleep(0)

    begun = time.perf_counter()
    await asyncio.gather(*(writer(number) for number in range(writers)))
    return len(took) / (time.perf_counter() - begun), sorted(took)


async def reads(store: Store, readers: int, seconds: float) -> float:
    """Reads per second of one key."""
    end, count = time.perf_counter() + seconds, 0

    async def reader() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await store.get(b"bench/1/0/0.000000")
            count += 1
            await asyncio.sleep(0)

    await asyncio.gather(*(reader() for _ in range(readers)))
    return count / seconds


def floor(folder: Path, seconds: float) -> float:
    """Appends with fdatasync per second."""
    end, count = time.perf_counter() + seconds, 0
    with (folder / "floor").open("wb", buffering=0) as file:
        while time.perf_counter() < end:
            file.write(VALUE)
            os.fdatasync(file.fileno())
            count += 1
    return count / seconds


def plain(folder: Path, seconds: float) -> float:
    """Compare-and-swaps per second with one commit each."""
    with contextlib.closing(sqlite3.connect(folder / "plain.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE now (key BLOB PRIMARY KEY, revision INTEGER, value BLOB)")
        connection.execute("CREATE TABLE log (revision INTEGER PRIMARY KEY, key BLOB, value BLOB)")
        end, count = time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            key, count = b"bench/%d" % (count % 16), count + 1
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SELECT revision, value FROM now WHERE key = ?", (key,)).fetchone()
            connection.execute("REPLACE INTO now VALUES (?, ?, ?)", (key, count, VALUE))
            connection.execute("INSERT INTO log VALUES (?, ?, ?)", (count, key, VALUE))
            connection.execute("COMMIT")
    return count / seconds


def fan_out(watchers: int, seconds: float) -> float:
    """Batches published per second to a hub whose watchers all look elsewhere."""
    hub = WatchBroadcaster(1)
    for number in range(watchers):
        hub.subscribe(WatchBuffer(10), b"/objects/pods/ns-%d/" % number)
    batch = EventBatch(2, (StoreEvent(b"/objects/claims/default/mine", 2, None, None),))
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        hub.publish([batch])
        count += 1
    return count / seconds


async def show(title: str, store: Store, seconds: float, unit: float, busy: float = 0.0) -> None:
    for writers in WRITERS:
        cpu = time.process_time()
        rate, took = await measure(store, writers, seconds, busy)
        cost = (time.process_time() - cpu) / len(took) * 1e6 - busy * 1e6
        middle, late = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
        print(
            f"{title:14} {writers:4} writers {rate:9,.0f}/s {rate / unit:6.1f} x"
            f"  p50 {middle:6.2f} ms  p99 {late:6.2f} ms  {cost:4.0f} µs of processor each"
        )


async def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unit = floor(folder, seconds)
        print(f"{'append, fdatasync':17} 1 writer {unit:9,.0f}/s    1.0 x")
        simple = plain(folder, seconds)
        print(f"{'sqlite, plain':17} 1 writer {simple:9,.0f}/s {simple / unit:6.1f} x")
        stores: dict[str, Store] = {
            "memory": MemoryStore(),
            "sqlite, full": await SqliteStore.open(folder / "store.db"),
        }
        for title, store in stores.items():
            await show(title, store, seconds, unit)
            if isinstance(store, SqliteStore):
                await show("sqlite, busy", store, seconds, unit, BUSY)
            print(f"{title:14} {8:4} readers {await reads(store, 8, seconds):9,.0f}/s")
            await store.close()
        print(f"hub, 1,000 watchers elsewhere {fan_out(1000, seconds):9,.0f} batches/s")
        begun = time.perf_counter()
        store = await SqliteStore.open(folder / "store.db")
        print(
            f"opening {await store.get_revision():,} revisions, all verified: "
            f"{time.perf_counter() - begun:.2f} s"
        )
        await store.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    options.add_argument("seconds", type=float, nargs="?", default=3.0, help="time of each measurement")
    asyncio.run(main(options.parse_args().seconds))
