"""A store of format 1 becomes one of the current format, with its history; or stays as it was.

`tests/golden/store-v1/store.db` was written by the last dray that wrote format 1. It is never written again.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dray.store import Put, open_store
from dray.store.errors import (
    StoreFormatError,
    StoreInUseError,
    StoreOpenError,
    StoreWriteError,
)
from dray.store.sqlite import migration
from dray.store.sqlite.database_file import lock_store
from dray.store.sqlite.migration import MigratedStore, migrate_file, read_format
from dray.store.sqlite.rows import FORMAT_VERSION
from tests.outside import ROOT

GOLDEN = ROOT / "tests" / "golden" / "store-v1" / "store.db"
REVISION, ROWS = 18, 22
GOLDEN_ENTRIES = {b"/golden/b": (b"again", 6, 1), b"/golden/d": (b"kept", 18, 1)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(GOLDEN, tmp_path / "store.db"))


def dump(path: Path) -> list[str]:
    """Everything in a file; its bytes also tell whether it was last opened with a log."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


async def read_golden(path: Path) -> dict[bytes, tuple[bytes, int, int]]:
    """The entries of the test's own keys: value, revision of creation, version."""
    async with await open_store(str(path)) as store:
        page = await store.range(b"/golden/")
        return {each.key: (each.value, each.create_revision, each.version) for each in page.entries}


# --- what is refused ---


async def test_an_old_store_is_refused_with_the_command_that_migrates_it(path: Path):
    before = path.read_bytes()
    with pytest.raises(StoreFormatError) as refused:
        await open_store(str(path))
    assert str(refused.value) == (
        f"`{path}` has format 1, this dray reads format {FORMAT_VERSION}; "
        f"migrate it with `dray server migrate --store {path}`"
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("UPDATE origin SET dray = '0.7.0'", "use dray 0.7.0 or newer"),
        ("DROP TABLE origin", "use the dray that"),
    ],
)
async def test_a_newer_store_is_refused_with_the_dray_it_needs(tmp_path: Path, statement: str, needed: str):
    path = tmp_path / "store.db"
    async with await open_store(str(path)):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
        connection.execute(statement)
    connection.close()
    for attempt in (lambda: migrate_file(path), lambda: read_format(path)):
        with pytest.raises(
            StoreFormatError, match="format 9, made by a newer dray; this one reads"
        ) as refused:
            attempt()
        assert needed in str(refused.value)
    with pytest.raises(StoreFormatError, match=needed):
        await open_store(str(path))


async def test_a_store_in_use_is_not_migrated(path: Path):
    lock = lock_store(path)
    try:
        with pytest.raises(StoreInUseError, match="in use by process"):
            migrate_file(path)
    finally:
        lock.release()


def test_a_missing_store_is_named(tmp_path: Path):
    with pytest.raises(StoreOpenError, match="there is no store"):
        read_format(tmp_path / "store.db")


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE history SET value = x'00' WHERE id = (SELECT max(id) FROM history)", "checksum"),
        ("DELETE FROM history WHERE id = (SELECT min(id) FROM history)", "add up"),
        ("UPDATE head SET revision = 2", "head record"),
        ("DELETE FROM current WHERE key = CAST('/golden/d' AS BLOB)", "index of current keys"),
        ("DROP TABLE current", "no such table"),
        ("PRAGMA user_version = 0", "no dray has written format 0"),
    ],
)
def test_a_damaged_store_is_refused_and_left_alone(path: Path, statement: str, word: str):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    before = dump(path)
    with pytest.raises(StoreOpenError, match=word):
        migrate_file(path)
    assert dump(path) == before
    assert {each.name for each in path.parent.iterdir()} == {"store.db", "store.db.lock"}


# --- what is migrated ---


