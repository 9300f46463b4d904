"""What a check can come to: yes, no with a reason, or that it was not tried.

A check is a walk of several calls, and any of them may show that the driver is wrong: it then raises
`NotConformantError`, and `CheckSkippedError` when something it needs is missing. Whoever runs checks makes
outcomes of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dray.errors import DrayError


class ConformanceVerdict(StrEnum):
    """What came of a check."""

    YES = "yes"
    NO = "no"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class ConformanceResult:
    """A check and what came of it; a hint says what would help."""

    check: str
    verdict: ConformanceVerdict
    why: str = ""
    hint: str = ""
    title: str = ""
    """What is true of a good driver."""


class NotConformantError(DrayError):
    """The driver did what a driver may not do."""


class CheckSkippedError(DrayError):
    """Something that a check needs is missing."""
