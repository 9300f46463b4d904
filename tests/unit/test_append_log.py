"""Append logs: what was written is read, whatever happens between two bytes or two system calls."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dray import append_log
from dray.append_log import AppendLog
from dray.durable import CorruptFileError, Durability, StateFile, UnsupportedVersionError
from tests.faults.store.test_disks import files_limited_to

KIND = StateFile("numbers", 3)
Numbers = list[int]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def write(path: Path, *numbers: int, log: AppendLog | None = None) -> AppendLog:
    """Write numbers, each as a change; the base has all of those before it."""
    log = log or AppendLog(path, KIND)
    before = read(path)
    for count, number in enumerate(numbers, start=1):
        log.write(number, before + list(numbers[:count]))
    return log


def read(path: Path) -> Numbers:
    found = AppendLog(path, KIND).read()
    if found is None:
        return []
    return [*json.loads(found.base), *map(json.loads, found.changes)]


def test_no_file_is_no_log(path: Path) -> None:
    assert AppendLog(path, KIND).read() is None


def test_changes_follow_the_base(path: Path) -> None:
    write(path, *range(10))
    found = AppendLog(path, KIND).read()
    assert found is not None
    assert (found.version, found.base, found.cut_bytes) == (3, b"[0]", 0)
    assert read(path) == list(range(10))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_without_changes_is_a_state_file(path: Path) -> None:
    KIND.write(path, [1, 2])
    assert read(path) == [1, 2]
    write(path, 7)
    assert KIND.read(path) == (3, b"[1,2,7]")


def test_every_cut_leaves_all_whole_changes(path: Path) -> None:
    write(path, *range(6))
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:length])
        # A line that lacks only its end is whole.
        count = sum(end - 1 <= length for end in ends)
        found = AppendLog(path, KIND).read()
        assert found is not None
        assert len(found.changes) + 1 == count
        assert found.cut_bytes == (length - ends[count - 1] if length > ends[count - 1] else 0)
        assert read(path) == list(range(count))
    for length in range(ends[0] - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            AppendLog(path, KIND).read()


def test_every_changed_byte_is_noticed(path: Path) -> None:
    write(path, *range(6))
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            byte = whole[place] ^ 1 << bit
            path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            try:
                found = AppendLog(path, KIND).read()
            except (CorruptFileError, UnsupportedVersionError):
                continue
            # Without its end the last line is unfinished.
            assert found is not None
            assert place == len(whole) - 1
            assert (found.cut_bytes > 0, read(path)) == (True, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("tail", [b"\0" * 40, b"crc32:", b"crc32:0123abcd [1"])
def test_what_a_loss_of_power_leaves_of_an_append_is_cut_off(path: Path, tail: bytes) -> None:
    write(path, *range(3))
    with path.open("ab") as file:
        file.write(tail)
    found = AppendLog(path, KIND).read()
    assert found is not None
    assert (found.cut_bytes, read(path)) == (len(tail), [0, 1, 2])
    write(path, 3)
    assert read(path) == [0, 1, 2, 3]


def test_lines_of_another_file_in_another_order_or_twice_are_damage(path: Path, tmp_path: Path) -> None:
    write(path, *range(4))
    base, one, two, three = path.read_bytes().splitlines(keepends=True)
    write(tmp_path / "other", 9, 1)
    foreign = (tmp_path / "other").read_bytes().splitlines(keepends=True)[1]
    for lines in ((one, three), (two, one, three), (one, one, two), (foreign,)):
        path.write_bytes(base + b"".join(lines))
        with pytest.raises(CorruptFileError, match="is damaged"):
            AppendLog(path, KIND).read()


def test_a_file_of_a_later_program_is_refused(path: Path) -> None:
    StateFile(KIND.what, 4).write(path, [])
    with pytest.raises(UnsupportedVersionError):
        AppendLog(path, KIND).read()


def test_an_append_is_one_sync_and_a_replacement_two(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    log = write(path, 1)
    assert len(synced) == 2
    log.write(2, [1, 2])
    assert len(synced) == 3
    log.write(3, [1, 2, 3], Durability.THIS_BOOT)
    assert len(synced) == 3
    assert read(path) == [1, 2, 3]


def test_the_file_stays_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_log, "MIN_LOG_BYTES", 400)
    log, sizes = AppendLog(path, KIND), []
    for number in range(500):
        log.write([number], [number])
        sizes.append(path.stat().st_size)
        found = AppendLog(path, KIND).read()
        assert found is not None
        assert [found.base, *found.changes][-1] == b"[%d]" % number
    assert max(sizes) < 400 + 100


@pytest.mark.parametrize("how", ["deleted", "replaced", "longer", "shorter", "a link"])
def test_a_file_that_someone_else_touched_is_replaced(path: Path, how: str) -> None:
    log = write(path, 1, 2)
    good = path.read_bytes()
    if how in ("deleted", "replaced", "a link"):
        path.unlink()
    if how == "replaced":
        path.write_bytes(good)
    elif how == "longer":
        path.write_bytes(good + b"x")
    elif how == "shorter":
        path.write_bytes(good[:-1])
    elif how == "a link":
        path.with_name("elsewhere").write_bytes(good)
        path.symlink_to(path.with_name("elsewhere"))
    log.write(3, [1, 2, 3])
    log.write(4, [1, 2, 3, 4])
    assert (path.is_symlink(), read(path)) == (False, [1, 2, 3, 4])
    if how == "a link":
        assert path.with_name("elsewhere").read_bytes() == good


def test_a_disk_that_is_full_keeps_what_is_written(path: Path) -> None:
    """The write that fails has put down a part of its line."""
    log = write(path, 1, 2)
    with files_limited_to(path.stat().st_size + 5):
        for _ in range(3):
            with pytest.raises(OSError, match="too large"):
                log.write("x" * 200, ["x" * 200])
            found = AppendLog(path, KIND).read()
            assert found is not None
            assert (found.base, found.changes, found.cut_bytes) == (b"[1]", (b"2",), 5)
    log.write(3, [1, 2, 3])
    assert KIND.read(path) == (3, b"[1,2,3]")
    log.write(4, [1, 2, 3, 4])
    assert read(path) == [1, 2, 3, 4]


def test_after_a_failed_sync_nothing_is_appended_to_that_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel drops the pages that it could not write and reports success the next time."""
    log = write(path, 1, 2)
    inode = path.stat().st_ino

    def fail(_descriptor: int) -> None:
        raise OSError("the disk does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="does not answer"):
            log.write(3, [1, 2, 3])
    log.write(4, [1, 2, 3, 4])
    assert path.stat().st_ino != inode
    assert KIND.read(path) == (3, b"[1,2,3,4]")


KILLED_AT = ("open", "write", "fsync", "replace", "close")
"""System calls of an append and of a replacement."""

PROGRAM = """
import os, pathlib, signal, sys
from dray import append_log
from dray.append_log import AppendLog
from dray.durable import StateFile

append_log.MIN_LOG_BYTES = 300
path, call, count = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log, left = AppendLog(path, StateFile("numbers", 3)), count

def wrap(real):
    def called(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return called

owner = pathlib.Path if call == "replace" else os
setattr(owner, call, wrap(getattr(owner, call)))
number = 0
while True:
    number += 1
    log.write(number, [number])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("call", KILLED_AT)
def test_a_program_that_is_killed_loses_nothing_that_it_wrote(path: Path, call: str) -> None:
    """It dies before one of its system calls, in one append or the next, in one replacement or the next."""
    chance = random.Random(20261119)
    for count in (1, 2, 3, chance.randrange(4, 40), chance.randrange(40, 80)):
        if call == "replace" and count > 3:
            continue
        path.unlink(missing_ok=True)
        command = [sys.executable, "-c", PROGRAM, str(path), call, str(count)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        told = [int(line) for line in ended.stdout.split()]
        found = AppendLog(path, KIND).read()
        if found is None:
            assert told == []
            continue
        # What was told is there; at most the write in progress is there as well.
        last = int([*json.loads(found.base), *map(int, found.changes)][-1])
        assert last - len(told) in (0, 1)
        assert write(path, last + 1).read() is not None
