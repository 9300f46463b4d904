"""The referee: checks a finished allocation again, and shares nothing with the search that found it.

Plain, order-free statements of the rules live here, asked of the whole allocation at once; the search's own
parts (options, shapes, pruning, board, checks) must never be imported. Tests use it as an oracle, debug
builds as a guard, the command line as a verb.
"""

from dray.allocator.verify.findings import AllocationFinding, AllocationRule, VerificationInput
from dray.allocator.verify.verifier import verify

__all__ = ["AllocationFinding", "AllocationRule", "VerificationInput", "verify"]
