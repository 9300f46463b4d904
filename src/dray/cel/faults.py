"""Faults of expressions: values for callers, exceptions inside the package.

Theory of operation: while an expression runs, an error of CEL is raised as `CelError`; the logical operators
and quantifiers may absorb it. `BudgetError` is not an error of the expression and is never absorbed. Neither
leaves the package: callers get a `CompileFault` or an `EvalFault`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dray.cel.source import ExpressionIssue, ExpressionPosition, locate_offset, render_issue

BUDGET_MESSAGE = "operation cancelled: actual cost limit exceeded"


class CompileStage(StrEnum):
    """How far compiling came before it failed."""

    CHECK = "check"
    """The text does not parse, does not type, or has a literal that cannot be right."""
    PLAN = "plan"
    """A constant part of the expression fails whenever it is evaluated."""
    INTERNAL = "internal"
    """A bug in this package, not in the expression."""


class FaultKind(StrEnum):
    """Why an evaluation has no value."""

    ERROR = "error"
    """CEL defines the result as an error."""
    BUDGET = "budget"
    """The evaluation exceeded its cost limit."""
    INTERNAL = "internal"
    """A bug in this package, not in the expression."""


class ErrorReason(StrEnum):
    """Which error of CEL an evaluation ended with, where a program needs to know."""

    OTHER = "other"
    NO_SUCH_KEY = "no such key"
    NO_SUCH_OVERLOAD = "no such overload"
    NOT_BOOLEAN = "not boolean"
    """The value is no boolean where one is required."""


@dataclass(frozen=True, slots=True)
class CompileFault:
    """An expression that cannot be used, with every issue found, in the order of the text."""

    text: str
    issues: tuple[ExpressionIssue, ...]
    stage: CompileStage = CompileStage.CHECK

    def __str__(self) -> str:
        if self.stage is CompileStage.PLAN:
            return "\n".join(issue.message for issue in self.issues)
        return "\n".join(render_issue(self.text, issue) for issue in self.issues)

    @property
    def position(self) -> ExpressionPosition:
        """Where the first issue is."""
        return locate_offset(self.text, self.issues[0].offset)


@dataclass(frozen=True, slots=True)
class EvalFault:
    """An evaluation without a value: why, and where in the expression."""

    message: str
    kind: FaultKind = FaultKind.ERROR
    text: str = ""
    offset: int | None = None
    reason: ErrorReason = ErrorReason.OTHER

    def __str__(self) -> str:
        return self.message

    @property
    def position(self) -> ExpressionPosition | None:
        """Where in the expression it happened, when that is known."""
        return None if self.offset is None else locate_offset(self.text, self.offset)


class CelError(Exception):
    """An error of the expression; the operators `&&` and `||` may absorb it."""

    def __init__(
        self, message: str, offset: int | None = None, reason: ErrorReason = ErrorReason.OTHER
    ) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.reason = reason


class BudgetError(Exception):
    """The cost limit is reached; nothing absorbs this."""


class RejectedError(Exception):
    """Compiling cannot go on; carries the issues found so far."""

    def __init__(self, issues: tuple[ExpressionIssue, ...], stage: CompileStage = CompileStage.CHECK) -> None:
        super().__init__(issues[0].message)
        self.issues = issues
        self.stage = stage


def make_overload_error(function: str = "", arguments: str = "") -> CelError:
    """The error of a function that does not exist for the values it was given."""
    message = f"no such overload: {function}({arguments})" if function else "no such overload"
    return CelError(message, reason=ErrorReason.NO_SUCH_OVERLOAD)


def make_key_error(key: str) -> CelError:
    """The error of a key that a map does not have; the key as messages show it."""
    return CelError(f"no such key: {key}", reason=ErrorReason.NO_SUCH_KEY)
