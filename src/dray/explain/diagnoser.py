"""From a question to a diagnosis: every kind of node is asked once, and what would help is tried.

Theory of operation: nodes whose devices are the same, taken the same, have one shape, and one search answers
for all of them. Only the flaws of their pools may still differ, so nodes are kept apart by both. Each group
gets one story. When nothing fits, `hints` looks for changes, starting from the closest stories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dray.allocator.inventory.device_inventory import Shape, Stock, View
from dray.allocator.inventory.usage import PoolId
from dray.allocator.requests import Ask, ask_of, named
from dray.api.core import Node
from dray.api.resource import ResourceClaim
from dray.errors import AllocationFault
from dray.explain.diagnosis import Diagnosis, Fault, Hint, Outcome, Verdict
from dray.explain.node_reports import Scene, closeness, making_scene
from dray.explain.refusal_details import Witness, flaws_of
from dray.explain.remedies.hints import MOST, Question, finding_hints
from dray.explain.search_trace import PATIENCE, Tale, telling
from dray.explain.work_budget import PORTION, Effort, Steps, at_once

TALES_IN_FULL = 50
"""How many different shapes get the patience that a full story takes; further ones are told in short."""


def diagnose(
    stock: Stock,
    claims: Sequence[ResourceClaim],
    nodes: Iterable[Node],
    *,
    effort: Effort | None = None,
    pod: str = "",
    hints: int = MOST,
) -> Diagnosis:
    """Why some claims fit which node with which devices, or why they fit none, and what would help.

    The claims are those of one pod that still need devices. `pod` is its name, as `namespace/name`, and
    empty for a claim on its own. At most `hints` hints are looked for; none when it is 0. `effort` says how
    much work all this may be.
    """
    return at_once(diagnosing(stock, claims, nodes, effort=effort, pod=pod, hints=hints))


def diagnosing(
    stock: Stock,
    claims: Sequence[ResourceClaim],
    nodes: Iterable[Node],
    *,
    effort: Effort | None = None,
    pod: str = "",
    hints: int = MOST,
) -> Steps[Diagnosis]:
    """The same in small steps."""
    effort = effort or Effort()
    ordered = sorted(nodes, key=lambda node: node.metadata.name)
    question = Question(stock, tuple(claims), ordered, hints)
    try:
        ask = ask_of(claims, stock.classes.get)
    except AllocationFault as fault:
        found = (yield from finding_hints(question, (), effort)) if hints else ()
        return of_fault(fault, claims, pod=pod, hints=found)
    scenes = yield from _scenes(stock, ask, ordered, effort)
    verdict = _verdict(scenes)
    helping = hints > 0 and verdict is not Verdict.FITS
    tried = (yield from finding_hints(question, scenes, effort)) if helping else ()
    return Diagnosis(
        verdict=verdict,
        pod=pod,
        claims=tuple(named(claim) for claim in claims),
        stories=tuple(scene.story for scene in scenes),
        hints=tried,
    )


def of_fault(
    fault: AllocationFault, claims: Sequence[ResourceClaim] = (), *, pod: str = "", hints: Sequence[Hint] = ()
) -> Diagnosis:
    """The diagnosis of a claim that no node could ever answer."""
    return Diagnosis(
        verdict=Verdict.FAULTY,
        pod=pod,
        claims=tuple(named(claim) for claim in claims),
        fault=Fault(claim=fault.claim, field=fault.field, text=fault.why),
        hints=tuple(hints),
    )


def _scenes(stock: Stock, ask: Ask, nodes: Sequence[Node], effort: Effort) -> Steps[list[Scene]]:
    """One scene per kind of node, the best or closest first."""
    alike: dict[tuple[Shape, tuple[object, ...]], list[View]] = {}
    for number, node in enumerate(nodes, 1):
        if number % PORTION == 0:
            yield from effort.pause()
        view = stock.seen_from(node)
        alike.setdefault((view.shape, _flaws(view, stock.hidden_from(node))), []).append(view)
    tales: dict[Shape, Tale] = {}
    scenes = []
    for (shape, _), views in alike.items():
        if shape not in tales:
            patience = PATIENCE if len(tales) < TALES_IN_FULL else 0
            tales[shape] = yield from telling(ask, shape, effort, patience)
        witness = Witness(ask, views[0], stock.usage, stock.hidden_from(views[0].node))
        names = tuple([view.node.metadata.name for view in views])
        scenes.append((yield from making_scene(ask, witness, tales[shape], names, effort)))
        yield from effort.pause()
    return sorted(scenes, key=closeness)


def _flaws(view: View, hidden: Sequence[PoolId]) -> tuple[object, ...]:
    """The flaws of a node's pools, alike for nodes that differ only in their own name."""
    if not view.shape.flaws and not hidden:
        return ()
    flaws = flaws_of(view, hidden)
    return tuple(msgspec.structs.replace(flaw, pool="") for flaw in flaws)


def _verdict(scenes: Sequence[Scene]) -> Verdict:
    outcomes = {scene.story.outcome for scene in scenes}
    if Outcome.FITS in outcomes:
        return Verdict.FITS
    return Verdict.UNKNOWN if Outcome.GAVE_UP in outcomes else Verdict.REFUSED
