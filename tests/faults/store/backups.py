"""R-20: a backup under load is one state; restored it is that state; a damaged one is refused."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dray.store import Delete, Put, Store, StoreEntry
from dray.store.backups import back_up_store, restore_store
from dray.store.errors import StoreOpenError
from dray.store.sqlite.store import SqliteStore

WRITERS = 4


def campaign(folder: Path, rounds: int, flips: int, seed: int) -> Counter[str]:
    """Back up and restore; then flip bits in the last backup. Returns how often each judgement was passed."""
    return asyncio.run(_campaign(folder, rounds, flips, random.Random(seed)))


async def _campaign(folder: Path, rounds: int, flips: int, rng: random.Random) -> Counter[str]:
    seen: Counter[str] = Counter()
    saved, target = folder / "saved.db", folder / "restored.db"
    truth = ""
    async with await SqliteStore.open(folder / "store.db") as store:
        writers = [asyncio.create_task(_load(store, number, rng)) for number in range(WRITERS)]
        for _ in range(rounds):
            await asyncio.sleep(rng.uniform(0, 0.1))
            at = await back_up_store(store, saved)
            truth = digest((await store.range(b"", revision=at)).entries)
            await restore_store(saved, str(target), force=True)
            found = await _digest_of(target)
            seen["restored equal" if found == truth else f"WRONG state of a backup at {at}"] += 1
            await store.compact(at)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    whole = saved.read_bytes()
    for _ in range(flips):
        place = rng.randrange(len(whole))
        flipped = bytes([whole[place] ^ 1 << rng.randrange(8)])
        saved.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        try:
            await restore_store(saved, str(target), force=True)
        except StoreOpenError:
            seen["damaged refused"] += 1
        else:
            # A bit that nobody reads may be different.
            same = await _digest_of(target) == truth
            seen["flip without effect" if same else "WRONG state from a damaged backup"] += 1
    return seen


async def _load(store: Store, writer: int, rng: random.Random) -> None:
    while True:
        keys = {b"k/%d/%d" % (writer, rng.randrange(50)) for _ in range(3)}
        value = rng.randbytes(rng.choice([10, 300, 3000]))
        await store.txn([], [Delete(key) if rng.random() < 0.2 else Put(key, value) for key in keys])


async def _digest_of(path: Path) -> str:
    async with await SqliteStore.open(path) as store:
        return digest((await store.range(b"")).entries)


def digest(entries: Iterable[StoreEntry]) -> str:
    """A digest of everything a client can see of the entries but their numbers, which go on elsewhere."""
    total = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: (entry.mod_revision, entry.key)):
        total.update(repr((entry.key, entry.value, entry.version)).encode())
    return total.hexdigest()
