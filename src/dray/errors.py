"""Exceptions of dray, as one tree.

    DrayError                  anything dray raises on purpose
    ├── InputError             the input is broken; nothing was changed (exit code 2)
    │   ├── DecodeError        bytes or documents that do not decode to an object of their kind
    │   ├── InvalidError       an object that fails the validation of its kind
    │   └── GateError          feature gates that are unknown or contradict each other
    └── UnanswerableClaimError a claim that no search can answer

A refusal is not an exception: a check that refuses returns a value with its reasons. Exceptions are for
broken input and for claims that no search can answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class DrayError(Exception):
    """Base class of every exception that dray raises on purpose."""


class InputError(DrayError):
    """The input is broken; the message names the field and what was expected there."""


class InputProblem(Protocol):
    """One thing wrong with an input: its path, and the message as text."""

    @property
    def path(self) -> str: ...

    def __str__(self) -> str: ...


class DecodeError(InputError):
    """Bytes or documents that do not decode to an object of their kind."""

    def __init__(self, message: str, problems: Sequence[InputProblem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[InputProblem, ...] = tuple(problems)


class InvalidError(InputError):
    """An object that fails the validation of its kind; carries every violation, not only the first."""

    def __init__(self, subject: str, problems: Sequence[InputProblem]) -> None:
        self.subject = subject
        self.problems: tuple[InputProblem, ...] = tuple(problems)
        text = str(problems[0]) if len(problems) == 1 else f"[{', '.join(str(p) for p in problems)}]"
        super().__init__(f"{subject} is invalid: {text}")


class GateError(InputError):
    """Feature gates that are unknown, locked or contradict each other."""


class UnanswerableClaimError(DrayError):
    """A claim that no search can answer; names the claim, its field or request, and the reason."""

    def __init__(self, why: str, *, claim: str = "", field: str = "") -> None:
        place = (f"claim {claim}" if claim else "", field)
        super().__init__(": ".join(filter(None, (*place, why))))
        self.claim, self.field, self.why = claim, field, why
