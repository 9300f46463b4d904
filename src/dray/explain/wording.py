"""Wording shared by all text output: lists, numbers, and text from outside on one line."""

from __future__ import annotations

from collections.abc import Sequence

MAX_TEXT_LENGTH = 72


def to_single_line(text: str, max_length: int = 0) -> str:
    """A text on one line, without unprintable characters, and cut to the maximal length."""
    line = " ".join(text.split())
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    return line if not max_length or len(line) <= max_length else line[: max_length - 1] + "…"


def join_names(names: Sequence[str], max_names: int = 0) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b and 3 more`."""
    if max_names and len(names) > max_names:
        return f"{', '.join(names[: max_names - 1])} and {format_count(len(names) - max_names + 1)} more"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def pluralize(count: int, noun: str) -> str:
    """`1 device`, `2 devices`, `4,000 devices`."""
    return f"{format_count(count)} {noun}" if count == 1 else f"{format_count(count)} {noun}s"


def format_count(count: int) -> str:
    """A number with separators of thousands."""
    return f"{count:,}"


def format_work(steps: int, seconds: float) -> str:
    """How much work a search did: `1 s of work`, or its steps where time was not measured.

    Rounded, so that two searches with the same time limit read the same.
    """
    if not seconds:
        return pluralize(steps, "step")
    if seconds < 0.1:
        return "less than 0.1 s of work"
    return (
        f"{seconds:.1f} s of work" if round(seconds, 1) < 1 else f"{format_count(round(seconds))} s of work"
    )


def describe_progress(steps: int, seconds: float, found: int, wanted: int, request: str = "") -> str:
    """How far a search got before it was given up."""
    text = f"after {format_work(steps, seconds)}, with at most {found} of {pluralize(wanted, 'device')} found"
    return f"{text} and none left for request `{request}`" if request else text
