"""Small words: lists, numbers, texts that came from outside."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 72


def plain(text: str, longest: int = 0) -> str:
    """A text on one line, without characters that do not print; cut where it is longer than allowed."""
    line = " ".join(text.split())
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    return line if not longest or len(line) <= longest else line[: longest - 1] + "…"


def joined(names: Sequence[str], most: int = 0) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b and 3 more`."""
    if most and len(names) > most:
        return f"{', '.join(names[: most - 1])} and {counted(len(names) - most + 1)} more"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, noun: str) -> str:
    """`1 device`, `2 devices`, `4,000 devices`."""
    return f"{counted(count)} {noun}" if count == 1 else f"{counted(count)} {noun}s"


def counted(count: int) -> str:
    """A number as people read it."""
    return f"{count:,}"


def amount_of_work(steps: int, seconds: float) -> str:
    """How much work a search did: `1 s of work`, or its steps where nobody measured time.

    Rounded, so that two searches that were given the same time read the same.
    """
    if not seconds:
        return plural(steps, "step")
    if seconds < 0.1:
        return "less than 0.1 s of work"
    return f"{seconds:.1f} s of work" if round(seconds, 1) < 1 else f"{counted(round(seconds))} s of work"


def how_far(steps: int, seconds: float, found: int, wanted: int, request: str = "") -> str:
    """How far a search came that was given up."""
    text = f"after {amount_of_work(steps, seconds)}, with at most {found} of {plural(wanted, 'device')} found"
    return f"{text} and none left for request `{request}`" if request else text
