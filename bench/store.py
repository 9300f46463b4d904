"""Writes per second of the stores, each a compare-and-swap of 800 bytes: `python bench/store.py [SECONDS]`.

sqlite runs with full durability: an acknowledged write is on the disk. The floor below it is what an append
followed by fdatasync costs on the same disk, one at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from dray.store import Committed, Put, Store, Unchanged
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore

WRITERS = (1, 16, 64)
VALUE = b"x" * 800


async def measure(store: Store, writers: int, seconds: float) -> tuple[float, list[float]]:
    """Writes per second, and how long each one took, sorted."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def writer(number: int) -> None:
        key, revision = b"bench/%d/%d" % (writers, number), 0
        while (begun := time.perf_counter()) < end:
            outcome = await store.txn([Unchanged(key, revision)], [Put(key, VALUE)])
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
            await store.get(b"bench/1/0")
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


async def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"append and fdatasync   1 writer  {floor(folder, seconds):9,.0f}/s")
        stores: dict[str, Store] = {
            "memory": MemoryStore(),
            "sqlite, full": await SqliteStore.open(folder / "store.db"),
        }
        for title, store in stores.items():
            for writers in WRITERS:
                rate, took = await measure(store, writers, seconds)
                middle, late = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
                print(
                    f"{title:16} {writers:6} writers {rate:9,.0f}/s  p50 {middle:.2f} ms  p99 {late:.2f} ms"
                )
            print(f"{title:16} {8:6} readers {await reads(store, 8, seconds):9,.0f}/s")
            await store.close()
        begun = time.perf_counter()
        store = await SqliteStore.open(folder / "store.db")
        print(
            f"opening {await store.revision():,} revisions, all verified: {time.perf_counter() - begun:.2f} s"
        )
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0))
