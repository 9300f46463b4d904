"""What a controller should do about claims, as values: one write or one word each.

An action says what to do on which version of an object it was decided. Whoever performs it names that version
to the server, so that an action that was overtaken fails and is decided again.
"""

from __future__ import annotations

from dataclasses import dataclass

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.resource import ConsumerReference, ResourceClaim

AnyClaim = ResourceClaim | ClassicResourceClaim


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Make the claim of a pod's entry."""

    pod: Pod
    entry: str
    claim: AnyClaim


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Write into a pod's status which claim each of its entries stands for; None: none is needed."""

    pod: Pod
    names: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class ReserveClaim:
    """Let a consumer use a claim that has its devices."""

    claim: ResourceClaim
    consumer: ConsumerReference


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Take consumers from a claim; with the last of them go the devices."""

    claim: AnyClaim
    uids: frozenset[str]
    deallocate: bool


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the finalizer that kept a claim while it had devices; `uids` are consumers that go with it."""

    claim: ResourceClaim
    uids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a claim that was made for a pod which is over."""

    claim: AnyClaim


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell people about a pod or claim, as an event."""

    about: Pod | AnyClaim
    reason: str
    text: str
    warning: bool = True


ClaimAction = (
    CreateClaim | RecordClaims | ReserveClaim | ReleaseClaim | RemoveFinalizer | DeleteClaim | EmitEvent
)
