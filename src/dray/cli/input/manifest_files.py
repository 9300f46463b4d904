"""Input files of commands: finds them from the arguments, and reads and writes them."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dray.errors import InputError

STDIN = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_BYTES = 256 * 1024 * 1024
"""Bytes of the largest file that is read; a larger one is no manifest."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read, by its displayed name; `path` is None for standard input."""

    name: str
    path: str | None


def find_input_files(arguments: Sequence[str]) -> list[InputFile]:
    """Find files, folders (searched for manifests) and `-`; raise `InputError` when a path does not exist."""
    if not arguments:
        raise InputError("nothing to read; name files, folders or `-` for standard input")
    found: dict[str, InputFile] = {}
    for argument in arguments:
        for target in _expand_argument(argument):
            found.setdefault(os.path.normpath(target.path) if target.path else STDIN, target)
    return list(found.values())


def _expand_argument(argument: str) -> Iterable[InputFile]:
    if argument == "-":
        return [InputFile(STDIN, None)]
    if os.path.isdir(argument):
        inside = [InputFile(path, path) for path in _search_directory(argument)]
        if not inside:
            raise InputError(f"no manifests in folder `{argument}`; looked for {', '.join(SUFFIXES)}")
        return inside
    if not os.path.exists(argument):
        raise InputError(f"cannot read `{argument}`: no such file or folder")
    return [InputFile(argument, argument)]


def _search_directory(folder: str) -> Iterator[str]:
    """Yield the manifests in a folder and its subfolders, sorted; hidden ones are skipped."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(here, name)


class UnreadableFileError(InputError):
    """A file that cannot be opened or is too large."""


def read_contents(target: InputFile) -> bytes:
    """Read a file; raise `UnreadableFileError`."""
    try:
        if target.path is None:
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(target.path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as refused:
        reason = os.strerror(refused.errno or errno.EIO).lower()
        raise UnreadableFileError(f"cannot read `{target.name}`: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableFileError(f"cannot read `{target.name}`: larger than {MAX_FILE_BYTES // 2**20} MiB")
    return data


def replace_file(path: str, text: str) -> None:
    """Replace a file atomically, with the permissions it had."""
    real = os.path.realpath(path)
    temporary = f"{real}.dray-{os.getpid()}"
    try:
        with open(temporary, "x", encoding="utf-8", newline="") as file:
            os.chmod(temporary, os.stat(real).st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, real)
    except OSError as refused:
        _remove(temporary)
        reason = os.strerror(refused.errno or errno.EIO).lower()
        raise UnreadableFileError(f"cannot write `{path}`: {reason}") from None


def save_file(path: str, text: str) -> None:
    """Write a new or existing file atomically, with the folders it needs."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if not os.path.exists(path):
            with open(path, "x", encoding="utf-8"):
                pass
    except OSError as refused:
        reason = os.strerror(refused.errno or errno.EIO).lower()
        raise UnreadableFileError(f"cannot write `{path}`: {reason}") from None
    replace_file(path, text)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
