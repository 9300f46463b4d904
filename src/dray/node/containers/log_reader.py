"""Reader of container logs: decodes the CRI format, reads the last lines, and follows a growing log.

Theory of operation: a log is a sequence of rotated files, the newest without a number. Its entries have time
and stream; an entry marked `P` is part of a line. A reader gets the texts without these, in order. For the
last lines, files are read backwards in blocks, so that the cost is that of the lines shown. Following
continues with the next file when the current one is rotated, and ends when the container has ended and
everything is read.

Rules for this file: authorization happens elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from dray.clock import format_micro_timestamp

_FIELD_COUNT: Final = 4
"""Fields of an entry: time, stream, tag, text."""
_BLOCK: Final = 65536
_POLL_SECONDS: Final = 0.2
_MAX_FILES: Final = 10
_STREAMS: Final = {"Stdout": b"stdout", "Stderr": b"stderr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReadOptions:
    """Which part of a log to read, and how."""

    tail: int | None = None
    """The number of last lines."""
    since: datetime | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    stream: str = "All"
    """`All`, `Stdout` or `Stderr`."""


class LogDecoder:
    """Decodes blocks of a log by the options of a reader; buffers incomplete lines between blocks."""

    def __init__(self, options: LogReadOptions) -> None:
        self._since = (
            b"" if options.since is None else f"{format_micro_timestamp(options.since)[:-1]}000Z".encode()
        )
        self._stream = _STREAMS.get(options.stream)
        self._timestamps = options.timestamps
        self._bytes_left = options.limit_bytes
        self._partial = b""
        self._unfinished_streams: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        """Whether the byte limit is reached."""
        return self._bytes_left == 0

    def decode(self, block: bytes) -> bytes:
        """Return the text of a block."""
        *lines, self._partial = (self._partial + block).split(b"\n")
        text = b"".join(map(self._render_line, lines))
        if self._bytes_left is not None:
            text = text[: self._bytes_left]
            self._bytes_left -= len(text)
        return text

    def _render_line(self, line: bytes) -> bytes:
        time, stream, tag, text = _parse_entry(line)
        if time < self._since or self._stream not in (None, stream):
            return b""
        prefix = b"" if stream in self._unfinished_streams or not self._timestamps else time + b" "
        if tag == b"P":
            self._unfinished_streams.add(stream)
            return prefix + text
        self._unfinished_streams.discard(stream)
        return prefix + text + b"\n"


def _parse_entry(line: bytes) -> list[bytes]:
    parts = line.split(b" ", _FIELD_COUNT - 1)
    # A line that is not in the CRI format is shown as it is.
    return parts if len(parts) == _FIELD_COUNT and parts[2] in (b"F", b"P") else [b"", b"stdout", b"F", line]


def read_log(path: Path, options: LogReadOptions) -> Iterator[bytes]:
    """Read the current content of a log; raises `FileNotFoundError` when there is none."""
    files = _open_files(path)
    if not files:
        raise FileNotFoundError(f"there is no log `{path}`")
    return _read_files(files, options)


def _read_files(files: list[BinaryIO], options: LogReadOptions) -> Iterator[bytes]:
    decoder = LogDecoder(options)
    with contextlib.ExitStack() as stack:
        for file in files:
            stack.enter_context(file)
        for file in _seek_tail(files, options.tail):
            while not decoder.is_full and (block := file.read(_BLOCK)):
                yield decoder.decode(block)


async def follow_log(
    path: Path, options: LogReadOptions, has_ended: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Read a log and its additions until the container has ended; waits for a log that does not exist yet."""
    decoder = LogDecoder(options)
    files = _open_files(path)
    unread = _seek_tail(files, options.tail)
    try:
        while not decoder.is_full:
            # Checked before reading, so that everything written before the end is read.
            ended = has_ended()
            block = unread[0].read(_BLOCK) if unread else b""
            if block:
                yield decoder.decode(block)
                await asyncio.sleep(0)
            elif len(unread) > 1:
                unread.pop(0).close()
            elif newer := _open_newer(path, unread):
                # The old file is read once more: it may have grown before it was rotated.
                unread += newer
            elif ended:
                return
            else:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        for file in (*files, *unread):
            file.close()


def _open_files(path: Path) -> list[BinaryIO]:
    """Open the files of a log, the oldest first, so that rotation does not exchange them."""
    files: list[BinaryIO] = []
    for each in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, _MAX_FILES))):
        try:
            file = open(each, "rb")  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            continue
        if any(os.path.sameopenfile(file.fileno(), other.fileno()) for other in files):
            # It was rotated between the two.
            file.close()
            continue
        files.insert(0, file)
    return files


def _open_newer(path: Path, open_files: list[BinaryIO]) -> list[BinaryIO]:
    """Open the files newer than the last open one; all of them when that was deleted."""
    try:
        if open_files and os.path.samestat(os.stat(path), os.fstat(open_files[-1].fileno())):
            return []
    except FileNotFoundError:
        return []
    files = _open_files(path)
    same = [
        open_files != [] and os.path.sameopenfile(file.fileno(), open_files[-1].fileno()) for file in files
    ]
    first_newer = same.index(True) + 1 if True in same else 0
    for file in files[:first_newer]:
        file.close()
    return files[first_newer:]


def _seek_tail(files: list[BinaryIO], tail: int | None) -> list[BinaryIO]:
    """Return the files that contain the last lines, the first positioned at them; close the others."""
    if tail is None:
        return list(files)
    seeker = _TailSeeker(tail)
    for index in reversed(range(len(files))):
        if seeker.seek(files[index]):
            for file in files[:index]:
                file.close()
            for file in files[index + 1 :]:
                file.seek(0)
            return files[index:]
    for file in files:
        file.seek(0)
    return list(files)


class _TailSeeker:
    """Counts lines from the end of a log."""

    def __init__(self, line_count: int) -> None:
        self._line_count = line_count
        self._found = -1
        """Lines found; -1 before the last entry, which ends a line even if it is partial."""

    def seek(self, file: BinaryIO) -> bool:
        """Position a file where the lines begin; False when they begin before it."""
        position = file.seek(0, os.SEEK_END)
        if self._line_count == 0:
            return True
        after = b""
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            lines = (file.read(size) + after).split(b"\n")
            after = lines.pop(0) if position else b""
            offset = position + (len(after) + 1 if position else 0) + sum(map(len, lines)) + len(lines) - 1
            for line in reversed(lines):
                if line and self._is_before_tail(line):
                    file.seek(offset + 1)
                    return True
                offset -= len(line) + 1
        return False

    def _is_before_tail(self, line: bytes) -> bool:
        """Count an entry backwards; return whether it ends a line before the wanted ones."""
        whole = _parse_entry(line)[2] == b"F"
        if self._found < 0:
            self._found = 1
            return False
        if whole:
            self._found += 1
        return whole and self._found > self._line_count
