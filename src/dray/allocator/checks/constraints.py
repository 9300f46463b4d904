"""Rules across picks: devices that must share a value, and devices that must not.

Values are typed and a scalar is a set of one. *Match* holds while one value is common to all devices
picked so far: the fact is what is still common. *Distinct* holds while no two devices have a value in
common: the fact is what is taken. Both only ever get harder to meet.
"""

from __future__ import annotations

from typing import Any

from dray.allocator.partial_solution import PartialSolution
from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason
from dray.allocator.requests import ClaimConstraint

AttributeValues = frozenset[tuple[str, Any]]


def check(solution: PartialSolution, constraint: ClaimConstraint, values: AttributeValues) -> Refusal | None:
    """Whether a device with these values breaks the rule."""
    if not values:
        return Refusal(RefusalReason.ATTRIBUTE_MISSING, constraint.attribute)
    pinned: AttributeValues | None = solution.facts.get(constraint)
    if pinned is None or pinned.isdisjoint(values) is constraint.distinct:
        return None
    return Refusal(
        RefusalReason.CONSTRAINT,
        ConstraintConflict(constraint.attribute, constraint.distinct, values, pinned),
    )


def take(solution: PartialSolution, constraint: ClaimConstraint, values: AttributeValues) -> None:
    """Note what is common, or what is taken, from now on."""
    pinned: AttributeValues | None = solution.facts.get(constraint)
    if pinned is None:
        solution.set_fact(constraint, values)
    else:
        solution.set_fact(constraint, pinned | values if constraint.distinct else pinned & values)
