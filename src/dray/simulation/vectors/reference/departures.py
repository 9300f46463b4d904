"""Departures: where dray deliberately answers differently from Kubernetes, each with its decision.

A departure that is not built is a feature of Kubernetes that dray does not have yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Departure(StrEnum):
    """One departure; the value is its name in reports."""

    ALL_POOL = "all-sees-flawed-pool"
    ALL_CONSTRAINT = "all-breaks-constraint"
    ALL_LIMIT = "all-over-limit"
    ALL_UNREACHED = "all-judged-when-reached"
    REACHED_ONLY = "reached-devices-only"
    SELECTOR_TERMS = "selector-of-several-terms"
    EXACT_AMOUNTS = "exact-amounts"
    ZERO_STEP = "step-of-zero"
    NO_MIN = "range-without-min"
    BOTH_CONSTRAINTS = "both-constraints"
    NEGATIVE_COUNT = "negative-count"
    NEGATIVE_AMOUNT = "negative-amount"
    BAD_NODE_SELECTOR = "node-selector-without-meaning"
    NO_TYPE = "request-without-type"
    ADMIN_COUNTERS = "admin-draws-no-counters"
    NEGATIVE_DRAWS = "negative-draws"
    HELD_SHARES = "held-shares-count"
    SLICE_COUNT = "slices-disagree"
    WHOLE_POOL = "counters-of-the-whole-pool"
    EMPTY_CONDITIONS = "empty-binding-conditions"
    PRIORITY = "slice-priority"
    LISTS_OFF = "lists-gated"
    SHARING_OFF = "sharing-gated"
    TOLERATIONS_OFF = "tolerations-gated"
    DISTINCT_OFF = "distinct-gated"
    TIME_LIMIT = "time-limit"
    COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
    DERIVED_ATTRIBUTES = "DRADerivedAttributes"
    NODE_OPERATIONS = "DRAOptionalNodeOperations"


@dataclass(frozen=True, slots=True)
class DepartureDecision:
    """What was decided, in a sentence; `built` is false for a feature that dray does not have."""

    text: str
    built: bool = True


_ONE_NODE = (
    "what concerns one node, pool, device or alternative is a refusal there, not the end of the attempt"
)
_GATES = "a field behind a closed gate is as if it were not there"
_DEFECT = "a defect of Kubernetes on an object that the API refuses"
_NOT_BUILT = "a gate of Kubernetes that dray does not have"

DECISIONS: Mapping[Departure, DepartureDecision] = MappingProxyType(
    {
        Departure.ALL_POOL: DepartureDecision(
            "`All` that sees an incomplete or invalid pool is refused on that node, naming the pool; "
            "Kubernetes aborts the attempt"
        ),
        Departure.ALL_CONSTRAINT: DepartureDecision(
            "a violated constraint under `All` fails that alternative, the next one is tried; "
            "Kubernetes aborts the attempt"
        ),
        Departure.ALL_LIMIT: DepartureDecision(
            f"{_ONE_NODE}: how many devices `All` means only a node can tell, so more than 32 is a refusal; "
            "Kubernetes aborts the attempt"
        ),
        Departure.ALL_UNREACHED: DepartureDecision(
            "an error on a device that the search never reaches fails nothing; Kubernetes evaluates all "
            "devices for every `All` alternative before it searches"
        ),
        Departure.REACHED_ONLY: DepartureDecision(
            f"{_ONE_NODE}: a device that the node does not reach is not judged there; Kubernetes evaluates "
            "selectors on it first, and aborts where they fail"
        ),
        Departure.SELECTOR_TERMS: DepartureDecision(
            f"{_ONE_NODE}: a device whose node selector has several terms is refused; "
            "Kubernetes aborts after it has found a solution with it"
        ),
        Departure.EXACT_AMOUNTS: DepartureDecision(
            "C-23: amounts are exact and the grid starts at min; Kubernetes rounds to whole or milli units"
        ),
        Departure.ZERO_STEP: DepartureDecision(
            f"{_DEFECT}: it divides by a step of zero or below; here there is no grid then"
        ),
        Departure.NO_MIN: DepartureDecision(
            f"{_DEFECT}: a range without min panics; here there is no lower end then"
        ),
        Departure.BOTH_CONSTRAINTS: DepartureDecision(
            "C-31: `matchAttribute` and `distinctAttribute` in one constraint are a fault of the claim; "
            "the allocator of Kubernetes takes the first"
        ),
        Departure.NEGATIVE_COUNT: DepartureDecision(
            "a negative count is a fault of the claim; for the allocator of Kubernetes it is none"
        ),
        Departure.NEGATIVE_AMOUNT: DepartureDecision(
            "a negative amount is a fault of the claim; Kubernetes aborts when a device has such a capacity"
        ),
        Departure.BAD_NODE_SELECTOR: DepartureDecision(
            f"{_ONE_NODE}: a node selector without a meaning matches no node; Kubernetes aborts the attempt"
        ),
        Departure.NO_TYPE: DepartureDecision(
            f"{_DEFECT}: a request with neither `exactly` nor `firstAvailable` panics; here it is a fault of "
            "the claim"
        ),
        Departure.ADMIN_COUNTERS: DepartureDecision(
            "adminAccess consumes nothing, so counters that are used up do not refuse it"
        ),
        Departure.NEGATIVE_DRAWS: DepartureDecision(
            "a device that draws less than nothing from a counter draws nothing; in Kubernetes it adds to "
            "what is left"
        ),
        Departure.HELD_SHARES: DepartureDecision(
            "C-26: a device that became dedicated is in use until its last share is gone"
        ),
        Departure.SLICE_COUNT: DepartureDecision(
            "a pool whose slices disagree on `resourceSliceCount` is invalid; in Kubernetes the first one in "
            "input order counts, so that the answer depends on the order of a list"
        ),
        Departure.WHOLE_POOL: DepartureDecision(
            "the counters of a pool are one budget, whatever nodes its slices are for, so all of its slices "
            "are judged; Kubernetes looks no further when the slices for the node are as many as the pool "
            "should have"
        ),
        Departure.EMPTY_CONDITIONS: DepartureDecision(
            "an empty list of binding conditions is none; Kubernetes moves such a pool behind all others"
        ),
        Departure.PRIORITY: DepartureDecision(
            "KEP-5773: pools and slices have priorities; Kubernetes does not know them"
        ),
        Departure.LISTS_OFF: DepartureDecision(
            f"{_GATES}: a list attribute, with DRAListTypeAttributes off; Kubernetes accepts it for the "
            "first device of a constraint"
        ),
        Departure.SHARING_OFF: DepartureDecision(
            f"{_GATES}: `allowMultipleAllocations`, with DRAConsumableCapacity off; selectors of Kubernetes "
            "still see it"
        ),
        Departure.TOLERATIONS_OFF: DepartureDecision(
            f"{_GATES}: tolerations, with DRADeviceTaints off; Kubernetes copies them into results"
        ),
        Departure.DISTINCT_OFF: DepartureDecision(
            "a claim that needs a closed gate is refused by name: `distinctAttribute` belongs to "
            "DRAConsumableCapacity; the allocator of Kubernetes has no switch for it"
        ),
        Departure.TIME_LIMIT: DepartureDecision(
            "Kubernetes ran out of time and has no answer; ours is held against the rules alone"
        ),
        Departure.COMPATIBILITY_GROUPS: DepartureDecision(_NOT_BUILT, built=False),
        Departure.DERIVED_ATTRIBUTES: DepartureDecision(_NOT_BUILT, built=False),
        Departure.NODE_OPERATIONS: DepartureDecision(_NOT_BUILT, built=False),
    }
)
"""Every departure with its decision."""

ALL_DEPARTURES = frozenset(Departure)
"""How dray answers: with all departures."""
