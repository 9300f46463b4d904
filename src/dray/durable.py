"""Files that survive: replaced in one step, with a checksum and a version, and tied to a boot of the machine.

Theory of operation: a state file is one line of JSON: what it is, its version, the content, and a checksum of
all three. It is written beside the old one, made durable, and put in its place, so a reader sees the old or
the new. Whoever reads a file that is torn, foreign or of a later version is told which of these it is and
decides. Making things durable is slow: who writes says what a loss of power may undo.
"""

from __future__ import annotations

import errno
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
"""What reading JSON may end with; only the first is a fault of its form."""
_BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")


class CorruptFileError(DrayError):
    """A state file whose content is not what was written."""


class UnsupportedVersionError(DrayError):
    """A state file of a version that this program does not know."""


class Durability(Enum):
    """What a write survives; every one survives the end of the program, however sudden."""

    POWER_LOSS = "a loss of power"
    ATOMIC = "a loss of power leaves the old or the new, both whole"
    THIS_BOOT = "nothing is promised after a loss of power"


def read_boot_id() -> str:
    """Which boot of the machine this is; empty where nobody tells."""
    try:
        return _BOOT_ID_PATH.read_text("ascii").strip()
    except OSError:
        return ""


def read_regular_file(path: Path) -> bytes | None:
    """The content of a file of ours, None when there is none; `CorruptFileError` for anything else at its
    place.

    Links are not followed, and nobody is waited for at the other end of a pipe.
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
    """Put a file in place in one step and make it durable; `OSError` when that is not possible."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            if durability is not Durability.THIS_BOOT:
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    if durability is Durability.POWER_LOSS:
        sync_directory(path.parent)


def remove_file(path: Path, durability: Durability = Durability.POWER_LOSS) -> None:
    """Take a file away, if it is there."""
    path.unlink(missing_ok=True)
    if durability is Durability.POWER_LOSS:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, not only the contents."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands around the content of a state file."""

    what: str
    version: int
    checksum: str
    content: msgspec.Raw


@dataclass(frozen=True, slots=True)
class StateFile:
    """A kind of state file: what it says it is, and the version we write."""

    what: str
    version: int

    def write(self, path: Path, content: Any, durability: Durability = Durability.POWER_LOSS) -> None:
        """Write a struct or a document in one step."""
        body = msgspec.json.encode(content)
        checksum = _compute_checksum(self.what, self.version, body)
        envelope = _Envelope(self.what, self.version, checksum, msgspec.Raw(body))
        write_file_atomically(path, msgspec.json.encode(envelope) + b"\n", durability=durability)

    def read(self, path: Path) -> tuple[int, bytes] | None:
        """The version and the content (JSON) of a file; None when there is none."""
        raw = read_regular_file(path)
        if raw is None:
            return None
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
    """Of everything: a version that was hit would make another file of the same content."""
    return f"crc32:{zlib.crc32(content, zlib.crc32(f'{what} {version} '.encode())):08x}"
