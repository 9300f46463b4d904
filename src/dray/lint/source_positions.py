"""Positions of single characters of a YAML or JSON text value in its file.

Theory of operation: a document has the position where a value starts, not how it was written. So the value is
read once more from the lines of the file, this time recording where each character comes from: plain, in
quotes, or as a block. The result must equal the text of the document, character by character; if it does not
(an alias, a rare escape), the position is where the value starts.

Rules for this file: lines in, positions out; the meaning of the text does not matter here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from types import MappingProxyType

from dray.manifests import ManifestDocument, ManifestSource, TextPosition

_LocatedChar = tuple[str, TextPosition]
_ANCHORS_AND_TAGS = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchors and tags, which may precede a value."""
_KEY = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'][^:]*?)\s*:(?=\s|$)""")
_ESCAPES: Mapping[str, str] = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", " ": " ", "b": "\b", "f": "\f"}
)
_ESCAPE_LENGTHS: Mapping[str, int] = MappingProxyType({"x": 2, "u": 4, "U": 8})
_MAX_LINES_BELOW = 100
"""How many lines below its key a value is searched."""


def locate_character(document: ManifestDocument, path: str, text: str, offset: int) -> TextPosition:
    """The position of a character of a text value; where the value starts when it cannot be found."""
    start = document.locate(path)
    for at in (start, _find_value_below_key(document.source, start)):
        positions = _locate_characters(document.source, at, text) if at is not None else None
        if positions:
            if offset < len(positions):
                return positions[offset]
            line, column = positions[-1]
            return TextPosition(line, column + 1)
    return start


def _find_value_below_key(source: ManifestSource, at: TextPosition) -> TextPosition | None:
    """Where the value of a key starts, when it is on a line below."""
    key = _KEY.match(source.get_line(at.line), at.column - 1)
    column = key.end() if key else 0
    for line in range(at.line, at.line + _MAX_LINES_BELOW) if key else ():
        text = source.get_line(line)
        begin = len(text) - len(text[column:].lstrip())
        if text[begin:] and text[begin] != "#":
            return TextPosition(line, begin + 1)
        column = 0
    return None


def _locate_characters(source: ManifestSource, at: TextPosition, text: str) -> list[TextPosition] | None:
    """The position of every character of a text that starts here; None when another text does."""
    line = source.get_line(at.line)
    before = _ANCHORS_AND_TAGS.match(line, at.column - 1)
    column = before.end() if before else at.column - 1
    first = line[column : column + 1]
    wanted = text.rstrip("\n")  # how many line breaks end a block depends on what follows it
    if first in ("|", ">"):
        read = (_read_literal_block if first == "|" else _read_folded_block)(source, at.line + 1, wanted)
    else:
        quote = first if first in ('"', "'") else ""
        read = _read_flow_scalar(source, TextPosition(at.line, column + len(quote)), quote)
    found = list(islice(read, len(wanted)))
    if "".join(char for char, _ in found) != wanted:
        return None
    return [place for _, place in found]


# --- blocks ---


def _find_indent(source: ManifestSource, start: int, text: str) -> int:
    """How far a block is indented: by as much as its first line has more blanks than the text."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    for number in range(start, start + _MAX_LINES_BELOW):
        line = source.get_line(number)
        if line.strip():
            return max(0, _count_blanks(line) - _count_blanks(first))
    return 0


def _count_blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _read_literal_block(source: ManifestSource, start: int, text: str) -> Iterator[_LocatedChar]:
    indent = _find_indent(source, start, text)
    for number in count(start):
        line = source.get_line(number)
        yield from _list_characters(line, number, indent)
        yield "\n", TextPosition(number, len(line) + 1)


def _read_folded_block(source: ManifestSource, start: int, text: str) -> Iterator[_LocatedChar]:
    indent = _find_indent(source, start, text)
    number = start
    for _ in range(text.count("\n") + text.count(" ") + 1):
        while not source.get_line(number).strip() and number < start + _MAX_LINES_BELOW:
            yield "\n", TextPosition(number, 1)
            number += 1
        line = source.get_line(number)
        yield from _list_characters(line, number, indent)
        end = TextPosition(number, len(line) + 1)
        number += 1
        more = line[indent : indent + 1] in (" ", "\t")
        more = more or source.get_line(number)[indent : indent + 1] in (" ", "\t")
        if more:
            yield "\n", end
        elif source.get_line(number).strip():
            yield " ", end


def _list_characters(line: str, number: int, start: int) -> Iterator[_LocatedChar]:
    return ((char, TextPosition(number, i + 1)) for i, char in enumerate(line[start:], start))


# --- plain and quoted ---


def _read_flow_scalar(source: ManifestSource, start: TextPosition, quote: str) -> Iterator[_LocatedChar]:
    """Text that may go on over lines: breaks between them are blanks, empty lines are breaks."""
    number, column = start
    while True:
        line = source.get_line(number)
        chars, closed = _LINE_READERS[quote](line, column, number)
        joined = bool(chars) and chars[-1][0] == "" and not closed
        yield from (char for char in chars if char[0])
        if closed:
            return
        end = TextPosition(number, len(line) + 1)
        number += 1
        empty = 0
        while not source.get_line(number).strip() and empty < _MAX_LINES_BELOW:
            empty += 1
            number += 1
        column = len(source.get_line(number)) - len(source.get_line(number).lstrip())
        if not joined or empty:
            yield from ((char, end) for char in ("\n" * empty or " "))


_ScannedLine = tuple[list[_LocatedChar], bool]


def _read_plain_line(line: str, column: int, number: int) -> _ScannedLine:
    return list(_list_characters(line.rstrip(), number, column)), False


def _read_single_quoted_line(line: str, column: int, number: int) -> _ScannedLine:
    chars: list[_LocatedChar] = []
    while column < len(line):
        if line[column] == "'":
            if line[column : column + 2] != "''":
                return chars, True
            chars.append(("'", TextPosition(number, column + 1)))
            column += 2
        else:
            chars.append((line[column], TextPosition(number, column + 1)))
            column += 1
    return _trim_trailing_blanks(chars), False


def _read_double_quoted_line(line: str, column: int, number: int) -> _ScannedLine:
    chars: list[_LocatedChar] = []
    while column < len(line):
        here = TextPosition(number, column + 1)
        if line[column] == '"':
            return chars, True
        if line[column] == "\\":
            char, length = _decode_escape(line, column + 1)
            chars.append((char, here))
            column += 1 + length
        else:
            chars.append((line[column], here))
            column += 1
    return (chars if chars and chars[-1][0] == "" else _trim_trailing_blanks(chars)), False


def _decode_escape(line: str, column: int) -> tuple[str, int]:
    """The character an escape stands for, and how long the escape is; nothing for a break that is escaped."""
    sign = line[column : column + 1]
    digits = _ESCAPE_LENGTHS.get(sign)
    if digits is None:
        return _ESCAPES.get(sign, ""), 1
    try:
        return chr(int(line[column + 1 : column + 1 + digits], 16)), 1 + digits
    except (ValueError, OverflowError):
        return "", 1


def _trim_trailing_blanks(chars: list[_LocatedChar]) -> list[_LocatedChar]:
    while chars and chars[-1][0] in (" ", "\t"):
        chars.pop()
    return chars


_LINE_READERS: Mapping[str, Callable[[str, int, int], _ScannedLine]] = MappingProxyType(
    {"": _read_plain_line, "'": _read_single_quoted_line, '"': _read_double_quoted_line}
)
