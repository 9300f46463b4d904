"""A process with a store that answers requests on its standard input, and is killed."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dray.store import (
    Committed,
    Compare,
    Delete,
    EntryPage,
    KeyUnchanged,
    Put,
    Store,
    StoreEntry,
    TxnConflict,
    Write,
)
from dray.store.sqlite.store import SqliteStore

PREFIX = b"k/"


class Ask(msgspec.Struct, omit_defaults=True):
    """A request: `mod_revision` is what a compare-and-swap expects, `value` what is written."""

    number: int
    kind: str
    key: int = -1
    value: int = 0
    mod_revision: int = -1


class Tell(msgspec.Struct, omit_defaults=True):
    """The answer: entries as (key, value, revision of the last change)."""

    number: int
    done: bool = True
    revision: int = 0
    entries: list[tuple[int, int, int]] = []


def key_of(number: int) -> bytes:
    return PREFIX + b"%03d" % number


def plain(entry: StoreEntry) -> tuple[int, int, int]:
    return int(entry.key.removeprefix(PREFIX)), int(entry.value), entry.mod_revision


async def answer(store: Store, ask: Ask) -> Tell:
    """Run a request on the store; the caller handles what it raises."""
    key = key_of(ask.key)
    match ask.kind:
        case "get":
            entry = await store.get(key)
            return Tell(ask.number, entries=[plain(entry)] if entry else [])
        case "list":
            page = await store.range(PREFIX)
            return Tell(ask.number, revision=page.revision, entries=[plain(entry) for entry in page.entries])
    compares = [KeyUnchanged(key, ask.mod_revision)] if ask.kind == "cas" else []
    write: Write = Delete(key) if ask.kind == "delete" else Put(key, b"%d" % ask.value)
    outcome = await store.txn(compares, [write])
    if isinstance(outcome, Committed):
        return Tell(ask.number, revision=outcome.revision)
    found = [plain(entry) for mismatch in outcome.failed if (entry := mismatch.current) is not None]
    return Tell(ask.number, done=False, revision=outcome.revision, entries=found)


class Lying(SqliteStore):
    """A store with one fault, for the checkers' own tests."""

    fault = ""
    rng = random.Random(7)

    async def get(self, key: bytes, revision: int | None = None) -> StoreEntry | None:
        if self.fault == "stale" and self.rng.random() < 0.3:
            revision = max(await self.get_revision() - 8, 1)
        return await super().get(key, revision)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        if self.fault == "lost-cas":
            compares = ()
        if self.fault == "lost-write" and self.rng.random() < 0.05:
            return Committed(await self.get_revision() + 1)
        return await super().txn(compares, writes)

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> EntryPage:
        page = await super().range(prefix, start_after=start_after, limit=limit, revision=revision)
        if self.fault != "torn-list" or not page.entries:
            return page
        await asyncio.sleep(0.003)
        later = await super().range(prefix)
        half = page.entries[len(page.entries) // 2].key
        entries = [entry for entry in page.entries if entry.key < half]
        return EntryPage((*entries, *(entry for entry in later.entries if entry.key >= half)), later.revision)


async def serve(path: Path, fault: str) -> None:
    Lying.fault = fault
    store = await (Lying if fault else SqliteStore).open(path)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    os.write(1, b"ready\n")
    tasks: set[asyncio.Task[None]] = set()

    async def one(line: bytes) -> None:
        told = await answer(store, msgspec.json.decode(line, type=Ask))
        os.write(1, msgspec.json.encode(told) + b"\n")

    while line := await reader.readline():
        task = asyncio.create_task(one(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
