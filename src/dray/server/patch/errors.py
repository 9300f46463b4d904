"""Why a patch was refused: it cannot be read, it cannot be applied, or somebody else owns the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

BAD_REQUEST: Final = 400
CONFLICT: Final = 409
TOO_LARGE: Final = 413
UNPROCESSABLE: Final = 422

CANNOT_APPLY: Final = "the server rejected our request due to an error in our request"
"""How Kubernetes begins when a patch is well-formed and does not fit the object."""


class PatchError(Exception):
    """A patch that is not applied, with the code of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def build_malformed(message: str) -> PatchError:
    """The patch itself is wrong, whatever it is applied to."""
    return PatchError(BAD_REQUEST, message)


def build_inapplicable(detail: str) -> PatchError:
    """The patch is in order and does not fit this object."""
    return PatchError(UNPROCESSABLE, f"{CANNOT_APPLY}: {detail}")


class FieldConflict(NamedTuple):
    """One field that an apply would take from somebody."""

    owner: str
    """Who owns it, as Kubernetes names them: `"kubectl" using v1`."""
    path: str


class ApplyConflictError(PatchError):
    """An apply without force that would change fields of others."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        super().__init__(CONFLICT, _format_conflicts(conflicts))
        self.conflicts = tuple(conflicts)

    @property
    def build_causes(self) -> list[dict[str, str]]:
        """`details.causes` of the answer."""
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
