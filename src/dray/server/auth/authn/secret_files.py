"""Files with secrets: written atomically, and readable by their owner alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dray.durable import FileLock, write_file_atomically
from dray.errors import InputError

_GROUP_AND_OTHERS = 0o077


class CredentialError(InputError):
    """A file of credentials that cannot be used; the message names the file and never its content."""


def create_private_directory(directory: Path) -> None:
    """Create a directory that only its owner may enter, if it does not exist."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CredentialError(
            f"the directory `{directory}` cannot be made: {error.strerror}; choose another directory"
        ) from None


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory against other processes while files are checked and created."""
    try:
        lock = FileLock.acquire(directory / ".lock")
    except OSError as error:
        raise CredentialError(f"nothing can be written in `{directory}`: {error.strerror}") from None
    with lock:
        yield


def write_private_file(path: Path, content: bytes) -> None:
    """Replace a file in one step; a reader sees the old one or the new one, never a part."""
    try:
        write_file_atomically(path, content)
    except OSError as error:
        raise CredentialError(f"`{path}` cannot be written: {error.strerror}") from None


def read_file(path: Path) -> bytes | None:
    """Read a file; None when it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialError(f"`{path}` cannot be read: {error.strerror}") from None


def read_private_file(path: Path) -> bytes | None:
    """Read a file with a key, which nobody else may be able to read."""
    content = read_file(path)
    if content is not None and path.stat().st_mode & _GROUP_AND_OTHERS:
        raise CredentialError(
            f"`{path}` holds a key and others may read it; `chmod 600` it, or delete it to get a new one"
        )
    return content
