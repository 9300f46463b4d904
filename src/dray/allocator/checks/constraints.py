"""Constraint checks: devices that must have a value in common, and devices that must not.

A *match* constraint holds while one value is common to all devices taken so far; its fact is the set of
values that are still common. A *distinct* constraint holds while no two devices have a value in common; its
fact is the set of values taken. Both only ever get harder to meet.
"""

from __future__ import annotations

from dray.allocator.partial_solution import AttributeValues, PartialSolution
from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason
from dray.allocator.requests import ClaimConstraint


def check(solution: PartialSolution, constraint: ClaimConstraint, values: AttributeValues) -> Refusal | None:
    """Refuse a device whose values violate the constraint."""
    if not values:
        return Refusal(RefusalReason.ATTRIBUTE_MISSING, constraint.attribute)
    pinned = solution.constraint_values.get(constraint)
    if pinned is None or pinned.isdisjoint(values) is constraint.distinct:
        return None
    return Refusal(
        RefusalReason.CONSTRAINT,
        ConstraintConflict(constraint.attribute, constraint.distinct, values, pinned),
    )


def take(solution: PartialSolution, constraint: ClaimConstraint, values: AttributeValues) -> None:
    """Record the values that are common, or taken, from now on."""
    table = solution.constraint_values
    pinned = table.get(constraint)
    if pinned is not None:
        values = pinned | values if constraint.distinct else pinned & values
    solution.assign(table, constraint, values)
