"""Files with secrets: written atomically, and readable by their owner alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dray.durable import FileLock, write_file_atomically
from dray.errors import InputError
from dray.private_files import OTHERS_ANY, check_private_directory, check_private_file


class CredentialError(InputError):
    """A file of credentials that cannot be used; the message names the file and never its content."""


def prepare_key_directory(directory: Path) -> None:
    """Create the directory of keys, if it does not exist; refuse one that others own, may enter or write, and
    keys in it that others own or may read.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CredentialError(
            f"the directory `{directory}` cannot be made: {error.strerror}; choose another directory"
        ) from None
    try:
        check_private_directory(directory, OTHERS_ANY)
        for key_file in sorted((*directory.glob("*.key"), *directory.glob("*.pem"))):
            check_private_file(key_file)
    except InputError as refused:
        raise CredentialError(str(refused)) from None


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
    if content is not None and path.stat().st_mode & OTHERS_ANY:
        raise CredentialError(
            f"`{path}` holds a key and others may read it; `chmod 600` it, or delete it to get a new one"
        )
    return content
