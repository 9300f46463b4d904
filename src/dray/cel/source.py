"""The text of an expression, and how a place in it is shown to people.

Places are offsets in code points, counted from zero; they become a line and a column, both counted from one,
only when somebody looks.
"""

from __future__ import annotations

from typing import NamedTuple

NAME = "<input>"


class Position(NamedTuple):
    """A place for people: line and column, counted from one."""

    line: int
    column: int


class Issue(NamedTuple):
    """One thing wrong with an expression, and the offset where it is."""

    offset: int
    message: str


def position(text: str, offset: int) -> Position:
    """Line and column of an offset."""
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def snippet(text: str, place: Position) -> str:
    """The line of a place and a caret under its column, in the form of cel-go."""
    line = text.split("\n")[place.line - 1].replace("\t", " ")
    pointer = "".join("．" if _is_wide(char) else "." for char in line[: place.column - 1])
    caret = "＾" if _is_wide(line[place.column - 1 : place.column]) else "^"
    return f" | {line}\n | {pointer}{caret}"


def rendered(text: str, issue: Issue) -> str:
    """An issue as cel-go prints it: the message with its place, the line, and a caret."""
    place = position(text, issue.offset)
    return f"ERROR: {NAME}:{place.line}:{place.column}: {issue.message}\n{snippet(text, place)}"


def _is_wide(char: str) -> bool:
    # cel-go takes every character outside ASCII for a wide one; the pointer should look the same.
    return char > "\x7f"
