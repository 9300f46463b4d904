"""Backup and restore of any store, for the command line.

Theory of operation: a backup is a SQLite store file, whatever store it came from, and it is verified before
it gets its name. A SQLite store copies itself; any other store is read page by page at one revision: entries
keep their revisions and versions, and the history before is compacted away.

Restoring into a file gives that store back with later revisions. Restoring into etcd writes the values under
an empty prefix, with revisions of that etcd: clients that remember older ones list again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path

from dray.store.address import open_store, parse_sqlite_path
from dray.store.base import Delete, Put, Store, StoreEntry, Write
from dray.store.errors import StoreError, StoreOpenError
from dray.store.sqlite import backup as copies
from dray.store.sqlite.database_file import connect, verify_file
from dray.store.sqlite.rows import (
    COLUMNS,
    SUM_MASK,
    Row,
    StoreHead,
    compute_row_checksum,
    decode_entry,
    encode_row_id,
    verify_row,
)
from dray.store.sqlite.store import SqliteStore

PAGE_SIZE = 500
"""How many entries are read at once."""
MAX_TXN_WRITES, MAX_TXN_BYTES = 100, 1 << 20
"""Limit of one transaction of a restore; below the default limits of etcd."""


async def back_up_store(store: Store, target: Path) -> int:
    """Write the current state into the file `target` while others write; returns its revision."""
    if isinstance(store, SqliteStore):
        return await store.backup(target)
    revision, entries = await _read_all(store)
    return await asyncio.to_thread(_write_backup, entries, revision, target)


async def restore_store(
    source: Path,
    address: str,
    *,
    force: bool = False,
    extra_values: Mapping[bytes, bytes] = copies.NO_EXTRA_VALUES,
) -> int:
    """Restore a backup, and write `extra_values` with it; returns the revision at which the store continues.

    Nothing is overwritten without `force`, and nothing at all by a damaged backup.
    """
    path = parse_sqlite_path(address)
    if path is not None:
        return await asyncio.to_thread(
            copies.restore_backup, source, path, force=force, extra_values=extra_values
        )
    if address == "memory:":
        raise StoreOpenError(
            "`memory:` keeps nothing, so nothing can be restored to it; give a path or an etcd"
        )
    entries = await asyncio.to_thread(_read_backup, source)
    async with await open_store(address) as store:
        await _clear_prefix(store, address, force=force)
        # First of all: it marks a restore that does not finish.
        values = {
            **extra_values,
            **{entry.key: entry.value for entry in entries if entry.key not in extra_values},
        }
        return await _put_all(store, values, address)


async def _put_all(store: Store, values: Mapping[bytes, bytes], address: str) -> int:
    revision, done = await store.get_revision(), 0
    try:
        for writes in _split_writes(Put(key, value) for key, value in values.items()):
            revision = (await store.txn([], writes)).revision
            done += len(writes)
    except StoreError as error:
        # Many transactions are not atomic: a reader sees a part now, and the error must say so.
        raise StoreOpenError(
            f"{done} of {len(values)} keys are under `{address}`: {error}; restore again with `--force`"
        ) from error
    return revision


async def _read_all(store: Store) -> tuple[int, list[StoreEntry]]:
    page = await store.range(b"", limit=PAGE_SIZE)
    revision, entries = page.revision, list(page.entries)
    while page.more:
        page = await store.range(b"", start_after=entries[-1].key, limit=PAGE_SIZE, revision=revision)
        entries += page.entries
    return revision, entries


def _write_backup(entries: list[StoreEntry], revision: int, target: Path) -> int:
    rows = list(_iter_rows(entries))
    total = sum(row[6] for row in rows) & SUM_MASK
    head = StoreHead(revision=revision, compacted=revision, rows=len(rows), total=total)
    return copies.build_backup(rows, head, target)


def _iter_rows(entries: Iterable[StoreEntry]) -> Iterator[Row]:
    """Yield one row for each entry, numbered by the revision of its last change."""
    last, place = 0, 0
    for entry in sorted(entries, key=lambda entry: (entry.mod_revision, entry.key)):
        last, place = entry.mod_revision, place + 1 if entry.mod_revision == last else 0
        fields = (encode_row_id(last, place), entry.key, entry.create_revision, entry.version, 0)
        yield (*fields, entry.value, compute_row_checksum(fields, entry.value))


def _read_backup(source: Path) -> list[StoreEntry]:
    """Read every current entry of a backup that is intact."""
    # Beside the backup and not where everybody may write, if possible: it has every secret of the cluster.
    beside = source.parent if os.access(source.parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=beside) as folder:
        copy = copies.copy_checked(source, Path(folder) / "copy")
        verify_file(copy, writer=False)
        with contextlib.closing(connect(copy, writer=False)) as connection:
            return list(_iter_live_entries(connection))


def _iter_live_entries(connection: sqlite3.Connection) -> Iterator[StoreEntry]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM current c JOIN history h ON h.id = c.id ORDER BY c.key")
    for row in rows:
        entry = decode_entry(verify_row(row))
        if entry is not None:
            yield entry


async def _clear_prefix(store: Store, address: str, *, force: bool) -> None:
    async for entries in _iter_pages(store):
        if not force:
            raise StoreOpenError(
                f"there are keys under `{address}`; choose another prefix, or overwrite them with `--force`"
            )
        for writes in _split_writes(Delete(entry.key) for entry in entries):
            await store.txn([], writes)


async def _iter_pages(store: Store) -> AsyncIterator[tuple[StoreEntry, ...]]:
    """Yield the pages of the store until it has no more."""
    while (page := await store.range(b"", limit=PAGE_SIZE)).entries:
        yield page.entries


def _split_writes(writes: Iterable[Write]) -> Iterator[list[Write]]:
    """Split writes into parts that fit into one transaction."""
    part: list[Write] = []
    size = 0
    for write in writes:
        weight = len(write.key) + (len(write.value) if isinstance(write, Put) else 0)
        if part and (len(part) >= MAX_TXN_WRITES or size + weight > MAX_TXN_BYTES):
            yield part
            part, size = [], 0
        part.append(write)
        size += weight
    if part:
        yield part
