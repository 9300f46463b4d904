"""Pruning: proof that a branch of the search has no solution, before it is walked.

The search asks `Pruning` when it had to step back; the other modules are its parts: the open problem in
integers (model), necessary conditions (bounds), interchangeable devices (symmetry), and a search of its own
for any completion, in whatever order is quickest (completion). Only the search imports this package.
"""

from dray.allocator.search.pruning.completion import Completion, Witness
from dray.allocator.search.pruning.pruner import Pruning

__all__ = ["Completion", "Pruning", "Witness"]
