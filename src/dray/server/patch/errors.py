"""Errors of patches: malformed, not applicable, or in conflict with another field manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dray.errors import DrayError

BAD_REQUEST: Final = 400
CONFLICT: Final = 409
TOO_LARGE: Final = 413
UNPROCESSABLE: Final = 422

CANNOT_APPLY: Final = "the server rejected our request due to an error in our request"
"""The prefix of Kubernetes for a well-formed patch that does not fit the object."""


class PatchError(DrayError):
    """A patch that is not applied, with the code of the response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def build_malformed(message: str) -> PatchError:
    """Build the error of a patch that is malformed, whatever it is applied to."""
    return PatchError(BAD_REQUEST, message)


def build_inapplicable(detail: str) -> PatchError:
    """Build the error of a well-formed patch that does not fit this object."""
    return PatchError(UNPROCESSABLE, f"{CANNOT_APPLY}: {detail}")


class FieldConflict(NamedTuple):
    """One field that an apply would take from another manager."""

    owner: str
    """The owner, as Kubernetes names it: `"kubectl" using v1`."""
    path: str


class ApplyConflictError(PatchError):
    """An apply without force that would change fields of other managers."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        super().__init__(CONFLICT, _format_conflicts(conflicts))
        self.conflicts = tuple(conflicts)

    @property
    def build_causes(self) -> list[dict[str, str]]:
        """Return `details.causes` of the response."""
        return [
            {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": path}
            for owner, path in self.conflicts
        ]


def _format_conflicts(conflicts: Sequence[FieldConflict]) -> str:
    if len(conflicts) == 1:
        owner, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {owner}: {path}"
    by_owner: dict[str, list[str]] = {}
    for owner, path in conflicts:
        by_owner.setdefault(owner, []).append(f"- {path}")
    lines = [line for owner in sorted(by_owner) for line in (f"conflicts with {owner}:", *by_owner[owner])]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
