"""Pruning: proof that a branch of the search has no solution, before it is walked.

The search asks `Pruner` when it had to step back; the other modules are its parts: the open problem in
integers (model), necessary conditions (bounds), interchangeable devices (symmetry), and a search of its own
for any completion, in whatever order is quickest (completion). Only the search imports this package.
"""

from dray.allocator.search.pruning.completion import CompletionSearch, KnownCompletion
from dray.allocator.search.pruning.pruner import Pruner

__all__ = ["CompletionSearch", "KnownCompletion", "Pruner"]
