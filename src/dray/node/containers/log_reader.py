"""Logs of containers: where they are, and what somebody who asks gets to read of them.

Theory of operation: a log is a row of files, the newest without a number. Its entries carry time and stream;
an entry marked `P` is a part of a line. A reader gets the texts without that, in the order they were written.
For the last lines files are read from the end, a block at a time, so that a long log costs what is shown of
it. Following goes on with the next file when the one being read was moved aside, and ends when the container
has ended and everything was read.

Rules for this file: nothing here decides who may read.
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
from dray.node.containers.runtime.base import ContainerId

_FIELD_COUNT: Final = 4
"""What an entry is made of: time, stream, tag, text."""
_BLOCK: Final = 65536
_POLL_SECONDS: Final = 0.2
_MAX_FILES: Final = 10
_STREAMS: Final = {"Stdout": b"stdout", "Stderr": b"stderr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReadOptions:
    """What somebody wants to read."""

    tail: int | None = None
    """That many last lines."""
    since: datetime | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    stream: str = "All"
    """`All`, `Stdout` or `Stderr`."""


def build_log_path(root: Path, namespace: str, pod: str, container: ContainerId) -> Path:
    """Where the log of a container is, as node agents lay them out; of the one before: an attempt less."""
    folder = f"{_sanitize(namespace)}_{_sanitize(pod)}_{_sanitize(container.pod_uid)}"
    return root / folder / _sanitize(container.name) / f"{container.attempt}.log"


def _sanitize(name: str) -> str:
    """A name that is one step of a path, whatever it was."""
    return name.replace("/", "_").replace("\0", "_") if name.strip(".") else f"_{name}"


class LogDecoder:
    """Turns blocks of a log into what somebody wants to read; remembers what a block left unfinished."""

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
        """Whether nothing more is wanted."""
        return self._bytes_left == 0

    def decode(self, block: bytes) -> bytes:
        """What a block adds."""
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
        before = b"" if stream in self._unfinished_streams or not self._timestamps else time + b" "
        if tag == b"P":
            self._unfinished_streams.add(stream)
            return before + text
        self._unfinished_streams.discard(stream)
        return before + text + b"\n"


def _parse_entry(line: bytes) -> list[bytes]:
    parts = line.split(b" ", _FIELD_COUNT - 1)
    # Something that no runtime wrote is shown as it is.
    return parts if len(parts) == _FIELD_COUNT and parts[2] in (b"F", b"P") else [b"", b"stdout", b"F", line]


def read_log(path: Path, options: LogReadOptions) -> Iterator[bytes]:
    """What is there now; `FileNotFoundError` when there is no log."""
    files = _open_files(path)
    if not files:
        raise FileNotFoundError(f"there is no log `{path}`")
    return _read_files(files, options)


def _read_files(files: list[BinaryIO], options: LogReadOptions) -> Iterator[bytes]:
    reader = LogDecoder(options)
    with contextlib.ExitStack() as stack:
        for file in files:
            stack.enter_context(file)
        for file in _seek_tail(files, options.tail):
            while not reader.is_full and (block := file.read(_BLOCK)):
                yield reader.decode(block)


async def follow_log(
    path: Path, options: LogReadOptions, has_ended: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """What is there now and what comes, until the container has ended; waits for a log that is not there."""
    reader = LogDecoder(options)
    files = _open_files(path)
    waiting = _seek_tail(files, options.tail)
    try:
        while not reader.is_full:
            # Asked before reading: what was written before the end is then read for certain.
            over = has_ended()
            block = waiting[0].read(_BLOCK) if waiting else b""
            if block:
                yield reader.decode(block)
                await asyncio.sleep(0)
            elif len(waiting) > 1:
                waiting.pop(0).close()
            elif fresh := _open_newer(path, waiting):
                # Once more the old one: it may have been written to before it was moved aside.
                waiting += fresh
            elif over:
                return
            else:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        for file in (*files, *waiting):
            file.close()


def _open_files(path: Path) -> list[BinaryIO]:
    """The files of a log, the oldest first, held open so that they stay what they are."""
    files: list[BinaryIO] = []
    for each in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, _MAX_FILES))):
        try:
            file = open(each, "rb")  # noqa: SIM115 - whoever asked closes it
        except FileNotFoundError:
            continue
        if any(os.path.sameopenfile(file.fileno(), other.fileno()) for other in files):
            # It was moved aside just now, between the two.
            file.close()
            continue
        files.insert(0, file)
    return files


def _open_newer(path: Path, open_files: list[BinaryIO]) -> list[BinaryIO]:
    """The files that came after the one that is held; all when it is gone."""
    try:
        if open_files and os.path.samestat(os.stat(path), os.fstat(open_files[-1].fileno())):
            return []
    except FileNotFoundError:
        return []
    files = _open_files(path)
    same = [
        open_files != [] and os.path.sameopenfile(file.fileno(), open_files[-1].fileno()) for file in files
    ]
    place = same.index(True) + 1 if True in same else 0
    for file in files[:place]:
        file.close()
    return files[place:]


def _seek_tail(files: list[BinaryIO], tail: int | None) -> list[BinaryIO]:
    """The files from the one on in which the last lines begin, which is put there; the others are closed."""
    if tail is None:
        return list(files)
    found = _TailSeeker(tail)
    for index in reversed(range(len(files))):
        if found.seek(files[index]):
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
        """Lines that were found; -1 before the last entry was seen, which ends one even if it is a part."""

    def seek(self, file: BinaryIO) -> bool:
        """Go back in a file, and put it where the lines begin; False when they begin before it."""
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
        """Whether a line that ended here is one more than wanted."""
        whole = _parse_entry(line)[2] == b"F"
        if self._found < 0:
            self._found = 1
            return False
        if whole:
            self._found += 1
        return whole and self._found > self._line_count
