"""The file of the audit log: appended to, rotated, and repaired after a crash.

Theory of operation: a batch of lines is appended in one write. When that fails half-way (the disk is full),
the file is truncated to its former size, so that it has either all lines of a batch or none. A full file is
renamed and the chain continues in a new one. At the start, the end of the newest file has the head of the
chain.

A lock beside the log restricts it to one process; all calls are synchronous.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from dray.api.json_text import write_json
from dray.durable import FileLock, sync_directory
from dray.errors import InputError
from dray.private_files import OTHERS_WRITE, check_private_file
from dray.server.audit.hash_chain import (
    GENESIS_HASH,
    REPAIRED_EVENT,
    ChainLink,
    format_chained_line,
    hash_line,
)
from dray.server.audit.verification import (
    build_rotated_path,
    ends_with_newline,
    list_rotated_files,
    read_last_line,
)

FILE_MODE = 0o600


class AuditLogFile:
    """The newest file of a log, open for appending."""

    def __init__(self, path: Path, *, max_bytes: int, max_backups: int) -> None:
        """Open or create the log; what a crash left torn is closed and marked."""
        self.path = path
        self._max_bytes, self._max_backups = max_bytes, max_backups
        self.sequence, self.head = 0, GENESIS_HASH
        self._has_partial_write = False  # whether the file ends in a part of a batch
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for existing in (path, _build_lock_path(path), *list_rotated_files(path)):
                _check_existing_file(existing)
            self._lock = _lock_file(path)
            torn = self._recover()
            self._file, self._size = _open_file(path)
        except OSError as refused:
            raise InputError(f"cannot open the audit log `{path}`: {refused.strerror}") from None
        self._repair(torn)

    def append(self, bodies: Sequence[bytes]) -> None:
        """Append JSON objects as lines: all of them, or none and an OSError."""
        if self.is_full:
            self._rotate()
        sequence, head, lines = self.sequence, self.head, []
        for body in bodies:
            sequence += 1
            line = format_chained_line(body, sequence, head)
            head = hash_line(line)
            lines += [line, b"\n"]
        self._write(b"".join(lines))
        self.sequence, self.head = sequence, head

    @property
    def is_full(self) -> bool:
        """Whether the next lines go to a new file."""
        return self._size >= self._max_bytes

    def duplicate_descriptor(self) -> int:
        """Return a duplicate of the descriptor, which the caller closes."""
        return os.dup(self._file)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        self._lock.release()

    def _write(self, text: bytes) -> None:
        if self._has_partial_write:
            self._truncate()
        done = 0
        try:
            while done < len(text):
                done += os.write(self._file, text[done:] if done else text)
                self._has_partial_write = done < len(text)
        except OSError:
            if self._has_partial_write:
                self._truncate()
            raise
        self._size += done

    def _truncate(self) -> None:
        os.ftruncate(self._file, self._size)
        self._has_partial_write = False

    def _rotate(self) -> None:
        os.fsync(self._file)
        os.rename(self.path, build_rotated_path(self.path, self.sequence))
        os.close(self._file)
        self._file, self._size = _open_file(self.path)
        sync_directory(self.path.parent)
        for old in list_rotated_files(self.path)[: -self._max_backups]:
            old.unlink(missing_ok=True)

    def _recover(self) -> bytes:
        """Find the head of the chain; returns the bytes a crash left after it."""
        torn = b""
        for path in reversed([*list_rotated_files(self.path), self.path]):
            if not path.exists():
                continue
            whole, rest = read_last_line(path)
            torn = torn or rest
            link = None if whole is None else ChainLink.parse(whole)
            if whole is not None and link is not None:
                self.sequence, self.head = link.sequence, hash_line(whole)
                break
        return torn

    def _repair(self, torn: bytes) -> None:
        """Close what a crash left torn, and record that in the chain."""
        note = {"event": REPAIRED_EVENT, "torn": hash_line(torn.removesuffix(b"\n")), "bytes": len(torn)}
        try:
            if not ends_with_newline(self.path):
                self._write(b"\n")
            if torn:
                self.append([write_json(note)])
        except OSError as refused:
            raise InputError(f"cannot repair the audit log `{self.path}`: {refused.strerror}") from None


def _open_file(path: Path) -> tuple[int, int]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, FILE_MODE)
    return file, os.fstat(file).st_size


def _build_lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _check_existing_file(path: Path) -> None:
    """Refuse a link, and a file of another user or that others may write; who may read it is left to its
    owner.
    """
    with contextlib.suppress(FileNotFoundError):
        check_private_file(path, OTHERS_WRITE)


def _lock_file(path: Path) -> FileLock:
    lock = FileLock.try_acquire(_build_lock_path(path))
    if lock is None:
        raise InputError(
            f"the audit log `{path}` is in use by another process; stop it, or name another file"
        )
    return lock
