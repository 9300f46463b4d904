"""Private files: directories and files that only one user may write or read, and files in memory.

Theory of operation: whoever can write a directory can replace what is in it, and whoever owns a file can
change its mode. So the directory of keys and the directory of data must belong to the user of this process,
and their modes must give nothing to others that is not needed. A refusal names what was found, what is
expected, and the command that mends it.

OpenSSL reads keys from files only. A key that comes from elsewhere is given to it as a file in memory, which
has no name in any directory.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dray.errors import InputError

OTHERS_WRITE: Final = 0o022
"""Permissions of a directory with which others can replace its files."""
OTHERS_ANY: Final = 0o077
"""Permissions that others have on files with keys, and on their directory."""
_DESCRIPTORS: Final = Path("/proc/self/fd")
_SHARED_MEMORY: Final = Path("/dev/shm")


def check_private_directory(directory: Path, forbidden: int = OTHERS_WRITE) -> None:
    """Check that a directory belongs to this user and that others have none of the forbidden permissions.

    Raises an `InputError` that names what was found and how to mend it.
    """
    _check_access(directory, directory.stat(), forbidden)


def check_private_file(path: Path, forbidden: int = OTHERS_ANY) -> None:
    """Check that a path is a file of this user, no link, without the forbidden permissions for others."""
    seen = path.lstat()
    if not stat.S_ISREG(seen.st_mode):
        raise InputError(
            f"`{path}` is {_describe_type(seen.st_mode)}, expected a regular file\n"
            f"hint: move the file itself to `{path}`"
        )
    _check_access(path, seen, forbidden)


def _check_access(path: Path, seen: os.stat_result, forbidden: int) -> None:
    mode, user = stat.S_IMODE(seen.st_mode), os.geteuid()
    if seen.st_uid != user:
        raise InputError(
            f"`{path}` belongs to {_describe_user(seen.st_uid)}, expected {_describe_user(user)}, who runs "
            f"this process\nhint: `chown {user} {path}`, or run as {_describe_user(seen.st_uid)}"
        )
    if mode & forbidden:
        what = "read or write" if forbidden & ~OTHERS_WRITE else "write"
        raise InputError(
            f"`{path}` has mode {mode:04o}, so others may {what} it; expected {mode & ~forbidden:04o}\n"
            f"hint: `chmod {mode & ~forbidden:o} {path}`, and consider what others may have done there"
        )


def _describe_user(uid: int) -> str:
    try:
        return f"`{pwd.getpwuid(uid).pw_name}` ({uid})"
    except KeyError:
        return f"user {uid}"


def _describe_type(mode: int) -> str:
    return "a link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "a special file"


def create_memory_directory(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Create a directory in memory that only this user may enter, for keys that are read again and again.

    Where the system has none, it is where temporary files are.
    """
    in_memory = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    return tempfile.TemporaryDirectory(prefix=prefix, dir=_SHARED_MEMORY if in_memory else None)


@contextmanager
def open_memory_file(content: bytes) -> Iterator[str]:
    """Yield a path at which this process reads the content while the block lasts; it is on no disk.

    Where the system has no files in memory, it is in a temporary directory that only this user may enter.
    """
    if hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir():
        descriptor = os.memfd_create("dray", os.MFD_CLOEXEC)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(content)
            yield f"{_DESCRIPTORS}/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "content"
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(content)
            yield str(path)
