"""Outcomes of preparing a pod's claims: ready, refused by a rule, or pending.

All three are values. A refusal names the rule, a pending outcome names who has to act first; both have a
reason for the pod's status and a message for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEVICE_GONE_TEXT: Final = "device gone"
"""Part of a driver's error text when an allocated device does not exist any more."""


class NotReadyReason(StrEnum):
    """Why a pod's claims are not prepared or not released: the reason in the pod's status."""

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
    """A rule forbids the pod to run here now."""

    reason: NotReadyReason
    message: str

    @property
    def is_final(self) -> bool:
        """Whether no retry can succeed, so that the pod fails."""
        return self.reason is NotReadyReason.STATIC_POD


@dataclass(frozen=True, slots=True)
class ClaimsPending:
    """A driver, the server or another pod has to act first; a retry may succeed."""

    reason: NotReadyReason
    message: str
