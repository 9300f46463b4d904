"""Hints: changes that were tried and helped.

Theory of operation: moves propose, the search disposes. For each kind of change the closest nodes are asked
first; a proposal becomes a hint when the search, run with it on that very node, finds devices. One hint per
kind, at most three in all, the smallest changes first. The work is bounded: so many nodes, so many proposals
per kind, so many steps and a moment per search, and no more time than the whole explanation has left. A hint
that could not be proved within that is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.requests import MAX_RESULTS, ask_of, named
from dray.allocator.search.backtracking import search
from dray.allocator.search.resumable import RunningSearch
from dray.allocator.search.trace import Solved
from dray.api.core import Node
from dray.errors import AllocationFault
from dray.explain.diagnosis import Hint
from dray.explain.node_reports import Scene
from dray.explain.remedies.claim_edits import Claims, edit_want
from dray.explain.remedies.proposals import MOVES, Case, Change, Move, near
from dray.explain.work_budget import Effort, Steps

MOST = 3
"""Hints on one page."""

SCENES = 8
PROPOSALS = 40
STEPS = 2_000
SECONDS = 0.5
"""Work for one search with a change. Most take a hundredth of that; on a busy machine the clock goes on while
nothing is done, and a hint that helps should not be lost by that."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: claims, on these nodes, with this stock; and how many hints are welcome."""

    stock: Stock
    claims: Claims
    nodes: Sequence[Node]
    most: int


def finding_hints(question: Question, scenes: Sequence[Scene], effort: Effort) -> Steps[tuple[Hint, ...]]:
    """What would help; without scenes, what would mend a claim that cannot even be asked."""
    hints: list[Hint] = []
    if not scenes:
        for kind, proposals in _REPAIRS.items():
            if len(hints) < question.most and (
                found := (yield from _repair(question, kind, proposals, effort))
            ):
                hints.append(found)
        return tuple(hints)
    cases = [
        Case(question.stock, question.claims, scene, stuck)
        for scene in scenes[:SCENES]
        for stuck in scene.stuck
    ]
    for kind, move in MOVES.items():
        if len(hints) < question.most and (
            found := (yield from _first_that_helps(kind, move, cases, effort))
        ):
            hints.append(found)
    return tuple(hints)


def _first_that_helps(kind: str, move: Move, cases: Sequence[Case], effort: Effort) -> Steps[Hint | None]:
    left = PROPOSALS
    for case in cases:
        for change in move(case):
            if left == 0 or effort.left <= 0:
                return None
            left -= 1
            nodes = case.scene.story.nodes
            if (yield from helping(change, case.scene.witness.view.node, effort)):
                return Hint(
                    kind=kind,
                    text=change.text,
                    nodes=nodes[:1] if change.here_only else nodes,
                    claim=named(case.claims[case.claim]),
                    request=case.want.name,
                )
    return None


def helping(change: Change, node: Node, effort: Effort) -> Steps[bool]:
    """Whether devices are found on a node once a change is made."""
    try:
        ask = ask_of(change.claims, change.stock.classes.get)
    except AllocationFault:
        return False
    shape = change.stock.seen_from(node).shape
    ending = yield from effort.run(RunningSearch(ask, shape, iter(search(ask, shape, STEPS))), SECONDS)
    yield from effort.pause()
    return isinstance(ending, Solved)


# --- claims that cannot even be asked ---


def _repair(question: Question, kind: str, proposals: Proposals, effort: Effort) -> Steps[Hint | None]:
    """A change of one kind that turns a faulty claim into one that some node satisfies."""
    for index, request, change in proposals(question):
        if effort.left <= 0:
            return None
        nodes = yield from _fitting(question, change, effort)
        if nodes:
            claim = named(question.claims[index])
            return Hint(kind=kind, text=change.text, nodes=nodes, claim=claim, request=request)
    return None


def _fitting(question: Question, change: Change, effort: Effort) -> Steps[tuple[str, ...]]:
    """The first node where a change helps; nodes that look alike are asked once."""
    seen = set()
    for node in question.nodes:
        shape = change.stock.seen_from(node).shape
        if shape in seen:
            continue
        seen.add(shape)
        if (yield from helping(change, node, effort)):
            return (node.metadata.name,)
        if len(seen) == SCENES:
            break
    return ()


def _wants(question: Question) -> Iterator[tuple[int, str, str, int]]:
    """Claim, request, class and count of everything that is asked, as it was written."""
    for index, claim in enumerate(question.claims):
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                yield index, request.name, request.exactly.device_class_name, request.exactly.count
            for sub in request.first_available:
                yield index, f"{request.name}/{sub.name}", sub.device_class_name, sub.count


def _known_classes(question: Question) -> Iterator[tuple[int, str, Change]]:
    classes = question.stock.classes
    for index, name, device_class, _ in _wants(question):
        if device_class in classes:
            continue
        for other in near(device_class, classes):
            text = f"asking for class `{other}` instead of `{device_class}` in request `{name}`"
            claims = edit_want(
                question.claims,
                index,
                name,
                lambda asked, other=other: msgspec.structs.replace(asked, device_class_name=other),
            )
            yield index, name, Change(text, claims, question.stock)


def _fewer(question: Question) -> Iterator[tuple[int, str, Change]]:
    for index, name, _, count in sorted(_wants(question), key=lambda entry: -entry[3]):
        for fewer in range(min(count - 1, MAX_RESULTS), 0, -1):
            noun = "device" if fewer == 1 else "devices"
            text = f"asking for {fewer} {noun} instead of {count} in request `{name}`"
            claims = edit_want(
                question.claims,
                index,
                name,
                lambda asked, fewer=fewer: msgspec.structs.replace(asked, count=fewer),
            )
            yield index, name, Change(text, claims, question.stock)


Proposals = Callable[[Question], Iterator[tuple[int, str, Change]]]
_REPAIRS: dict[str, Proposals] = {"AnotherClass": _known_classes, "AskForFewer": _fewer}
