"""Questions to the allocator, as callers ask them: one node, or many at once.

`allocate` answers for one node with results or with the ending that says why not. `survey` answers for many
nodes with one search per distinct shape: nodes that look alike get the same answer.

Both take a limit in time, for which they need the caller's clock, and one in steps. Without either a search
may take `BUDGET` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from dray.allocator.allocation_results import assemble
from dray.allocator.inventory.device_inventory import Shape, Stock, View
from dray.allocator.requests import Ask, ask_of
from dray.allocator.search.backtracking import BUDGET
from dray.allocator.search.resumable import NO_BUDGET, RunningSearch, TimeLimit, begin
from dray.allocator.search.trace import Ending, GaveUp, Solved
from dray.api.core import Node
from dray.api.resource import AllocationResult, ResourceClaim


class Allocated(msgspec.Struct, frozen=True):
    """The devices of every claim, in the order of the claims."""

    results: tuple[AllocationResult, ...]
    ending: Solved


class Refused(msgspec.Struct, frozen=True):
    """No devices on this node; the ending tells whether that is certain. `explain` tells why."""

    ending: Ending


def allocate(
    stock: Stock,
    claims: Sequence[ResourceClaim],
    node: Node,
    *,
    new_share_id: Callable[[], str],
    budget: int | None = None,
    limit: TimeLimit | None = None,
) -> Allocated | Refused:
    """All claims of a pod on one node, together or not at all.

    Raises `AllocationFault` for a claim that no node could ever answer.
    """
    ask = ask_of(claims, stock.classes.get)
    view = stock.seen_from(node)
    ending = outcome(ask, view.shape, budget, limit)
    if not isinstance(ending, Solved):
        return Refused(ending)
    return Allocated(assemble(ask, view, ending.picks, new_share_id=new_share_id), ending)


def outcome(ask: Ask, shape: Shape, budget: int | None = None, limit: TimeLimit | None = None) -> Ending:
    """How a search ends."""
    clock, seconds = (_stopped, 1.0) if limit is None else (limit.clock, limit.per_search)
    if budget is None:
        budget = BUDGET if limit is None else NO_BUDGET
    found = begin(ask, shape, clock, budget)
    if not isinstance(found, RunningSearch):
        return found
    return found.advance(clock, seconds - found.spent) or found.give_up()


def _stopped() -> float:
    return 0.0


def survey(
    stock: Stock,
    ask: Ask,
    nodes: Iterable[Node],
    budget: int | None = None,
    limit: TimeLimit | None = None,
) -> Iterator[tuple[View, Ending]]:
    """What each node sees and how the search ends there; one search per distinct shape.

    When the total of the limit is used up, the shapes that are left are given up without a search.
    """
    known: dict[Shape, Ending] = {}
    left = limit.total if limit is not None else 0.0
    for node in nodes:
        view = stock.seen_from(node)
        ending = known.get(view.shape)
        if ending is None:
            if limit is None:
                ending = outcome(ask, view.shape, budget)
            elif left > 0:
                began = limit.clock()
                ending = outcome(ask, view.shape, budget, limit.at_most(left))
                left -= limit.clock() - began
            else:
                ending = GaveUp(0)
            known[view.shape] = ending
        yield view, ending
