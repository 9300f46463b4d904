"""Entry points of the allocator: devices for claims on one node, or on many nodes at once.

`allocate` returns allocations for one node, or the ending of the search without a solution. `search_nodes`
covers many nodes with one search per distinct shape: nodes of one shape have the same answer.

Both take a limit in time, which brings the caller's clock, and one in steps. Without either a search may take
`STEP_BUDGET` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from dray.allocator.allocation_results import build_allocations
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.node_shapes import NodeShape, NodeView
from dray.allocator.requests import AllocationRequest, normalize_claims
from dray.allocator.search.backtracking import STEP_BUDGET
from dray.allocator.search.resumable import UNLIMITED_STEPS, ResumableSearch, TimeLimit, start_search
from dray.allocator.search.trace import GaveUp, SearchEnding, Solved
from dray.api.core import Node
from dray.api.resource import AllocationResult, ResourceClaim


class SuccessfulAllocation(msgspec.Struct, frozen=True):
    """The devices of every claim, in the order of the claims."""

    results: tuple[AllocationResult, ...]
    ending: Solved


class FailedAllocation(msgspec.Struct, frozen=True):
    """No devices on this node; the ending tells whether that is certain, `explain` tells why."""

    ending: SearchEnding


def allocate(
    inventory: DeviceInventory,
    claims: Sequence[ResourceClaim],
    node: Node,
    *,
    new_share_id: Callable[[], str],
    budget: int | None = None,
    limit: TimeLimit | None = None,
) -> SuccessfulAllocation | FailedAllocation:
    """Allocate all claims of a pod on one node, together or not at all.

    Raises `UnanswerableClaimError` for a claim that no node could ever satisfy.
    """
    allocation_request = normalize_claims(claims, inventory.classes.get)
    view = inventory.get_node_view(node)
    ending = run_search(allocation_request, view.shape, budget, limit)
    if not isinstance(ending, Solved):
        return FailedAllocation(ending)
    return SuccessfulAllocation(
        build_allocations(allocation_request, view, ending.picks, new_share_id=new_share_id), ending
    )


def run_search(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    budget: int | None = None,
    limit: TimeLimit | None = None,
) -> SearchEnding:
    """Run a search to its end, or to its limit."""
    clock, seconds = (_read_stopped_clock, 1.0) if limit is None else (limit.clock, limit.per_search)
    if budget is None:
        budget = STEP_BUDGET if limit is None else UNLIMITED_STEPS
    found = start_search(allocation_request, shape, clock, budget)
    if not isinstance(found, ResumableSearch):
        return found
    return found.advance(clock, seconds - found.spent) or found.give_up()


def _read_stopped_clock() -> float:
    return 0.0


def search_nodes(
    inventory: DeviceInventory,
    allocation_request: AllocationRequest,
    nodes: Iterable[Node],
    budget: int | None = None,
    limit: TimeLimit | None = None,
) -> Iterator[tuple[NodeView, SearchEnding]]:
    """Search every node, once per distinct shape; yields the view of each node and the ending there.

    When the total of the limit is used up, the shapes that are left are given up without a search.
    """
    known: dict[NodeShape, SearchEnding] = {}
    left = limit.total if limit is not None else 0.0
    for node in nodes:
        view = inventory.get_node_view(node)
        ending = known.get(view.shape)
        if ending is None:
            if limit is None:
                ending = run_search(allocation_request, view.shape, budget)
            elif left > 0:
                began = limit.clock()
                ending = run_search(allocation_request, view.shape, budget, limit.limit_to(left))
                left -= limit.clock() - began
            else:
                ending = GaveUp(0)
            known[view.shape] = ending
        yield view, ending
