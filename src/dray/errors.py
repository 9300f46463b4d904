"""What can go wrong, as one tree of exceptions.

    DrayError                  anything dray raises on purpose
    ├── InputError             the input is broken; nothing was changed (exit code 2)
    │   ├── DecodeError        bytes or documents that are not an object of their kind
    │   ├── InvalidError       an object that breaks the rules of its kind
    │   └── GateError          feature gates that are unknown or contradict each other
    └── AllocationFault        a claim that no search can answer

"No" is never an exception: a check that refuses returns a value with reasons. These are for input that
is broken and for claims that nobody could answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class DrayError(Exception):
    """Base of everything dray raises on purpose."""


class InputError(DrayError):
    """The input is broken; the message names the place and what was expected there."""


class InputProblem(Protocol):
    """One thing wrong with an input: where, and in words."""

    @property
    def path(self) -> str: ...

    def __str__(self) -> str: ...


class DecodeError(InputError):
    """Bytes or documents that are not an object of their kind."""

    def __init__(self, message: str, problems: Sequence[InputProblem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[InputProblem, ...] = tuple(problems)


class InvalidError(InputError):
    """An object that breaks the rules of its kind; carries every broken rule, not only the first."""

    def __init__(self, subject: str, problems: Sequence[InputProblem]) -> None:
        self.subject = subject
        self.problems: tuple[InputProblem, ...] = tuple(problems)
        text = str(problems[0]) if len(problems) == 1 else f"[{', '.join(str(p) for p in problems)}]"
        super().__init__(f"{subject} is invalid: {text}")


class GateError(InputError):
    """Feature gates that are unknown, locked or contradict each other."""


class UnanswerableClaimError(DrayError):
    """A claim that no search can answer: which claim, which of its fields or requests, and why."""

    def __init__(self, why: str, *, claim: str = "", field: str = "") -> None:
        place = (f"claim {claim}" if claim else "", field)
        super().__init__(": ".join(filter(None, (*place, why))))
        self.claim, self.field, self.why = claim, field, why
