"""Results of conformance checks: yes, no with a reason, or not tried.

A check makes several calls, and any of them may show that the driver does not conform: the check then raises
`NotConformantError`, and `CheckSkippedError` when something it needs is missing. The suite turns both into
results.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dray.errors import DrayError


class ConformanceVerdict(StrEnum):
    """The verdict of a check."""

    YES = "yes"
    NO = "no"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class ConformanceResult:
    """The result of a check; the hint says what would help."""

    check: str
    verdict: ConformanceVerdict
    why: str = ""
    hint: str = ""
    title: str = ""
    """What is true of a conformant driver."""


class NotConformantError(DrayError):
    """The driver does not conform."""


class CheckSkippedError(DrayError):
    """Something that a check needs is missing."""
