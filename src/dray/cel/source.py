"""Positions in the text of an expression, and how they are shown to people.

Offsets are code points, counted from zero; lines and columns, both counted from one, are computed only when a
position is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dray.cel.issue_causes import IssueCause

SOURCE_NAME = "<input>"


class ExpressionPosition(NamedTuple):
    """Line and column, counted from one."""

    line: int
    column: int


class ExpressionIssue(NamedTuple):
    """One thing wrong with an expression, and the offset where it is; `message` is for people."""

    offset: int
    message: str
    cause: IssueCause | None = None


def sort_issues(issues: Iterable[ExpressionIssue]) -> list[ExpressionIssue]:
    """The distinct issues in the order of the text."""
    return sorted(set(issues), key=lambda issue: (issue.offset, issue.message))


def locate_offset(text: str, offset: int) -> ExpressionPosition:
    """Line and column of an offset."""
    before = text[:offset]
    return ExpressionPosition(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def render_snippet(text: str, position: ExpressionPosition) -> str:
    """The line of a position and a caret under its column, in the form of cel-go."""
    line = text.split("\n")[position.line - 1].replace("\t", " ")
    pointer = "".join("．" if _is_wide(char) else "." for char in line[: position.column - 1])
    caret = "＾" if _is_wide(line[position.column - 1 : position.column]) else "^"
    return f" | {line}\n | {pointer}{caret}"


def render_issue(text: str, issue: ExpressionIssue) -> str:
    """An issue as cel-go prints it: the message with its position, the line, and a caret."""
    place = locate_offset(text, issue.offset)
    return f"ERROR: {SOURCE_NAME}:{place.line}:{place.column}: {issue.message}\n{render_snippet(text, place)}"


def _is_wide(char: str) -> bool:
    # cel-go takes every character outside ASCII for a wide one; the pointer should look the same.
    return char > "\x7f"