async def test_entries_keep_their_values_revisions_and_versions(path: Path):
    before = read_format(path)
    assert (before.number, before.rows, before.is_current) == (1, ROWS, False)
    steps: list[tuple[str, int, int]] = []
    done = migrate_file(path, lambda *step: steps.append(step))
    backup = path.with_name("store.db.format-1")
    assert done == MigratedStore(old_format=1, rows=ROWS, revision=REVISION, backup=backup)
    assert dump(backup) == dump(GOLDEN)
    assert steps == [("copying records", ROWS, ROWS), ("verifying the new file", 0, 0)]
    assert read_format(path).is_current
    assert await read_golden(path) == GOLDEN_ENTRIES


async def test_history_is_kept_and_the_store_goes_on(path: Path):
    migrate_file(path)
    async with await open_store(str(path)) as store:
        assert (await store.get_revision()) == REVISION
        page = await store.range(b"/golden/", revision=6)
        assert {each.key: each.value for each in page.entries} == {
            b"/golden/a": b"second",
            b"/golden/b": b"again",
            b"/golden/c": b"",
        }
        committed = await store.txn([], [Put(b"/golden/d", b"changed")])
        assert committed.revision == REVISION + 1
        entry = await store.get(b"/golden/d")
        assert entry is not None
        assert (entry.version, entry.create_revision) == (2, REVISION)
        await store.compact(REVISION + 1)
    # Opening verifies everything again, after the compaction of rows that the migration wrote.
    assert (await read_golden(path))[b"/golden/b"] == GOLDEN_ENTRIES[b"/golden/b"]


async def test_what_is_only_in_the_log_is_migrated_too(path: Path):
    """A store that was killed has its last writes in the log beside it."""
    script = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA journal_mode = WAL')\n"
        "connection.execute('CREATE TABLE more (x)')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.with_name("store.db-wal").stat().st_size
    backup = migrate_file(path).backup
    with sqlite3.connect(backup) as connection:
        assert connection.execute("SELECT count(*) FROM more").fetchone() == (0,)
    connection.close()
    assert not path.with_name("store.db-wal").exists()
    assert await read_golden(path) == GOLDEN_ENTRIES


def test_a_store_that_is_current_stays_as_it_is(path: Path):
    migrate_file(path)
    before = path.read_bytes()
    with pytest.raises(StoreOpenError, match="has format 2 already"):
        migrate_file(path)
    assert path.read_bytes() == before


def test_backups_of_earlier_migrations_are_kept(path: Path):
    first = migrate_file(path).backup
    path.unlink()
    shutil.copyfile(GOLDEN, path)
    second = migrate_file(path).backup
    assert (first.name, second.name) == ("store.db.format-1", "store.db.format-1-2")
    assert dump(first) == dump(second)


def test_a_file_system_without_links_gets_a_copy(path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert dump(migrate_file(path).backup) == dump(GOLDEN)


def test_a_full_disk_leaves_the_old_store(path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(migration, "insert_rows", fail)
    with pytest.raises(StoreWriteError, match="No space left on device"):
        migrate_file(path)
    assert dump(path) == dump(GOLDEN)


# --- killed at every step ---

KILLED = """
import os, signal, sys
from pathlib import Path
from dray.store.sqlite.migration import migrate_file

steps = int(sys.argv[2])

def count(event, arguments):
    global steps
    if event in WATCHED and "store.db" in str(arguments):
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

WATCHED = {"os.rename", "os.remove", "os.link", "open", "sqlite3.connect"}
sys.addaudithook(count)
migrate_file(Path(sys.argv[1]), lambda *step: count("open", "store.db"))
"""


async def test_a_migration_killed_at_any_step_leaves_a_whole_store(tmp_path: Path):
    """It is killed before each call that opens, links, renames or removes a file, until one run ends."""
    ended, killed, found = False, 0, set[int]()
    while not ended:
        folder = tmp_path / str(killed)
        folder.mkdir()
        path = Path(shutil.copyfile(GOLDEN, folder / "store.db"))
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(killed)], check=False)
        ended = done.returncode == 0
        assert ended or done.returncode == -signal.SIGKILL
        number = read_format(path).number
        found.add(number)
        if number == 1:
            migrate_file(path)
        assert await read_golden(path) == GOLDEN_ENTRIES
        killed += 1
    assert killed > 8
    assert found == {1, FORMAT_VERSION}
