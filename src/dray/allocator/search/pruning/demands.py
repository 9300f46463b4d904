"""Demands: the alternatives of requests, in the integers of the pruning model."""

from __future__ import annotations

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.requests import ClaimConstraint, RequestAlternative, RequestChoice
from dray.allocator.search.candidates import CandidateSet


class Demand:
    """One alternative of a request: how many devices, out of which, and what a device of it costs."""

    __slots__ = (
        "admin",
        "alternative",
        "claim_index",
        "constraint_mask",
        "constraints",
        "count",
        "is_all",
        "kind",
        "mask",
        "name",
        "possible",
        "shares",
        "weight",
    )

    def __init__(
        self,
        choice: RequestChoice,
        alternative: RequestAlternative,
        candidates: CandidateSet,
        shape: NodeShape,
        constraint_numbers: dict[ClaimConstraint, int],
    ):
        self.claim_index = choice.claim_index
        self.alternative = alternative
        self.name = alternative.name
        self.admin = alternative.admin
        self.is_all = alternative.takes_all
        self.constraints = tuple(constraint_numbers[constraint] for constraint in alternative.constraints)
        self.constraint_mask = sum(1 << constraint for constraint in self.constraints)
        self.shares = self.kind = self.weight = -1
        taken = 0 if alternative.admin else shape.taken
        if alternative.takes_all:
            self.mask = candidates.matching
            self.count = self.mask.bit_count()
            refused = self.mask & (~candidates.mask | taken)
            self.possible = bool(self.count) and not refused and not shape.flaws
        else:
            self.mask = candidates.mask & ~taken
            self.count = alternative.count
            self.possible = True

    def covers(self, other: Demand) -> bool:
        """Whether this alternative can be met wherever another alternative of the same request can."""
        return (
            not self.is_all
            and self.possible
            and self.admin == other.admin
            and self.count <= other.count
            and not other.mask & ~self.mask
            and self.shares == other.shares
            and set(self.constraints) <= set(other.constraints)
        )


def drop_dominated(alternatives: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """Alternatives without those that can only be met where another one can be met as well."""
    kept: list[Demand] = []
    for demand in alternatives:
        if demand.possible and not any(other.covers(demand) for other in kept):
            kept = [other for other in kept if not demand.covers(other)]
            kept.append(demand)
    return tuple(kept)
