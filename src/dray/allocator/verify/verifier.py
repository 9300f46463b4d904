"""Verification of allocations made together: applies every rule to each claim and to all of them."""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.verify import allocation_fields, claim_rules, cross_claim_rules
from dray.allocator.verify.available_devices import find_available_devices
from dray.allocator.verify.claim_case import ClaimCase
from dray.allocator.verify.findings import AllocationFinding, AllocationRule, VerificationInput
from dray.api.resource import AllocationResult, ResourceClaim


def verify(
    inputs: VerificationInput,
    claims_to_check: Sequence[ResourceClaim],
    allocations: Sequence[AllocationResult],
) -> tuple[AllocationFinding, ...]:
    """Everything wrong with the allocations of these claims; nothing when they are sound."""
    if len(claims_to_check) != len(allocations):
        text = f"{len(claims_to_check)} claims have {len(allocations)} allocations; expected one each"
        return (AllocationFinding(AllocationRule.CLAIMS, "", text),)
    lent = find_available_devices(inputs)
    cases = [ClaimCase(inputs, lent, *pair) for pair in zip(claims_to_check, allocations, strict=True)]
    found = [
        finding
        for case in cases
        for constraint in (*claim_rules.RULES, *allocation_fields.RULES)
        for finding in constraint(case)
    ]
    return (*found, *cross_claim_rules.check_all(inputs, lent, cases))
