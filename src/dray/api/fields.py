"""Field paths and field errors: where an object breaks a rule, and how.

Theory of operation: validation walks an object and a `FieldPath` side by side. A path is a chain of small
links that becomes text only when there is an error to report, so that walking a valid object costs next to
nothing. Errors carry the error types of Kubernetes, so that clients see the causes they expect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec


class FieldPath(msgspec.Struct, eq=False):
    """The path of a field: `spec.devices[3].attributes[example.com/model]`.

    A msgspec struct, because those are created in half the time of other objects, and a walk creates many.
    """

    step: str | int = ""
    parent: FieldPath | None = None

    def child(self, *names: str) -> FieldPath:
        """Return the path of a named field below this one."""
        path = self
        for name in names:
            path = FieldPath("." + name, path)
        return path

    def index(self, position: int) -> FieldPath:
        """Return the path of an item of the list at this path."""
        return FieldPath(position, self)

    def key(self, key: str) -> FieldPath:
        """Return the path of an entry of the map at this path."""
        return FieldPath(f"[{key}]", self)

    def __str__(self) -> str:
        steps: list[str] = []
        path: FieldPath | None = self
        while path is not None:
            steps.append(path.step if isinstance(path.step, str) else f"[{path.step}]")
            path = path.parent
        return "".join(reversed(steps)).lstrip(".")

    def __repr__(self) -> str:
        return f"Path({str(self)!r})"


ROOT = FieldPath()


class FieldErrorType(StrEnum):
    """The type of a field error; the values are the reasons in a Kubernetes `Status`."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    DUPLICATE = "FieldValueDuplicate"
    NOT_FOUND = "FieldValueNotFound"
    TYPE_INVALID = "FieldValueTypeInvalid"


_PREFIX = {
    FieldErrorType.REQUIRED: "Required value",
    FieldErrorType.INVALID: "Invalid value",
    FieldErrorType.NOT_SUPPORTED: "Unsupported value",
    FieldErrorType.FORBIDDEN: "Forbidden",
    FieldErrorType.TOO_LONG: "Too long",
    FieldErrorType.TOO_MANY: "Too many",
    FieldErrorType.DUPLICATE: "Duplicate value",
    FieldErrorType.NOT_FOUND: "Not found",
    FieldErrorType.TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE = frozenset({FieldErrorType.REQUIRED, FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG})


# --- the broken rule as a value ---


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """A value of another type; both types as messages name them: `a string`, `an integer`."""

    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class MalformedQuantity:
    """A text that is no quantity: what is wrong with it, and what to write instead, where that is known."""

    problem: str
    hint: str


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name that is none of the allowed ones."""

    allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AboveMaximum:
    """An amount above its maximum."""

    maximum: str


@dataclass(frozen=True, slots=True)
class BelowMinimum:
    """An amount below its minimum."""

    minimum: str


@dataclass(frozen=True, slots=True)
class OffGrid:
    """An amount that is not `start` plus a multiple of `step`."""

    start: str
    step: str


@dataclass(frozen=True, slots=True)
class SubrequestReference:
    """A container that names an alternative (`request/subrequest`) where it must name the request."""

    request: str


Violation: TypeAlias = (
    TypeMismatch
    | MalformedQuantity
    | UnknownName
    | AboveMaximum
    | BelowMinimum
    | OffGrid
    | SubrequestReference
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule: the type of error, the path, the value found there and what was expected.

    `detail` is for people. `violation` is the same for programs, for the rules whose parts a program needs:
    no program parses `detail`. Errors with the same text are equal, with or without a violation.
    """

    type: FieldErrorType
    path: str
    value: Any
    detail: str = ""
    violation: Violation | None = field(default=None, compare=False)

    @property
    def body(self) -> str:
        """The message without the path, as in the causes of a `Status`."""
        text = _PREFIX[self.type]
        if self.type not in _WITHOUT_VALUE:
            text += f": {_render_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


def required(path: FieldPath, detail: str = "") -> FieldError:
    """A value is missing."""
    return FieldError(FieldErrorType.REQUIRED, str(path), "", detail)


def invalid(path: FieldPath, value: Any, detail: str, violation: Violation | None = None) -> FieldError:
    """A value that breaks a rule."""
    return FieldError(FieldErrorType.INVALID, str(path), value, detail, violation)


def not_supported(path: FieldPath, value: str, supported: tuple[str, ...]) -> FieldError:
    """A value is none of the supported ones."""
    names = ", ".join(f'"{name}"' for name in sorted(supported))
    detail = f"supported values: {names}"
    return FieldError(FieldErrorType.NOT_SUPPORTED, str(path), value, detail, UnknownName(supported))


def not_found(path: FieldPath, value: str, known: tuple[str, ...], detail: str) -> FieldError:
    """A reference to a name that does not exist."""
    return FieldError(FieldErrorType.NOT_FOUND, str(path), value, detail, UnknownName(known))


def forbidden(path: FieldPath, detail: str) -> FieldError:
    """A field may not be set."""
    return FieldError(FieldErrorType.FORBIDDEN, str(path), "", detail)


def too_long(path: FieldPath, limit: int) -> FieldError:
    """Text or bytes exceed their limit; the value is not repeated."""
    return FieldError(
        FieldErrorType.TOO_LONG, str(path), "<value omitted>", f"may not be more than {limit} bytes"
    )


def too_many(path: FieldPath, count: int, limit: int) -> FieldError:
    """A list has more items than its limit."""
    return FieldError(FieldErrorType.TOO_MANY, str(path), count, f"must have at most {limit} items")


def duplicate(path: FieldPath, value: Any) -> FieldError:
    """A value occurs a second time."""
    return FieldError(FieldErrorType.DUPLICATE, str(path), value)


def _render_value(value: Any) -> str:
    """Render a value as JSON, as people and Kubernetes clients expect it; long values are cut."""
    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 512 else text[:500] + "…"
