"""Append logs: durable records that grow by changes and are rewritten as a whole now and then.

Theory of operation: the first line of the file is a state file (`dray.durable.StateFile`), the base. Every
further line is a change: its checksum, a space, and JSON. The checksum of a change covers the base and the
position of the line, so that a line of another file, a missing line or one out of order is told from a good
one. A line is appended only after those before it were written, hence a crash leaves nothing worse than an
unfinished last line. `read` cuts that off and says so; nothing was done yet on the strength of it. Any other
line with a wrong checksum is damage.

An append costs one sync; replacing the file costs two, of the new file and of the directory. A log begins
with a replacement: what an earlier program left, in whatever state, is never appended to. The file is
replaced, too, when it has grown well beyond its base, when someone else has touched it, and after a failed
write: what such a write left is unknown, and a repeated sync may report success for pages that were dropped.

Rules for this file: bytes only; what base and changes mean is the caller's. One writer at a time.
"""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dray.durable import CorruptFileError, Durability, StateFile, read_regular_file

MIN_LOG_BYTES: Final = 64 * 1024
"""A file below this size is not rewritten, however small its base is."""
GROWTH_FACTOR: Final = 4
"""A file is rewritten when it is so many times larger than its base."""

_OPEN_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LogContent:
    """The content of an append log, as JSON."""

    version: int
    base: bytes
    changes: tuple[bytes, ...]
    cut_bytes: int
    """The length of an unfinished last line, which is left out."""


class _FileIdentity(NamedTuple):
    """What the file looks like after each write of its own."""

    device: int
    inode: int
    size: int


class AppendLog:
    """One append log."""

    def __init__(self, path: Path, kind: StateFile) -> None:
        self._path, self._kind = path, kind
        self._identity: _FileIdentity | None = None
        """None before the first write, and when the state of the file is unknown."""
        self._base, self._count = b"", 0

    def read(self) -> LogContent | None:
        """Read the log, None when there is no file.

        Raises `CorruptFileError`, or `UnsupportedVersionError` when a later program wrote it.
        """
        raw = read_regular_file(self._path)
        if raw is None:
            return None
        *lines, unfinished = raw.split(b"\n")
        if unfinished:
            lines.append(unfinished)
        base, changes = (lines[0] if lines else b""), []
        version, content = self._kind.decode(self._path, base)
        for number, line in enumerate(lines[1:]):
            checksum, _, change = line.partition(b" ")
            if checksum == _compute_checksum(base, number, change):
                changes.append(change)
            elif unfinished and line is lines[-1]:
                return LogContent(version, content, tuple(changes), len(line))
            else:
                raise CorruptFileError(f"`{self._path}` is damaged: line {number + 2} has another checksum")
        return LogContent(version, content, tuple(changes), 0)

    def write(self, change: Any, whole: Any, durability: Durability = Durability.POWER_LOSS) -> None:
        """Append a change, or replace the file by `whole`, which has the change in it; raises `OSError`."""
        identity, self._identity = self._identity, None
        limit = max(MIN_LOG_BYTES, GROWTH_FACTOR * len(self._base))
        if identity is None or identity.size >= limit:
            self._replace(whole)
            return
        if not self._append(msgspec.json.encode(change), identity, durability):
            self._replace(whole)

    def _append(self, change: bytes, identity: _FileIdentity, durability: Durability) -> bool:
        """Append a change; return False when the file is not what was written last."""
        try:
            descriptor = os.open(self._path, _OPEN_FLAGS)
        except OSError:
            return False
        try:
            if _identify(descriptor) != identity:
                return False
            line = _compute_checksum(self._base, self._count, change) + b" " + change + b"\n"
            _write_all(descriptor, line)
            if durability is not Durability.THIS_BOOT:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._count += 1
        self._identity = identity._replace(size=identity.size + len(line))
        return True

    def _replace(self, whole: Any) -> None:
        written = self._kind.write(self._path, whole)
        self._base, self._count = written.removesuffix(b"\n"), 0
        found = os.lstat(self._path)
        if stat.S_ISREG(found.st_mode) and found.st_size == len(written):
            self._identity = _FileIdentity(found.st_dev, found.st_ino, found.st_size)


def _identify(descriptor: int) -> _FileIdentity:
    found = os.fstat(descriptor)
    return _FileIdentity(found.st_dev, found.st_ino, found.st_size)


def _write_all(descriptor: int, content: bytes) -> None:
    """Write all of it: a disk that is almost full takes a part and refuses the rest."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _compute_checksum(base: bytes, number: int, change: bytes) -> bytes:
    return b"crc32:%08x" % zlib.crc32(change, zlib.crc32(b"%d " % number, zlib.crc32(base)))
