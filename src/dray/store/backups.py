"""Backups of any store, and the way back into any store: one function each for the command line.

Theory of operation: a backup is a file of the format of the store in one file, whatever store it came from,
and it is verified before it gets its name. A store in one file copies itself; every other one is read page
by page at one revision, entries keep their revisions and versions, and the past before is compacted away.

Restoring into a file gives that store back with later revisions. Restoring into etcd gives the values back
under an empty prefix, with revisions of that etcd: who remembers older ones reads again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path

from dray.store.address import open_store, sqlite_path
from dray.store.base import Delete, Entry, Put, Store, Write
from dray.store.errors import OpenError, StoreError
from dray.store.sqlite import backup as copies
from dray.store.sqlite.database_file import connect, verify
from dray.store.sqlite.rows import COLUMNS, SUM_MASK, Head, Row, checked, checksum_of, entry_of, row_id
from dray.store.sqlite.store import SqliteStore

PAGE = 500
"""How many entries are read at once."""
MOST_WRITES, MOST_BYTES = 100, 1 << 20
"""What one transaction of a restore may hold; below the limits of an etcd that was told nothing."""


async def backup(store: Store, target: Path) -> int:
    """Write the present state into the file `target` while others go on; returns its revision."""
    if isinstance(store, SqliteStore):
        return await store.backup(target)
    revision, entries = await _everything(store)
    return await asyncio.to_thread(_write, entries, revision, target)


async def restore(
    source: Path, address: str, *, force: bool = False, also: Mapping[bytes, bytes] = copies.NOTHING_ELSE
) -> int:
    """Bring a backup back, and with it what `also` has; returns the revision at which the store goes on.

    Nothing is overwritten without `force`, and nothing at all by a backup that is damaged.
    """
    path = sqlite_path(address)
    if path is not None:
        return await asyncio.to_thread(copies.restore, source, path, force=force, also=also)
    if address == "memory:":
        raise OpenError("`memory:` keeps nothing, so nothing can be restored to it; give a path or an etcd")
    entries = await asyncio.to_thread(_read, source)
    async with await open_store(address) as store:
        await _clear(store, address, force=force)
        # Before everything else: a restore that breaks off is known for one.
        values = {**also, **{entry.key: entry.value for entry in entries if entry.key not in also}}
        return await _put_all(store, values, address)


async def _put_all(store: Store, values: Mapping[bytes, bytes], address: str) -> int:
    revision, done = await store.revision(), 0
    try:
        for writes in _helpings(Put(key, value) for key, value in values.items()):
            revision = (await store.txn([], writes)).revision
            done += len(writes)
    except StoreError as error:
        # Many transactions are not one: whoever looks now sees a part, and must be told.
        raise OpenError(
            f"{done} of {len(values)} keys are under `{address}`: {error}; restore again with `--force`"
        ) from error
    return revision


async def _everything(store: Store) -> tuple[int, list[Entry]]:
    page = await store.range(b"", limit=PAGE)
    revision, entries = page.revision, list(page.entries)
    while page.more:
        page = await store.range(b"", start_after=entries[-1].key, limit=PAGE, revision=revision)
        entries += page.entries
    return revision, entries


def _write(entries: list[Entry], revision: int, target: Path) -> int:
    rows = list(_rows(entries))
    total = sum(row[6] for row in rows) & SUM_MASK
    head = Head(revision=revision, compacted=revision, rows=len(rows), total=total)
    return copies.build(rows, head, target)


def _rows(entries: Iterable[Entry]) -> Iterator[Row]:
    """One row for each entry, numbered by the revision of its last change."""
    last, place = 0, 0
    for entry in sorted(entries, key=lambda entry: (entry.mod_revision, entry.key)):
        last, place = entry.mod_revision, place + 1 if entry.mod_revision == last else 0
        fields = (row_id(last, place), entry.key, entry.create_revision, entry.version, 0)
        yield (*fields, entry.value, checksum_of(fields, entry.value))


def _read(source: Path) -> list[Entry]:
    """Every living entry of a backup that is whole."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copies.checked_copy(source, Path(folder) / "copy")
        verify(copy, writer=False)
        with contextlib.closing(connect(copy, writer=False)) as connection:
            return list(_living(connection))


def _living(connection: sqlite3.Connection) -> Iterator[Entry]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM current c JOIN history h ON h.id = c.id ORDER BY c.key")
    for row in rows:
        entry = entry_of(checked(row))
        if entry is not None:
            yield entry


async def _clear(store: Store, address: str, *, force: bool) -> None:
    async for entries in _pages(store):
        if not force:
            raise OpenError(
                f"there are keys under `{address}`; choose another prefix, or overwrite them with `--force`"
            )
        for writes in _helpings(Delete(entry.key) for entry in entries):
            await store.txn([], writes)


async def _pages(store: Store) -> AsyncIterator[tuple[Entry, ...]]:
    """What is there, one helping after the other, as long as there is something."""
    while (page := await store.range(b"", limit=PAGE)).entries:
        yield page.entries


def _helpings(writes: Iterable[Write]) -> Iterator[list[Write]]:
    """Writes in parts that a transaction can hold."""
    part: list[Write] = []
    size = 0
    for write in writes:
        weight = len(write.key) + (len(write.value) if isinstance(write, Put) else 0)
        if part and (len(part) >= MOST_WRITES or size + weight > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(write)
        size += weight
    if part:
        yield part
