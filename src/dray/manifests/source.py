"""Manifest source: the decoded text of a file, its lines and positions, and errors that quote them.

Theory of operation: everything that reads a manifest works on one `str`. Bytes are decoded here, once: a byte
order mark is dropped, UTF-16 (as some Windows shells write it) is decoded, and characters that no manifest
may contain are refused with their position. Lines are counted as YAML counts them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dray.errors import InputError

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_MAX_WIDTH = 160


class TextPosition(NamedTuple):
    """A position in a text; lines and columns count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


START_POSITION = TextPosition(1, 1)


class ManifestReadError(InputError):
    """A manifest that cannot be read; it has the position and the line."""

    def __init__(self, source: str, position: TextPosition, problem: str, line: str = "") -> None:
        self.source = source
        self.position = position
        self.problem = problem
        self.line = line
        super().__init__(f"{source}:{position}: {problem}")


@dataclass(frozen=True)
class ManifestSource:
    """The text of one file, and the name by which users refer to it."""

    name: str
    text: str

    @classmethod
    def decode(cls, name: str, data: bytes) -> ManifestSource:
        """Decode bytes; raises `ManifestReadError` at the first byte or character that is not allowed."""
        encoding = _UTF16.get(data[:2], "utf-8")
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as broken:
            before = cls(name, data[: broken.start].decode(encoding, "replace"))
            end = before.get_position(len(before.text))
            raise ManifestReadError(
                name,
                end,
                f"not {encoding.upper()} text: byte 0x{data[broken.start]:02x}",
                before.get_line(end.line),
            ) from None
        source = cls(name, text.removeprefix("\ufeff"))
        never = _FORBIDDEN.search(source.text)
        if never:
            raise source.build_error(
                never.start(), f"the character U+{ord(never[0]):04X} may not be in a manifest"
            )
        return source

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in _LINE_BREAK.finditer(self.text))]

    def get_position(self, index: int) -> TextPosition:
        """Return line and column of a character."""
        line = bisect_right(self._line_starts, index)
        return TextPosition(line, index - self._line_starts[line - 1] + 1)

    def get_line(self, number: int) -> str:
        """Return a line without its line break; empty beyond the end."""
        if not 0 < number <= len(self._line_starts):
            return ""
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[self._line_starts[number - 1] : end].rstrip("\r\n\x85\u2028\u2029")

    def build_error(self, at: int | TextPosition, problem: str) -> ManifestReadError:
        """Build an error at a position in this text."""
        position = at if isinstance(at, TextPosition) else self.get_position(at)
        return ManifestReadError(self.name, position, problem, self.get_line(position.line))


def render_excerpt(line: str, column: int) -> tuple[str, str]:
    """Return a line and the caret below it, cut to the width of a screen, with tabs as single spaces."""
    line = line.replace("\t", " ")
    start = max(0, column - 1 - _MAX_WIDTH // 2) if len(line) > _MAX_WIDTH else 0
    shown = line[start : start + _MAX_WIDTH]
    return shown, " " * (min(column - 1, len(line)) - start) + "^"
