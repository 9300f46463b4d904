"""Actions on claims: what a controller should do, as values, one write or one event each.

An action names the version of the object it was decided on. The controller sends that version to the server,
so that an outdated action fails and is decided again.
"""

from __future__ import annotations

from dataclasses import dataclass

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.resource import ConsumerReference, ResourceClaim

AnyClaim = ResourceClaim | ClassicResourceClaim


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create the claim of an entry of a pod."""

    pod: Pod
    entry: str
    claim: AnyClaim


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Record the claim of each entry in the status of a pod; None: it needs none."""

    pod: Pod
    names: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class ReserveClaim:
    """Reserve an allocated claim for a consumer."""

    claim: ResourceClaim
    consumer: ConsumerReference


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Remove consumers from a claim; with the last of them it is deallocated."""

    claim: AnyClaim
    uids: frozenset[str]
    deallocate: bool


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the finalizer of a claim; `uids` are consumers to remove with it."""

    claim: ResourceClaim
    uids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a claim that was created for a pod that is finished or gone."""

    claim: AnyClaim


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Emit an event about a pod or a claim."""

    about: Pod | AnyClaim
    reason: str
    text: str
    warning: bool = True


ClaimWrite = CreateClaim | RecordClaims | ReserveClaim | ReleaseClaim | RemoveFinalizer | DeleteClaim
"""The actions that write an object."""
ClaimAction = ClaimWrite | EmitEvent
