"""What a check can come to: yes, no with a reason, or that it was not tried.

A check is a walk of several calls, and any of them may show that the driver is wrong: it then raises `Wrong`,
and `NotTried` when something it needs is missing. Whoever runs checks makes outcomes of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dray.errors import DrayError


class Verdict(StrEnum):
    """What came of a check."""

    YES = "yes"
    NO = "no"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check and what came of it; a hint says what would help."""

    check: str
    verdict: Verdict
    why: str = ""
    hint: str = ""
    title: str = ""
    """What is true of a good driver."""


class Wrong(DrayError):  # noqa: N818 - what is the case
    """The driver did what a driver may not do."""


class NotTried(DrayError):  # noqa: N818 - what is the case
    """Something that a check needs is missing."""
