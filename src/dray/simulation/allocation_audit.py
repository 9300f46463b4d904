"""An audit: every allocation that claims already have, before the verifier.

Each claim is evaluated as if it were allocated last: all others hold what they hold. So a device that two
claims have is a finding on both. The node is the one where a consumer of the claim runs, else the first that
the allocation's node selector allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.requests import format_claim_name
from dray.allocator.verify import AllocationFinding, VerificationInput, verify
from dray.api.core import Node
from dray.api.devices.taint_rules import apply_taint_rules_to_all
from dray.api.resource import AllocationResult, ResourceClaim
from dray.errors import UnanswerableClaimError
from dray.simulation.bundle import Bundle

INVALID = "Invalid"
"""The rule of a claim that an API server would refuse; nothing else is evaluated about it then."""


@dataclass(frozen=True, slots=True)
class AuditedClaim:
    """A claim with devices, the node it was evaluated from, and everything wrong with it."""

    claim: ResourceClaim
    node: Node | None
    problems: tuple[str, ...]
    rules: tuple[str, ...] = ()


def audit_bundle(bundle: Bundle, gate_filter: AllocatorGateFilter) -> Iterator[AuditedClaim]:
    """Verify every allocated claim of a bundle."""
    slices = tuple(
        apply_taint_rules_to_all(
            gate_filter.admit_slices(bundle.slices), gate_filter.admit_taint_rules(bundle.rules)
        )
    )
    evaluator = gate_filter.build_selector_evaluator()
    held = [claim for claim in bundle.claims if claim.status.allocation is not None]
    invalid = {id(each.object): each for each in bundle.invalid}
    for claim in held:
        if id(claim) in invalid:
            problems = tuple(str(problem) for problem in invalid[id(claim)].problems)
            yield AuditedClaim(claim, None, problems, (INVALID,) * len(problems))
            continue
        allocation = claim.status.allocation
        assert allocation is not None
        node = _find_node(bundle, claim, allocation)
        if node is None:
            yield AuditedClaim(
                claim, None, ("none of the nodes satisfies its node selector",), ("NodeSelector",)
            )
            continue
        others = tuple(other for other in held if other is not claim)
        try:
            (admitted,) = gate_filter.admit_claims([claim])
        except UnanswerableClaimError as fault:
            why = str(fault).removeprefix(f"claim {format_claim_name(claim)}: ")
            yield AuditedClaim(claim, node, (why,), ("FeatureGate",))
            continue
        found = verify(
            VerificationInput(slices, bundle.classes, others, node, evaluator), [admitted], [allocation]
        )
        yield AuditedClaim(claim, node, tuple(f.text for f in found), tuple(_get_rule_name(f) for f in found))


def _get_rule_name(finding: AllocationFinding) -> str:
    return finding.rule.value


def _find_node(bundle: Bundle, claim: ResourceClaim, allocation: AllocationResult) -> Node | None:
    where = allocation.node_selector
    allowed = [
        node
        for node in bundle.nodes
        if where is None or where.matches(node.metadata.name, node.metadata.labels)
    ]
    consumers = {consumer.name for consumer in claim.status.reserved_for}
    running = {
        pod.spec.node_name
        for pod in (*bundle.pods, *(each.object for each in bundle.invalid if each.kind == "Pod"))
        if pod.metadata.namespace == claim.metadata.namespace and pod.metadata.name in consumers
    }
    there = [node for node in allowed if node.metadata.name in running]
    return next(iter(there or allowed), None)
