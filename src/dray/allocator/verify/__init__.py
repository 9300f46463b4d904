"""Verifier: checks finished allocations again, independently of the search that found them.

It states the rules plainly and without order, for the whole allocation at once. It must not import parts of
the search (candidates, shapes, pruning, partial solution, checks). Tests use it as an oracle, and `dray
verify` and the simulation import it.
"""

from dray.allocator.verify.findings import AllocationFinding, AllocationRule, VerificationInput
from dray.allocator.verify.verifier import verify

__all__ = ["AllocationFinding", "AllocationRule", "VerificationInput", "verify"]
