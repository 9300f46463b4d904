"""Results of conformance checks: yes, no with a reason, or not tried, at one of two levels.

A check makes several calls, and any of them may show that the driver does not conform: the check then raises
`NotConformantError`, and `CheckSkippedError` when something it needs is missing. The suite turns both into
results.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dray.errors import DrayError


class ConformanceLevel(StrEnum):
    """Whether agents depend on a property, or are only better off with it."""

    REQUIRED = "required"
    """By the protocol: a kubelet makes such calls, and needs these answers."""
    ADVISED = "advised"
    """Stricter than the protocol: it protects devices and nodes when something else goes wrong."""


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
    level: ConformanceLevel = ConformanceLevel.REQUIRED
    expected: str = ""
    """What a conformant driver would have answered or done, of a check that failed."""
    found: str = ""
    """What the driver answered or did instead."""


class NotConformantError(DrayError):
    """The driver does not conform: what it did, and what it should have done."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found}; expected {expected}")
        self.found = found
        self.expected = expected


class CheckSkippedError(DrayError):
    """Something that a check needs is missing."""
