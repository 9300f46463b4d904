"""Durable files: atomic replacement, checksummed state files with a version, directory sync, and file locks.

Theory of operation: a state file is one line of JSON: its type, its version, the content, and a checksum of
all three. `write_file_atomically` writes a temporary file beside the old one, syncs it, and renames it, so a
reader sees the old file or the new one. Reading a torn, foreign or newer file raises an exception that says
which of these it is; the caller decides. Syncing is slow; the caller chooses what a loss of power may undo.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import zlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from dray.errors import DrayError

_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding JSON may raise; only the first means malformed JSON."""
_BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")


class CorruptFileError(DrayError):
    """A state file that is damaged, or something else at its path."""


class UnsupportedVersionError(DrayError):
    """A state file that a later version of dray wrote."""


class Durability(Enum):
    """What a write survives; every write survives the end of the process, however sudden."""

    POWER_LOSS = "a loss of power"
    ATOMIC = "a loss of power leaves the old or the new, both whole"
    THIS_BOOT = "nothing is promised after a loss of power"


def read_boot_id() -> str:
    """Return the kernel's id of the current boot; empty where the kernel has none."""
    try:
        return _BOOT_ID_PATH.read_text("ascii").strip()
    except OSError:
        return ""


def read_regular_file(path: Path) -> bytes | None:
    """Return the content of a regular file, None when it does not exist.

    Raises `CorruptFileError` for anything else at the path. Links are not followed, and opening a pipe does
    not block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as refused:
        if refused.errno in (errno.ELOOP, errno.ENXIO):
            raise CorruptFileError(f"`{path}` is a link or a socket, expected a file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CorruptFileError(f"`{path}` is in the way and is not a file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_file_atomically(
    path: Path, content: bytes, mode: int = 0o600, *, durability: Durability = Durability.POWER_LOSS
) -> None:
    """Replace a file in one step and sync it; raises `OSError` and leaves the old file when that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            if durability is not Durability.THIS_BOOT:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durability is Durability.POWER_LOSS:
        sync_directory(path.parent)


def remove_file(path: Path, durability: Durability = Durability.POWER_LOSS) -> None:
    """Delete a file, if it exists."""
    path.unlink(missing_ok=True)
    if durability is Durability.POWER_LOSS:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that created, renamed and deleted names survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileLock:
    """An exclusive lock of this process on a file; the kernel releases it when the process ends.

    The file may be deleted by its holder: whoever then gets the lock of a deleted file tries again on the new
    one, so that two processes never hold the locks of two files of one name.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> FileLock:
        """Create the file if needed and wait for its lock."""
        lock = cls._open_locked(path, fcntl.LOCK_EX)
        assert lock is not None
        return lock

    @classmethod
    def try_acquire(cls, path: Path) -> FileLock | None:
        """Create the file if needed and lock it; None when another holder has the lock."""
        return cls._open_locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @classmethod
    def _open_locked(cls, path: Path, operation: int) -> FileLock | None:
        while True:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, operation)
                if os.fstat(descriptor).st_nlink:
                    return cls(descriptor)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def release(self) -> None:
        """Release the lock; the file stays."""
        # Closing is not enough: a process forked meanwhile has the same descriptor open.
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON object around the content of a state file."""

    what: str
    version: int
    checksum: str
    content: msgspec.Raw


@dataclass(frozen=True, slots=True)
class StateFile:
    """A type of state file: its name, and the version that this program writes."""

    what: str
    version: int

    def write(self, path: Path, content: Any, durability: Durability = Durability.POWER_LOSS) -> bytes:
        """Replace the file in one step and return its bytes; `content` is a struct or a document."""
        body = msgspec.json.encode(content)
        checksum = _compute_checksum(self.what, self.version, body)
        envelope = _Envelope(self.what, self.version, checksum, msgspec.Raw(body))
        written = msgspec.json.encode(envelope) + b"\n"
        write_file_atomically(path, written, durability=durability)
        return written

    def read(self, path: Path) -> tuple[int, bytes] | None:
        """Return the version and the content (JSON) of a file, None when it does not exist."""
        raw = read_regular_file(path)
        return None if raw is None else self.decode(path, raw)

    def decode(self, path: Path, raw: bytes) -> tuple[int, bytes]:
        """Return the version and the content of what was read from a path."""
        try:
            envelope = msgspec.json.decode(raw, type=_Envelope)
        except _DECODE_ERRORS as broken:
            raise CorruptFileError(f"`{path}` is not a whole {self.what}: {broken}") from None
        body = bytes(envelope.content)
        if envelope.what != self.what:
            raise CorruptFileError(f"`{path}` is a {envelope.what}, expected a {self.what}")
        checksum = _compute_checksum(envelope.what, envelope.version, body)
        if envelope.checksum != checksum:
            raise CorruptFileError(
                f"`{path}` is damaged: its checksum is {checksum}, not {envelope.checksum}"
            )
        if envelope.version > self.version:
            raise UnsupportedVersionError(
                f"`{path}` has version {envelope.version}, this program knows up to {self.version}; "
                "a later dray wrote it"
            )
        return envelope.version, body


def _compute_checksum(what: str, version: int, content: bytes) -> str:
    """Cover the type and the version, too: a damaged version would change the meaning of the content."""
    return f"crc32:{zlib.crc32(content, zlib.crc32(f'{what} {version} '.encode())):08x}"
