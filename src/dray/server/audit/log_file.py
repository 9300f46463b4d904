"""The file of the audit log: appended to, rotated, and repaired after a crash.

Theory of operation: a batch of lines is appended in one go. When that fails half-way (the disk is full), the
file is cut back to where it was, so that either all lines of a batch are there or none. A full file is
renamed and the chain goes on in a new one. At the start, the end of the newest file tells where the chain
stands.

Rules for this file: one process at a time, kept by a lock beside the log; synchronous.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from dray.api.json_text import write_json
from dray.errors import InputError
from dray.server.audit.hash_chain import GENESIS, REPAIRED, Link, digest, sealed
from dray.server.audit.verification import ends_a_line, last_lines, rotated, rotated_name

MODE = 0o600


class ChainFile:
    """The newest file of a log, open for appending."""

    def __init__(self, path: Path, *, largest: int, keep: int) -> None:
        """Open or create the log; whatever a crash left torn is closed and marked."""
        self.path = path
        self._largest, self._keep = largest, keep
        self.sequence, self.head = 0, GENESIS
        self._ragged = False  # whether the file ends in a part of a batch
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
            torn = self._recover()
            self._file, self._size = _opened(path)
        except OSError as refused:
            raise InputError(f"cannot open the audit log `{path}`: {refused.strerror}") from None
        self._mend(torn)

    def append(self, bodies: Sequence[bytes]) -> None:
        """Add JSON objects as lines: all of them, or none and an OSError."""
        if self.full:
            self._rotate()
        sequence, head, lines = self.sequence, self.head, []
        for body in bodies:
            sequence += 1
            line = sealed(body, sequence, head)
            head = digest(line)
            lines += [line, b"\n"]
        self._write(b"".join(lines))
        self.sequence, self.head = sequence, head

    @property
    def full(self) -> bool:
        """Whether the next lines go to a new file."""
        return self._size >= self._largest

    def duplicate(self) -> int:
        """A descriptor of the file for somebody else, who closes it."""
        return os.dup(self._file)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        os.close(self._lock)

    def _write(self, text: bytes) -> None:
        if self._ragged:
            self._cut_back()
        done = 0
        try:
            while done < len(text):
                done += os.write(self._file, text[done:] if done else text)
                self._ragged = done < len(text)
        except OSError:
            if self._ragged:
                self._cut_back()
            raise
        self._size += done

    def _cut_back(self) -> None:
        os.ftruncate(self._file, self._size)
        self._ragged = False

    def _rotate(self) -> None:
        os.fsync(self._file)
        os.rename(self.path, rotated_name(self.path, self.sequence))
        os.close(self._file)
        self._file, self._size = _opened(self.path)
        _sync_folder(self.path.parent)
        for old in rotated(self.path)[: -self._keep]:
            old.unlink(missing_ok=True)

    def _recover(self) -> bytes:
        """Find where the chain stands; the bytes a crash left behind it."""
        torn = b""
        for path in reversed([*rotated(self.path), self.path]):
            if not path.exists():
                continue
            whole, rest = last_lines(path)
            torn = torn or rest
            link = None if whole is None else Link.of(whole)
            if whole is not None and link is not None:
                self.sequence, self.head = link.sequence, digest(whole)
                break
        return torn

    def _mend(self, torn: bytes) -> None:
        """Close what a crash left torn, and say so in the chain."""
        note = {"event": REPAIRED, "torn": digest(torn.removesuffix(b"\n")), "bytes": len(torn)}
        try:
            if not ends_a_line(self.path):
                self._write(b"\n")
            if torn:
                self.append([write_json(note)])
        except OSError as refused:
            raise InputError(f"cannot repair the audit log `{self.path}`: {refused.strerror}") from None


def _opened(path: Path) -> tuple[int, int]:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    return file, os.fstat(file).st_size


def _locked(path: Path) -> int:
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(
            f"the audit log `{path}` is in use by another process; stop it, or name another file"
        ) from None
    return lock


def _sync_folder(folder: Path) -> None:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
