"""The referee's verdict on allocations made together: every rule, asked once of each claim and of all."""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.verify import allocation_fields, claim_rules, cross_claim_rules
from dray.allocator.verify.available_devices import lending
from dray.allocator.verify.claim_case import Case
from dray.allocator.verify.findings import Finding, Given, Rule
from dray.api.resource import AllocationResult, ResourceClaim


def verify(
    given: Given, asking: Sequence[ResourceClaim], allocations: Sequence[AllocationResult]
) -> tuple[Finding, ...]:
    """Everything wrong with the allocations of these claims; nothing when they are sound."""
    if len(asking) != len(allocations):
        text = f"{len(asking)} claims have {len(allocations)} allocations; expected one each"
        return (Finding(Rule.CLAIMS, "", text),)
    lent = lending(given)
    cases = [Case(given, lent, *pair) for pair in zip(asking, allocations, strict=True)]
    found = [
        finding
        for case in cases
        for rule in (*claim_rules.RULES, *allocation_fields.RULES)
        for finding in rule(case)
    ]
    return (*found, *cross_claim_rules.together(given, lent, cases))
