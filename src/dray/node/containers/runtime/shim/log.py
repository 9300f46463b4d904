"""Writer of container logs in the CRI format, with rotation by size.

An entry is `TIME stdout F text`, with `P` in place of `F` where a line continues in the next entry or was
never ended.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MAX_LINE_BYTES: Final = 16384
"""Limit of the text in one entry."""


class ContainerLogWriter:
    """Writes the output of a container, and rotates the file at the size limit."""

    def __init__(self, path: str, limit: int, keep: int) -> None:
        self._path = path
        self._limit = limit
        self._keep = keep
        self._partial = {b"stdout": b"", b"stderr": b""}
        self._file = self._size = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._file).st_size

    def write_chunk(self, stream: bytes, chunk: bytes) -> None:
        """Write the complete lines of a chunk, and buffer the rest."""
        *lines, rest = (self._partial[stream] + chunk).split(b"\n")
        prefix = _format_timestamp() + stream
        text = []
        for line in lines:
            while len(line) > MAX_LINE_BYTES:
                text.append(b"%s P %s\n" % (prefix, line[:MAX_LINE_BYTES]))
                line = line[MAX_LINE_BYTES:]
            text.append(b"%s F %s\n" % (prefix, line))
        while len(rest) > MAX_LINE_BYTES:
            text.append(b"%s P %s\n" % (prefix, rest[:MAX_LINE_BYTES]))
            rest = rest[MAX_LINE_BYTES:]
        self._partial[stream] = rest
        self._write_lines(text)

    def close(self) -> None:
        """Write unfinished lines, marked as partial, and close the file."""
        prefix = _format_timestamp()
        self._write_lines(
            [b"%s%s P %s\n" % (prefix, name, rest) for name, rest in self._partial.items() if rest]
        )
        os.close(self._file)

    def _write_lines(self, lines: list[bytes]) -> None:
        text = b"".join(lines)
        if not text:
            return
        try:
            written = os.write(self._file, text)
            if written == len(text):
                self._size += written
            else:
                os.ftruncate(self._file, self._size)
            if self._size >= self._limit:
                self._rotate()
        except OSError:
            # The disk is full: a container continues without its log rather than not at all.
            return

    def _rotate(self) -> None:
        for number in range(self._keep, 1, -1):
            if os.path.lexists(f"{self._path}.{number - 1}"):
                os.replace(f"{self._path}.{number - 1}", f"{self._path}.{number}")
        os.replace(self._path, f"{self._path}.1")
        os.close(self._file)
        self._open()


def _format_timestamp() -> bytes:
    now = time.time_ns()
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
    return b"%s.%09dZ " % (seconds.encode(), now % 10**9)
