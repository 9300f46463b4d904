"""Demands: the alternatives of requests as pruning looks at them."""

from __future__ import annotations

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.requests import Choice, Rule, Want
from dray.allocator.search.candidates import Options


class Demand:
    """One alternative of a request: how many devices, out of which, and what a device of it costs."""

    __slots__ = (
        "admin",
        "claim",
        "count",
        "is_all",
        "kind",
        "mask",
        "name",
        "possible",
        "rule_mask",
        "rules",
        "shares",
        "want",
        "weight",
    )

    def __init__(self, choice: Choice, want: Want, options: Options, shape: Shape, rules: dict[Rule, int]):
        self.claim = choice.claim
        self.want = want
        self.name = want.name
        self.admin = want.admin
        self.is_all = want.wants_all
        self.rules = tuple(rules[rule] for rule in want.rules)
        self.rule_mask = sum(1 << rule for rule in self.rules)
        self.shares = self.kind = self.weight = -1
        taken = 0 if want.admin else shape.taken
        if want.wants_all:
            self.mask = options.suiting
            self.count = self.mask.bit_count()
            refused = self.mask & (~options.mask | taken)
            self.possible = bool(self.count) and not refused and not shape.flaws
        else:
            self.mask = options.mask & ~taken
            self.count = want.count
            self.possible = True

    def covers(self, other: Demand) -> bool:
        """Whether this alternative can be had wherever another alternative of the same request can."""
        return (
            not self.is_all
            and self.possible
            and self.admin == other.admin
            and self.count <= other.count
            and not other.mask & ~self.mask
            and self.shares == other.shares
            and set(self.rules) <= set(other.rules)
        )


def drop_dominated(alternatives: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """Alternatives without those that can only be had where another one can be had as well."""
    kept: list[Demand] = []
    for demand in alternatives:
        if demand.possible and not any(other.covers(demand) for other in kept):
            kept = [other for other in kept if not demand.covers(other)]
            kept.append(demand)
    return tuple(kept)
