"""Ask the allocator about a small world and read the answer; every law is checked on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.allocator.refusals import Refusal
from dray.allocator.search.trace import DeadEnd, TraceEvent
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from tests.brute import builders as make
from tests.brute.laws import Bench, broken_laws, results_of
from tests.brute.problem import Problem
from tests.brute.reference_search import TooLarge

ANY = (make.device_class("any"),)


def world(
    slices: ResourceSlice | Iterable[ResourceSlice],
    *claims: ResourceClaim,
    held: Iterable[ResourceClaim] = (),
    classes: Iterable[DeviceClass] = ANY,
    nodes: Iterable[Node] = (),
) -> Problem:
    """A problem; on node n1, with the class `any`, and nothing taken, unless told otherwise."""
    published = (slices,) if isinstance(slices, ResourceSlice) else tuple(slices)
    return Problem(published, tuple(classes), claims, tuple(held), tuple(nodes) or (make.node(),))


def allocated(problem: Problem) -> Any:
    """The allocations of all claims, if there are any; fails when a law is broken on the way."""
    try:
        complaints = broken_laws(problem)
    except TooLarge:
        complaints = []
    assert not complaints, "\n".join(complaints)
    return results_of(problem)


def picked(problem: Problem) -> list[str] | None:
    """Who got what: `request=device`, in the order of the results; None when nobody gets anything."""
    results = allocated(problem)
    if results is None:
        return None
    return [f"{item.request}={item.device}" for one in results for item in one.devices.results]


def consumed(problem: Problem) -> list[dict[str, str]] | None:
    """What each result consumes."""
    results = allocated(problem)
    if results is None:
        return None
    return [
        {name: str(amount) for name, amount in item.consumed_capacity.items()}
        for one in results
        for item in one.devices.results
    ]


def told(problem: Problem) -> list[TraceEvent]:
    """The trace events of the search."""
    return Bench(problem, ()).events()


def ending(problem: Problem) -> Any:
    """How the search ends."""
    return told(problem)[-1]


def refusals(problem: Problem) -> dict[str, Refusal]:
    """What was refused in dead ends by a rule across picks, by device."""
    bench = Bench(problem, ())
    found = {}
    for event in bench.events():
        for candidate, refusal in event.refused if isinstance(event, DeadEnd) else ():
            pool_view, position = bench.view.locate_device(candidate)
            found[pool_view.names[position]] = refusal
    return found


def shortages(problem: Problem) -> list[Refusal]:
    """What was lacking altogether in dead ends."""
    return [
        event.blocker for event in told(problem) if isinstance(event, DeadEnd) and event.blocker is not None
    ]
