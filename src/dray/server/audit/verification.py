"""The files of an audit log, and the verification of their chain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from dray.errors import InputError
from dray.server.audit.hash_chain import MAX_LINE_BYTES, ChainLink, ChainReport, verify_lines

_TAIL_BYTES = 64 * 1024
"""How many bytes at the end of a file are searched first for its last line."""


def build_rotated_path(path: Path, last: int) -> Path:
    """Return the name of a rotated file: it has the number of its last line, so that names sort like the
    chain.
    """
    return path.with_name(f"{path.stem}-{last:012d}{path.suffix}")


def list_rotated_files(path: Path) -> list[Path]:
    """List the rotated files of a log, oldest first."""
    pattern = re.compile(rf"{re.escape(path.stem)}-\d{{12,}}{re.escape(path.suffix)}")
    names = (other.name for other in path.parent.glob(f"{path.stem}-*{path.suffix}"))
    found = [path.with_name(name) for name in names if pattern.fullmatch(name)]
    return sorted(found, key=lambda other: (len(other.name), other.name))


def list_log_files(path: Path) -> list[Path]:
    """List all files of the log at `path`, oldest first."""
    return [*list_rotated_files(path), *([path] if path.exists() else [])]


def verify_files(paths: Iterable[Path], expected_hashes: frozenset[str] = frozenset()) -> ChainReport:
    """Verify the chain through files, oldest first; `expected_hashes` must be found on the way."""
    return verify_lines(_iter_lines(paths), expected_hashes)


def _iter_lines(paths: Iterable[Path]) -> Iterator[tuple[bytes, str]]:
    for path in paths:
        try:
            with path.open("rb") as file:
                number = 0
                while line := file.readline(2 * MAX_LINE_BYTES):
                    number += 1
                    yield line.rstrip(b"\n"), f"{path}:{number}"
        except OSError as refused:
            raise InputError(f"cannot read `{path}`: {refused.strerror}") from None


def read_last_line(path: Path) -> tuple[bytes | None, bytes]:
    """Return the last intact line of a file, and the bytes after it.

    A line may lack its newline: no part of a JSON object is one. What is no line of the chain counts as torn,
    also when it ends in a newline: after a loss of power the disk may have anything there.
    """
    with path.open("rb") as file:
        end, size = file.seek(0, 2), _TAIL_BYTES
        while True:
            start = max(end - size, 0)
            file.seek(start)
            lines = file.read(end - start).split(b"\n")
            # In the middle of a file, the first line is only the end of one.
            for place in range(len(lines) - 1, 0 if start else -1, -1):
                if ChainLink.parse(lines[place]) is not None:
                    return lines[place], b"\n".join(lines[place + 1 :])
            if not start:
                return None, b"\n".join(lines)
            size *= 8


def ends_with_newline(path: Path) -> bool:
    """Return whether the next byte would begin a line."""
    with path.open("rb") as file:
        return file.seek(0, 2) == 0 or (file.seek(-1, 2) >= 0 and file.read(1) == b"\n")
