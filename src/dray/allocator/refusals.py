"""Refusals: why a candidate, a pool or an alternative is not taken, as typed values.

Theory of operation: a check returns a `Refusal` or None. A refusal has the reason and the details that a
message needs. `explain` writes the message later, from the table here, so that a refusal costs next to
nothing during the search.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class RefusalReason(StrEnum):
    """Every rule that can refuse, in the order of explanation."""

    UNSUITED = "Unsuited"
    BROKEN_SELECTOR = "BrokenSelector"
    IN_USE = "InUse"
    TAKEN_HERE = "TakenHere"
    CAPACITY_MISSING = "CapacityMissing"
    CAPACITY_POLICY = "CapacityPolicy"
    CAPACITY_SHORT = "CapacityShort"
    CAPACITY_UNREPRESENTABLE = "CapacityUnrepresentable"
    COUNTER_SHORT = "CounterShort"
    TAINTED = "Tainted"
    NODE_SELECTOR = "NodeSelector"
    ATTRIBUTE_MISSING = "AttributeMissing"
    CONSTRAINT = "ConstraintViolated"
    TOO_MANY_DEVICES = "TooManyDevices"
    NOTHING_MATCHES = "NothingMatches"
    TOO_FEW = "TooFew"
    POOL_INCOMPLETE = "PoolIncomplete"
    POOL_INVALID = "PoolInvalid"
    POOL_UNKNOWN_FIELDS = "PoolUnknownFields"
    BINDING_CONDITIONS = "BindingConditions"
    COUNTERS_OFF = "CountersOff"
    LEADS_NOWHERE = "LeadsNowhere"


REASON_TEXTS: dict[RefusalReason, str] = {
    RefusalReason.UNSUITED: "a selector is false",
    RefusalReason.BROKEN_SELECTOR: "a selector fails on the device",
    RefusalReason.IN_USE: "in use",
    RefusalReason.TAKEN_HERE: "taken by another request of the same pod",
    RefusalReason.CAPACITY_MISSING: "has no such capacity",
    RefusalReason.CAPACITY_POLICY: "its policy does not allow that amount",
    RefusalReason.CAPACITY_SHORT: "not enough capacity left",
    RefusalReason.CAPACITY_UNREPRESENTABLE: "the amount is beyond what a range can hold",
    RefusalReason.COUNTER_SHORT: "shared counters are used up",
    RefusalReason.TAINTED: "tainted",
    RefusalReason.NODE_SELECTOR: "its node selector has several terms",
    RefusalReason.ATTRIBUTE_MISSING: "lacks the attribute of a constraint",
    RefusalReason.CONSTRAINT: "violates a constraint",
    RefusalReason.TOO_MANY_DEVICES: "more devices than a claim may hold",
    RefusalReason.NOTHING_MATCHES: "no device matches",
    RefusalReason.TOO_FEW: "not enough devices",
    RefusalReason.POOL_INCOMPLETE: "pool is incomplete",
    RefusalReason.POOL_INVALID: "pool is invalid",
    RefusalReason.POOL_UNKNOWN_FIELDS: "pool has fields that this dray does not understand",
    RefusalReason.BINDING_CONDITIONS: (
        "needs binding conditions, but feature gate DRADeviceBindingConditions is off"
    ),
    RefusalReason.COUNTERS_OFF: (
        "draws from shared counters, but feature gate DRAPartitionableDevices is off"
    ),
    RefusalReason.LEADS_NOWHERE: "of no use: too little is left for the rest then",
}
"""What each reason says. What would help is computed and proved: see `explain.remedies`."""


POOL_REASONS = frozenset(
    {RefusalReason.POOL_INCOMPLETE, RefusalReason.POOL_INVALID, RefusalReason.POOL_UNKNOWN_FIELDS}
)
"""Why a whole pool offers no devices."""


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The reason of a refusal, and the details that a message needs."""

    reason: RefusalReason
    detail: Any = None


class ConstraintConflict(msgspec.Struct, frozen=True, gc=False):
    """A violated constraint: its attribute, the values of the candidate and those taken before."""

    attribute: str
    distinct: bool
    found: frozenset[tuple[str, Any]]
    wanted: frozenset[tuple[str, Any]]


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """An amount that is missing; nanos for quantities, a plain number for devices."""

    name: str
    wanted: int
    left: int
