"""The checkpoint file of the agent's record; damaged files are in test_preparer_recovery."""

from __future__ import annotations

import asyncio
import os
import random
import stat

import msgspec
import pytest
from msgspec.structs import replace

from dray.append_log import AppendLog
from dray.durable import Durability, StateFile, UnsupportedVersionError
from dray.node.claims.checkpoint import FILE, Checkpoint, LostCheckpoint
from dray.node.claims.record import ClaimsRecord, RecordedClaim


def numbered(number: int) -> ClaimsRecord:
    return ClaimsRecord(boot_id=str(number))


def test_what_was_stored_is_loaded(tmp_path):
    record = ClaimsRecord(boot_id="boot", claims=(RecordedClaim(uid="x", namespace="ns", name="c"),))
    path = tmp_path / "checkpoint"
    asyncio.run(Checkpoint(path).store(record))
    assert Checkpoint(path).load() == record
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_file_is_no_error(tmp_path):
    assert Checkpoint(tmp_path / "checkpoint").load() == LostCheckpoint("")


def test_damaged_files_are_kept_side_by_side(tmp_path):
    path = tmp_path / "checkpoint"
    for number in (1, 2):
        path.write_text(f"damage {number}")
        lost = Checkpoint(path).load()
        assert isinstance(lost, LostCheckpoint)
        assert f"checkpoint.damaged-{number}" in lost.why
        assert (tmp_path / f"checkpoint.damaged-{number}").read_text() == f"damage {number}"
        assert not path.exists()


def test_a_file_of_a_later_version_is_left_where_it_is(tmp_path):
    path = tmp_path / "checkpoint"
    later = type(FILE)(FILE.what, FILE.version + 1)
    later.write(path, {})
    with pytest.raises(UnsupportedVersionError, match="a later dray wrote it"):
        Checkpoint(path).load()
    assert path.exists()


def test_writers_that_come_together_share_a_write_and_the_newest_record_stays(tmp_path, monkeypatch):
    written: list[ClaimsRecord] = []
    write = AppendLog.write

    def counted(self, change, whole, durability):
        written.append(whole)
        write(self, change, whole, durability)

    monkeypatch.setattr(AppendLog, "write", counted)
    checkpoint = Checkpoint(tmp_path / "checkpoint")

    async def together() -> None:
        await asyncio.gather(*(checkpoint.store(numbered(number)) for number in range(100)))

    asyncio.run(together())
    assert Checkpoint(tmp_path / "checkpoint").load() == numbered(99)
    assert len(written) <= 2


def test_random_changes_are_read_back_by_the_next_agent(tmp_path):
    """Claims come, change, go, and come back at another place."""
    chance, path = random.Random(20261119), tmp_path / "checkpoint"
    checkpoint, record = Checkpoint(path), ClaimsRecord(boot_id="boot")

    async def change() -> None:
        nonlocal record
        for number in range(400):
            for _ in range(chance.randrange(4)):
                uid = f"claim-{chance.randrange(12)}"
                if chance.random() < 0.4:
                    record = record.remove_claim(uid)
                else:
                    record = record.put_claim(RecordedClaim(uid=uid, name=str(number)))
            if chance.random() < 0.05:
                record = replace(record, boot_id=str(number))
            await checkpoint.store(record, chance.choice((Durability.POWER_LOSS, Durability.THIS_BOOT)))
            assert Checkpoint(path).load() == record

    asyncio.run(change())


def test_changes_that_wait_together_share_one_sync(tmp_path, monkeypatch):
    synced = count_syncs(monkeypatch)
    checkpoint = Checkpoint(tmp_path / "checkpoint")

    async def work() -> list[int]:
        counts = []
        await checkpoint.store(numbered(0))
        counts.append(len(synced))
        await checkpoint.store(numbered(1))
        counts.append(len(synced))
        await checkpoint.store(numbered(2), Durability.THIS_BOOT)
        counts.append(len(synced))
        durabilities = (Durability.THIS_BOOT, Durability.POWER_LOSS) * 20
        await asyncio.gather(*(checkpoint.store(numbered(3 + n), d) for n, d in enumerate(durabilities)))
        counts.append(len(synced))
        return counts

    counts = asyncio.run(work())
    assert counts[:3] == [2, 3, 3], "the file and its directory, one append, one append without a sync"
    assert counts[3] - counts[2] in (1, 2)


def test_a_reader_of_version_1_finds_its_record_and_writes_version_2(tmp_path):
    path = tmp_path / "checkpoint"
    StateFile(FILE.what, 1).write(path, numbered(7))
    checkpoint = Checkpoint(path)
    assert checkpoint.load() == numbered(7)
    asyncio.run(checkpoint.store(numbered(8)))
    assert FILE.read(path) == (2, msgspec.json.encode(numbered(8)))


def count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    synced: list[int] = []
    sync = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    return synced


def test_store_returns_only_when_its_own_record_is_durable(tmp_path):
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(path)

    async def stored(number: int) -> int:
        await asyncio.sleep(number / 1000)
        await checkpoint.store(numbered(number))
        loaded = Checkpoint(path).load()
        assert isinstance(loaded, ClaimsRecord)
        return int(loaded.boot_id) - number

    async def staggered() -> list[int]:
        return await asyncio.gather(*map(stored, range(50)))

    assert all(ahead >= 0 for ahead in asyncio.run(staggered()))


def test_a_cancelled_caller_does_not_stop_the_write(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")

    async def impatient() -> None:
        first = asyncio.create_task(checkpoint.store(numbered(1)))
        await asyncio.sleep(0)
        first.cancel()
        await checkpoint.store(numbered(2))

    asyncio.run(impatient())
    assert Checkpoint(tmp_path / "checkpoint").load() == numbered(2)


def test_every_waiting_caller_gets_the_error_of_a_disk_and_the_next_one_retries(tmp_path):
    home = tmp_path / "home"
    checkpoint = Checkpoint(home / "checkpoint")

    async def refused() -> None:
        waiting = [asyncio.create_task(checkpoint.store(numbered(number))) for number in range(3)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, OSError) for outcome in outcomes)
        home.mkdir()
        await checkpoint.store(numbered(3))

    asyncio.run(refused())
    assert Checkpoint(home / "checkpoint").load() == numbered(3)
