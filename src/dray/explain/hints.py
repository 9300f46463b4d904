"""Hints: changes that were tried and helped.

Theory of operation: moves propose, the search disposes. For each kind of change the closest nodes are asked
first; a proposal becomes a hint when the search, run with it on that very node, finds devices. One hint per
kind, at most three in all, the smallest changes first. The work is bounded: so many nodes, so many proposals
per kind, a small budget per search. A hint that could not be proved within that is not given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from dray.allocator.allocate import outcome
from dray.allocator.beats import Solved
from dray.allocator.stock import Stock
from dray.allocator.wants import MAX_RESULTS, ask_of, named
from dray.api.core import Node
from dray.errors import AllocationFault
from dray.explain.diagnosis import Hint
from dray.explain.edits import Claims, edit_want
from dray.explain.moves import MOVES, Case, Change, Move, near
from dray.explain.stories import Scene

MOST = 3
"""Hints on one page."""

SCENES = 8
PROPOSALS = 40
STEPS = 2_000


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: claims, on these nodes, with this stock; and how many hints are welcome."""

    stock: Stock
    claims: Claims
    nodes: Sequence[Node]
    most: int


def find_hints(question: Question, scenes: Sequence[Scene]) -> tuple[Hint, ...]:
    """What would help; without scenes, what would mend a claim that cannot even be asked."""
    if not scenes:
        return tuple(islice(_repairs(question), question.most))
    cases = [
        Case(question.stock, question.claims, scene, stuck)
        for scene in scenes[:SCENES]
        for stuck in scene.stuck
    ]
    found = (_first_that_helps(kind, move, cases) for kind, move in MOVES.items())
    return tuple(islice((hint for hint in found if hint is not None), question.most))


def _first_that_helps(kind: str, move: Move, cases: Sequence[Case]) -> Hint | None:
    left = PROPOSALS
    for case in cases:
        for change in move(case):
            if left == 0:
                return None
            left -= 1
            nodes = case.scene.story.nodes
            if helps(change, case.scene.witness.view.node):
                return Hint(
                    kind=kind,
                    text=change.text,
                    nodes=nodes[:1] if change.here_only else nodes,
                    claim=named(case.claims[case.claim]),
                    request=case.want.name,
                )
    return None


def helps(change: Change, node: Node) -> bool:
    """Whether devices are found on a node once a change is made."""
    try:
        ask = ask_of(change.claims, change.stock.classes.get)
    except AllocationFault:
        return False
    return isinstance(outcome(ask, change.stock.seen_from(node).shape, STEPS), Solved)


# --- claims that cannot even be asked ---


def _repairs(question: Question) -> Iterator[Hint]:
    """Changes that turn a faulty claim into one that some node satisfies."""
    for kind, proposals in (("AnotherClass", _known_classes), ("AskForFewer", _fewer)):
        for index, request, change in proposals(question):
            nodes = _fitting(question, change)
            if nodes:
                claim = named(question.claims[index])
                yield Hint(kind=kind, text=change.text, nodes=nodes, claim=claim, request=request)
                break


def _fitting(question: Question, change: Change) -> tuple[str, ...]:
    """The first node where a change helps; nodes that look alike are asked once."""
    seen = set()
    for node in question.nodes:
        shape = change.stock.seen_from(node).shape
        if shape in seen:
            continue
        seen.add(shape)
        if helps(change, node):
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
