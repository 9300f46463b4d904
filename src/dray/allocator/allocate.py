"""Questions to the allocator, as callers ask them: one node, or many at once.

`allocate` answers for one node with results or with the ending that says why not. `survey` answers for many
nodes with one search per distinct shape: nodes that look alike get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from dray.allocator.assemble import assemble
from dray.allocator.beats import Ending, Solved
from dray.allocator.search import BUDGET, search
from dray.allocator.stock import Shape, Stock, View
from dray.allocator.wants import Ask, ask_of
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
    budget: int = BUDGET,
) -> Allocated | Refused:
    """All claims of a pod on one node, together or not at all.

    Raises `AllocationFault` for a claim that no node could ever answer.
    """
    ask = ask_of(claims, stock.classes.get)
    view = stock.seen_from(node)
    ending = outcome(ask, view.shape, budget)
    if not isinstance(ending, Solved):
        return Refused(ending)
    return Allocated(assemble(ask, view, ending.picks, new_share_id=new_share_id), ending)


def outcome(ask: Ask, shape: Shape, budget: int = BUDGET) -> Ending:
    """How the search ends; its story is dropped."""
    last = None
    for beat in search(ask, shape, budget):
        last = beat
    assert last is not None
    return last  # type: ignore[return-value] # a search always ends with an ending


def survey(
    stock: Stock, ask: Ask, nodes: Iterable[Node], budget: int = BUDGET
) -> Iterator[tuple[View, Ending]]:
    """What each node sees and how the search ends there; one search per distinct shape."""
    known: dict[Shape, Ending] = {}
    for node in nodes:
        view = stock.seen_from(node)
        ending = known.get(view.shape)
        if ending is None:
            ending = known[view.shape] = outcome(ask, view.shape, budget)
        yield view, ending
