"""R-02: a torn or altered file is read up to some revision, or refused; it never serves anything else."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dray.store import Delete, Put
from dray.store.errors import StoreOpenError
from dray.store.sqlite import queries
from dray.store.sqlite.database_file import connect, prepare_file
from dray.store.sqlite.store import SqliteStore

State = dict[bytes, bytes]
FILES = ("store.db", "store.db-wal")
LOOKS = 5
"""At how many revisions a damaged file is looked at, beside the newest."""


def make(folder: Path, seed: int, writes: int) -> dict[int, State]:
    """A store as a crash leaves it, part of it still in the log; returns every state it was in."""
    original = folder / "original"
    original.mkdir()
    return asyncio.run(_make(original, random.Random(seed), writes))


async def _make(folder: Path, rng: random.Random, writes: int) -> dict[int, State]:
    working = folder / "working"
    working.mkdir()
    store = await SqliteStore.open(working / "store.db")
    states: dict[int, State] = {1: {}}
    for number in range(writes):
        state = dict(states[await store.get_revision()])
        key, value = b"k/%d" % rng.randrange(40), rng.randbytes(rng.choice([5, 300, 5000]))
        gone = b"k/%d" % rng.randrange(40)
        outcome = await store.txn([], [Put(key, value), *([Delete(gone)] if gone != key else [])])
        state[key] = value
        if gone != key:
            state.pop(gone, None)
        states[outcome.revision] = state
        if number == writes // 2:
            await store.compact(outcome.revision - 5)
    for name in FILES:
        shutil.copyfile(working / name, folder / name)
    await store.close()
    return states


def cuts(folder: Path, step: int, reach: int) -> Iterator[int]:
    """Lengths to which the log is cut: every `step`-th of its last `reach` bytes."""
    size = _used(folder / "original" / FILES[1])
    yield from range(size - 1, max(size - reach, 0), -step)


def _used(log: Path) -> int:
    """The end of the last record: behind it stand old ones, which carry another salt than the head."""
    content = log.read_bytes()
    salt, frame = content[16:24], 24 + int.from_bytes(content[8:12], "big")
    end = 32
    while content[end + 8 : end + 16] == salt:
        end += frame
    return end


def judge_cut(folder: Path, states: dict[int, State], length: int) -> str:
    copy = _copy(folder)
    with (copy / FILES[1]).open("r+b") as log:
        log.truncate(length)
    return _judge(copy, states)


def judge_flip(folder: Path, states: dict[int, State], rng: random.Random) -> str:
    copy = _copy(folder)
    target = copy / rng.choice(FILES)
    place, bit = rng.randrange(target.stat().st_size), 1 << rng.randrange(8)
    with target.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ bit]))
    return _judge(copy, states)


def _copy(folder: Path) -> Path:
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in FILES:
        shutil.copyfile(folder / "original" / name, copy / name)
    return copy


def _judge(copy: Path, states: dict[int, State]) -> str:
    """`whole`, `prefix` or `refused`; anything else is wrong data, in words."""
    path = copy / FILES[0]
    try:
        head = prepare_file(path)
        connection = connect(path, writer=False)
        try:
            readable = [at for at in states if head.compacted <= at <= head.revision]
            for revision in {*readable[:: len(readable) // LOOKS + 1], *readable[-1:]}:
                page = queries.read_page(connection, b"", None, None, revision)
                if {entry.key: entry.value for entry in page.entries} != states[revision]:
                    return f"WRONG at revision {revision}"
        finally:
            connection.close()
    except StoreOpenError as error:
        return "refused" if str(path) in str(error) else f"WRONG message: {error}"
    if head.revision not in states:
        return f"WRONG revision {head.revision}"
    return "whole" if head.revision == max(states) else "prefix"


def campaign(folder: Path, seed: int, *, step: int, reach: int, flips: int) -> Counter[str]:
    """Cut and flip; returns how often each judgement was passed."""
    states = make(folder, seed, writes=60)
    rng = random.Random(seed)
    seen = Counter(f"cut: {judge_cut(folder, states, length)}" for length in cuts(folder, step, reach))
    seen.update(f"flip: {judge_flip(folder, states, rng)}" for _ in range(flips))
    return seen
