"""What a pod hears about its claims: ready, refused by a rule, or waiting for somebody.

All three are values. A refusal names the rule that speaks, waiting names who has to do something first; both
have a word for the pod's status and a sentence for the person who reads it at night.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEVICE_GONE_TEXT: Final = "device gone"
"""What the error of a driver says when an allocated device is not there any more."""


class NotReadyReason(StrEnum):
    """Why a pod's claims are not ready, or not given back: the word in the pod's status."""

    STATIC_POD = "StaticPodWithClaims"
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_NOT_MADE = "ClaimNotMade"
    CLAIM_NOT_OWNED = "ClaimNotOwned"
    CLAIM_DELETED = "ClaimBeingDeleted"
    NOT_ALLOCATED = "ClaimNotAllocated"
    NOT_RESERVED = "ClaimNotReserved"
    OTHER_NODE = "ClaimOnOtherNode"
    ALLOCATED_ANEW = "ClaimAllocatedAnew"
    DEVICE_HELD = "DeviceHeld"

    CLAIM_UNREAD = "ClaimNotReadable"
    NOT_RECORDED = "CheckpointNotWritten"
    NOT_ANNOUNCED = "PreparationNotWritten"
    GIVEN_BACK_FIRST = "ClaimBeingReleased"
    DRIVER_MISSING = "DriverNotRegistered"
    PREPARE_FAILED = "PrepareFailed"
    DEVICE_GONE = "DeviceGone"
    UNPREPARE_FAILED = "UnprepareFailed"


@dataclass(frozen=True, slots=True)
class ClaimsReady:
    """All claims of the pod are prepared: its containers may start."""


@dataclass(frozen=True, slots=True)
class ClaimsRefused:
    """A rule says that the pod must not run here as things are."""

    reason: NotReadyReason
    message: str

    @property
    def is_final(self) -> bool:
        """Whether nothing that could happen would change it: the pod has failed."""
        return self.reason is NotReadyReason.STATIC_POD


@dataclass(frozen=True, slots=True)
class ClaimsPending:
    """Somebody has to do something first: a driver, the server, another pod. Worth trying again."""

    reason: NotReadyReason
    message: str
