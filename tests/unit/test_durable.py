"""State files and file locks: atomic, with a checksum and a version, and clear errors."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray import durable
from dray.durable import (
    CorruptFileError,
    FileLock,
    StateFile,
    UnsupportedVersionError,
    read_boot_id,
    remove_file,
    write_file_atomically,
)

NOTES = StateFile("dray test notes", 2)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert NOTES.read(path) is None
    NOTES.write(path, {"b": [1, "ü"], "a": None})
    assert NOTES.read(path) == (2, b'{"b":[1,"\xc3\xbc"],"a":null}')
    NOTES.write(path, [])
    assert NOTES.read(path) == (2, b"[]")


def test_a_state_file_is_for_its_owner_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    NOTES.write(tmp_path / "state", {})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_file_atomically(tmp_path / "open", b"", mode=0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644


def test_an_older_version_is_read_as_what_it_is(tmp_path: Path) -> None:
    StateFile(NOTES.what, 1).write(tmp_path / "state", {"old": True})
    assert NOTES.read(tmp_path / "state") == (1, b'{"old":true}')


def test_a_later_version_is_reported_as_such(tmp_path: Path) -> None:
    path = tmp_path / "state"
    StateFile(NOTES.what, 3).write(path, {})
    text = f"`{path}` has version 3, this program knows up to 2; a later dray wrote it"
    with pytest.raises(UnsupportedVersionError, match=re.escape(text)):
        NOTES.read(path)


def test_another_type_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    StateFile("dray other notes", 2).write(path, {})
    with pytest.raises(
        CorruptFileError, match=re.escape(f"`{path}` is a dray other notes, expected a dray test notes")
    ):
        NOTES.read(path)


def test_every_torn_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "state"
    NOTES.write(path, {"claims": ["a", "b"]})
    whole = path.read_bytes()
    # The last byte ends the line, and the content is whole without it.
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            NOTES.read(path)


def test_every_changed_byte_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    NOTES.write(path, {"claims": ["a", "b"]})
    whole = path.read_bytes()
    for position in range(len(whole) - 1):
        changed = bytearray(whole)
        changed[position] ^= 0x02
        path.write_bytes(bytes(changed))
        with pytest.raises((CorruptFileError, UnsupportedVersionError)):
            NOTES.read(path)


def test_a_wrong_checksum_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "state"
    NOTES.write(path, {"n": 1})
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":2'))
    with pytest.raises(
        CorruptFileError, match=r"is damaged: its checksum is crc32:[0-9a-f]{8}, not crc32:[0-9a-f]{8}"
    ):
        NOTES.read(path)


@pytest.mark.parametrize("step", ["fsync", "fchmod"])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "state"
    NOTES.write(path, "old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        NOTES.write(path, "new")
    assert NOTES.read(path) == (2, b'"old"')
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_content_is_on_the_disk_before_it_takes_the_place_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        steps.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_file_atomically(tmp_path / "state", b"x")
    assert steps == ["file", "replace", "directory"]


def test_what_a_killed_writer_left_is_not_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.with_name(f".state.{os.getpid()}").write_text("half of")
    NOTES.write(path, 1)
    assert NOTES.read(path) == (2, b"1")
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_link_in_the_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "state").symlink_to(target)
    NOTES.write(tmp_path / "state", 1)
    assert target.read_text() == "precious"
    assert not (tmp_path / "state").is_symlink()


def test_a_file_is_taken_away_once_or_twice(tmp_path: Path) -> None:
    NOTES.write(tmp_path / "state", 1)
    remove_file(tmp_path / "state")
    remove_file(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_structs_are_written_too(tmp_path: Path) -> None:
    class Note(msgspec.Struct, frozen=True):
        text: str

    NOTES.write(tmp_path / "state", Note("hello"))
    read = NOTES.read(tmp_path / "state")
    assert read is not None
    assert msgspec.json.decode(read[1], type=Note) == Note("hello")


def test_the_boot_id_is_empty_when_the_kernel_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot").write_text("0b5e1a7e\n")
    monkeypatch.setattr(durable, "_BOOT_ID_PATH", tmp_path / "boot")
    assert read_boot_id() == "0b5e1a7e"
    monkeypatch.setattr(durable, "_BOOT_ID_PATH", tmp_path / "none")
    assert read_boot_id() == ""


def test_a_lock_is_exclusive_until_it_is_released(tmp_path: Path) -> None:
    lock = FileLock.try_acquire(tmp_path / "lock")
    assert lock is not None
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert FileLock.try_acquire(tmp_path / "lock") is None
    lock.release()
    with FileLock.acquire(tmp_path / "lock"):
        assert FileLock.try_acquire(tmp_path / "lock") is None
    again = FileLock.try_acquire(tmp_path / "lock")
    assert again is not None
    again.release()


def test_a_released_lock_is_free_though_a_child_has_the_descriptor(tmp_path: Path) -> None:
    lock = FileLock.acquire(tmp_path / "lock")
    inherited = os.dup(lock.descriptor)
    lock.release()
    try:
        with FileLock.acquire(tmp_path / "lock"):
            pass
    finally:
        os.close(inherited)


def test_the_lock_of_a_deleted_file_is_not_the_lock(tmp_path: Path, monkeypatch) -> None:
    path, flock = tmp_path / "lock", fcntl.flock
    deleted: list[int] = []

    def delete_before_locking(descriptor: int, operation: int) -> None:
        if not deleted:
            deleted.append(path.stat().st_ino)
            path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", delete_before_locking)
    with FileLock.acquire(path) as lock:
        assert deleted
        assert os.fstat(lock.descriptor).st_ino == path.stat().st_ino


def test_a_lock_file_is_not_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        FileLock.acquire(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_locks_and_directory_syncs_are_taken_here_alone() -> None:
    """The shim is exempt: it starts for each container and imports nothing but the standard library."""
    source = Path(durable.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\bfcntl\.flock|O_DIRECTORY\b.*\bO_RDONLY|O_RDONLY\b.*\bO_DIRECTORY", path.read_text())
    }
    assert found == {"durable.py", "node/containers/runtime/shim/program.py"}
