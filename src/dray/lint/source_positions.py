"""Where one character of a text value stands in its file.

Theory of operation: a document knows where a value starts, not how it was written. So the value is read once
more from the lines of the file, this time noting where each character comes from: plain, in quotes, or as a
block. What was read must be the text that the document holds, character by character; if it is not (an
alias, a rare escape), nobody guesses, and the place is where the value starts.

Rules for this file: lines in, places out; no meaning of the text is known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from types import MappingProxyType

from dray.manifests import Document, Position, Source

_Char = tuple[str, Position]
_BEFORE = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchors and tags, which may stand before a value."""
_KEY = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'][^:]*?)\s*:(?=\s|$)""")
_ESCAPES: Mapping[str, str] = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", " ": " ", "b": "\b", "f": "\f"}
)
_CODES: Mapping[str, int] = MappingProxyType({"x": 2, "u": 4, "U": 8})
_FARTHEST = 100
"""So many lines below its key a value is looked for."""


def place_of(document: Document, path: str, text: str, offset: int) -> Position:
    """Where the character of a text value stands; where the value starts when that cannot be said."""
    start = document.locate(path)
    for at in (start, _behind_key(document.source, start)):
        places = _places(document.source, at, text) if at is not None else None
        if places:
            if offset < len(places):
                return places[offset]
            line, column = places[-1]
            return Position(line, column + 1)
    return start


def _behind_key(source: Source, at: Position) -> Position | None:
    """Where the value of a key starts, when it stands on a line below."""
    key = _KEY.match(source.line(at.line), at.column - 1)
    column = key.end() if key else 0
    for line in range(at.line, at.line + _FARTHEST) if key else ():
        text = source.line(line)
        begin = len(text) - len(text[column:].lstrip())
        if text[begin:] and text[begin] != "#":
            return Position(line, begin + 1)
        column = 0
    return None


def _places(source: Source, at: Position, text: str) -> list[Position] | None:
    """The place of every character of a text that starts here; nothing when another text does."""
    line = source.line(at.line)
    before = _BEFORE.match(line, at.column - 1)
    column = before.end() if before else at.column - 1
    first = line[column : column + 1]
    wanted = text.rstrip("\n")  # how many line breaks end a block depends on what follows it
    if first in ("|", ">"):
        read = (_literal if first == "|" else _folded)(source, at.line + 1, wanted)
    else:
        quote = first if first in ('"', "'") else ""
        read = _flowing(source, Position(at.line, column + len(quote)), quote)
    found = list(islice(read, len(wanted)))
    if "".join(char for char, _ in found) != wanted:
        return None
    return [place for _, place in found]


# --- blocks ---


def _indent(source: Source, start: int, text: str) -> int:
    """How far a block is indented: by as much as its first line has more blanks than the text."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    for number in range(start, start + _FARTHEST):
        line = source.line(number)
        if line.strip():
            return max(0, _blanks(line) - _blanks(first))
    return 0


def _blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _literal(source: Source, start: int, text: str) -> Iterator[_Char]:
    indent = _indent(source, start, text)
    for number in count(start):
        line = source.line(number)
        yield from _characters(line, number, indent)
        yield "\n", Position(number, len(line) + 1)


def _folded(source: Source, start: int, text: str) -> Iterator[_Char]:
    indent = _indent(source, start, text)
    number = start
    for _ in range(text.count("\n") + text.count(" ") + 1):
        while not source.line(number).strip() and number < start + _FARTHEST:
            yield "\n", Position(number, 1)
            number += 1
        line = source.line(number)
        yield from _characters(line, number, indent)
        end = Position(number, len(line) + 1)
        number += 1
        more = line[indent : indent + 1] in (" ", "\t")
        more = more or source.line(number)[indent : indent + 1] in (" ", "\t")
        if more:
            yield "\n", end
        elif source.line(number).strip():
            yield " ", end


def _characters(line: str, number: int, start: int) -> Iterator[_Char]:
    return ((char, Position(number, i + 1)) for i, char in enumerate(line[start:], start))


# --- plain and quoted ---


def _flowing(source: Source, start: Position, quote: str) -> Iterator[_Char]:
    """Text that may go on over lines: breaks between them are blanks, empty lines are breaks."""
    number, column = start
    while True:
        line = source.line(number)
        chars, closed = _LINES[quote](line, column, number)
        joined = bool(chars) and chars[-1][0] == "" and not closed
        yield from (char for char in chars if char[0])
        if closed:
            return
        end = Position(number, len(line) + 1)
        number += 1
        empty = 0
        while not source.line(number).strip() and empty < _FARTHEST:
            empty += 1
            number += 1
        column = len(source.line(number)) - len(source.line(number).lstrip())
        if not joined or empty:
            yield from ((char, end) for char in ("\n" * empty or " "))


_Line = tuple[list[_Char], bool]


def _plain(line: str, column: int, number: int) -> _Line:
    return list(_characters(line.rstrip(), number, column)), False


def _single(line: str, column: int, number: int) -> _Line:
    chars: list[_Char] = []
    while column < len(line):
        if line[column] == "'":
            if line[column : column + 2] != "''":
                return chars, True
            chars.append(("'", Position(number, column + 1)))
            column += 2
        else:
            chars.append((line[column], Position(number, column + 1)))
            column += 1
    return _trimmed(chars), False


def _double(line: str, column: int, number: int) -> _Line:
    chars: list[_Char] = []
    while column < len(line):
        here = Position(number, column + 1)
        if line[column] == '"':
            return chars, True
        if line[column] == "\\":
            char, length = _escaped(line, column + 1)
            chars.append((char, here))
            column += 1 + length
        else:
            chars.append((line[column], here))
            column += 1
    return (chars if chars and chars[-1][0] == "" else _trimmed(chars)), False


def _escaped(line: str, column: int) -> tuple[str, int]:
    """The character an escape stands for, and how long the escape is; nothing for a break that is escaped."""
    sign = line[column : column + 1]
    digits = _CODES.get(sign)
    if digits is None:
        return _ESCAPES.get(sign, ""), 1
    try:
        return chr(int(line[column + 1 : column + 1 + digits], 16)), 1 + digits
    except (ValueError, OverflowError):
        return "", 1


def _trimmed(chars: list[_Char]) -> list[_Char]:
    while chars and chars[-1][0] in (" ", "\t"):
        chars.pop()
    return chars


_LINES: Mapping[str, Callable[[str, int, int], _Line]] = MappingProxyType(
    {"": _plain, "'": _single, '"': _double}
)
