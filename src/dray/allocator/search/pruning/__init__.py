"""Pruning: proof that a branch of the search has no solution, before it is tried.

The search asks `Pruner` after it wasted work on dead ends; the other modules are its parts: the open problem
in integers (model), necessary conditions (bounds), interchangeable devices (symmetry), and a search of its
own for any completion, in whatever order is quickest (completion). This package must not decide what is
taken: leaving it out changes the time of a search, never its answer. Only modules of `search` import it.
"""

from dray.allocator.search.pruning.completion import CompletionSearch, KnownCompletion
from dray.allocator.search.pruning.pruner import Pruner

__all__ = ["CompletionSearch", "KnownCompletion", "Pruner"]
