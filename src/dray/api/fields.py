"""Where something is wrong in an object, and what: field paths and field errors.

Theory of operation: validation walks an object and a `Path` side by side. A path is a chain of small
links that is only turned into text when there is something to report, so that walking a sound object
costs next to nothing. Errors carry the types of Kubernetes, so that a client sees the causes it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec


class Path(msgspec.Struct, eq=False):
    """A place in an object: `spec.devices[3].attributes[example.com/model]`.

    A struct, because those are made in half the time of other objects, and a walk makes many.
    """

    step: str | int = ""
    parent: Path | None = None

    def field(self, *names: str) -> Path:
        """A named field below this place."""
        path = self
        for name in names:
            path = Path("." + name, path)
        return path

    def index(self, position: int) -> Path:
        """An item of the list at this place."""
        return Path(position, self)

    def key(self, key: str) -> Path:
        """An entry of the map at this place."""
        return Path(f"[{key}]", self)

    def __str__(self) -> str:
        steps: list[str] = []
        path: Path | None = self
        while path is not None:
            steps.append(path.step if isinstance(path.step, str) else f"[{path.step}]")
            path = path.parent
        return "".join(reversed(steps)).lstrip(".")

    def __repr__(self) -> str:
        return f"Path({str(self)!r})"


ROOT = Path()


class Fault(StrEnum):
    """What kind of wrong; the values are the reasons in a Kubernetes `Status`."""

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
    Fault.REQUIRED: "Required value",
    Fault.INVALID: "Invalid value",
    Fault.NOT_SUPPORTED: "Unsupported value",
    Fault.FORBIDDEN: "Forbidden",
    Fault.TOO_LONG: "Too long",
    Fault.TOO_MANY: "Too many",
    Fault.DUPLICATE: "Duplicate value",
    Fault.NOT_FOUND: "Not found",
    Fault.TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE = frozenset({Fault.REQUIRED, Fault.FORBIDDEN, Fault.TOO_LONG})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule: the kind of fault, the place, the value found there and what was expected."""

    fault: Fault
    path: str
    value: Any
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the place, as in the causes of a `Status`."""
        text = _PREFIX[self.fault]
        if self.fault not in _WITHOUT_VALUE:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


def required(path: Path, detail: str = "") -> FieldError:
    """Something must be here."""
    return FieldError(Fault.REQUIRED, str(path), "", detail)


def invalid(path: Path, value: Any, detail: str) -> FieldError:
    """What is here breaks a rule."""
    return FieldError(Fault.INVALID, str(path), value, detail)


def not_supported(path: Path, value: str, supported: tuple[str, ...]) -> FieldError:
    """What is here is none of the known values."""
    names = ", ".join(f'"{name}"' for name in sorted(supported))
    return FieldError(Fault.NOT_SUPPORTED, str(path), value, f"supported values: {names}")


def forbidden(path: Path, detail: str) -> FieldError:
    """Nothing may be here."""
    return FieldError(Fault.FORBIDDEN, str(path), "", detail)


def too_long(path: Path, limit: int) -> FieldError:
    """Text or bytes beyond their limit; the value is not repeated."""
    return FieldError(Fault.TOO_LONG, str(path), "<value omitted>", f"may not be more than {limit} bytes")


def too_many(path: Path, count: int, limit: int) -> FieldError:
    """More items than the limit."""
    return FieldError(Fault.TOO_MANY, str(path), count, f"must have at most {limit} items")


def duplicate(path: Path, value: Any) -> FieldError:
    """The same thing a second time."""
    return FieldError(Fault.DUPLICATE, str(path), value)


def _shown(value: Any) -> str:
    """A value as people and Kubernetes clients read it: JSON, cut when long."""
    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 512 else text[:500] + "…"
