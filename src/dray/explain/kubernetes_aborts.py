"""Errors with which Kubernetes ends a pod's whole scheduling attempt, found where dray only refuses a node.

Theory of operation: kube-scheduler stops at the first error that the allocator returns for any node it looks
at, also when other nodes fit. dray treats what concerns one node as a refusal there and goes on. So a pod
that is placed here may wait for ever there, and whoever compares both should know. Three errors are of that
kind: a device that cannot be judged (its selector fails, an amount cannot be represented), a request for all
devices on a node that sees an incomplete or invalid pool, and a request for all devices one of which breaks
a constraint. Requests for all devices are prepared by Kubernetes before it searches, alternatives that are
never reached included.

Rules for this file: nothing here changes an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dray.allocator.inventory.device_inventory import Shape, View
from dray.allocator.refusals import Reason, Refusal
from dray.allocator.requests import Ask, Want
from dray.allocator.search.backtracking import search
from dray.allocator.search.candidates import options_of
from dray.allocator.search.trace import DeadEnd, Ending, Faulted
from dray.explain.refusal_details import flaw_of, owner_of
from dray.explain.rendering.refusal_phrases import error_line, flaw_text
from dray.explain.search_trace import PATIENCE

FEW_NODES = 100
"""Below so many nodes kube-scheduler looks at all of them; of more, it may not come to the one that fails."""

MOST_SHAPES = 50
"""Different shapes of nodes that are looked into for the sake of a note."""

_CONSTRAINTS = frozenset({Reason.CONSTRAINT, Reason.ATTRIBUTE_MISSING})


class Abort(msgspec.Struct, frozen=True):
    """Why Kubernetes ends an attempt; whether it surely comes to that node, and surely calls it an error."""

    why: str
    certain: bool

    def __str__(self) -> str:
        return f"Kubernetes {'would' if self.certain else 'may'} abort the whole attempt: {self.why}"


def find_abort(ask: Ask, looked_at: Sequence[tuple[View, Ending]]) -> Abort | None:
    """The first error with which Kubernetes would end an attempt, given how the search ended on each node."""
    shapes: set[Shape] = set()
    wanting_all = [want for choice in ask.choices for want in choice.wants if want.wants_all]
    for view, ending in looked_at:
        if view.shape in shapes:
            continue
        shapes.add(view.shape)
        found = next(_errors(ask, view, ending, wanting_all if len(shapes) <= MOST_SHAPES else ()), None)
        if found is not None:
            return found if len(looked_at) < FEW_NODES else Abort(found.why, certain=False)
    return None


def _errors(ask: Ask, view: View, ending: Ending, wanting_all: Sequence[Want]) -> Iterator[Abort]:
    """What goes wrong on a node, in the order in which Kubernetes would come to it."""
    for want in wanting_all:
        yield from _while_preparing(want, view)
    if isinstance(ending, Faulted):
        yield Abort(_unjudged(ending.point.want, view, ending.candidate, ending.refusal), certain=True)
    if any(want.rules for want in wanting_all):
        yield from _while_searching(ask, view)


def _while_preparing(want: Want, view: View) -> Iterator[Abort]:
    """What is wrong for a request for all devices before the search."""
    node = view.node.metadata.name
    for shelf in view.shelves:
        if shelf.flaw is not None:
            flaw = flaw_text(flaw_of(shelf.pool, shelf.flaw, node), named=True)
            # Of what makes a pool invalid here (slices that disagree, for one) Kubernetes lets some through.
            certain = shelf.flaw.reason is Reason.POOL_INCOMPLETE
            yield Abort(f"request `{want.name}` asks for all devices, and on {node} {flaw}", certain)
    options = options_of(view.shape, want)
    options.complete()
    if options.faulty:
        first = (options.faulty & -options.faulty).bit_length() - 1
        yield Abort(_unjudged(want, view, first, options.refusals[first]), certain=True)


def _while_searching(ask: Ask, view: View) -> Iterator[Abort]:
    """A device that breaks a constraint where all devices are wanted."""
    for beat in search(ask, view.shape, PATIENCE, prune=False):
        if isinstance(beat, DeadEnd) and beat.point.want.wants_all:
            for candidate, refusal in beat.refused:
                if refusal.reason in _CONSTRAINTS:
                    asking = f"request `{beat.point.want.name}` asks for all devices"
                    yield Abort(f"{asking}, and {_device(view, candidate)} breaks a constraint", certain=True)


def _unjudged(want: Want, view: View, candidate: int, refusal: Refusal) -> str:
    device = _device(view, candidate)
    match refusal.reason, refusal.detail:
        case Reason.BROKEN_SELECTOR, (str(expression), str(error)):
            return f"the selector of {owner_of(want, expression)} fails on {device}: {error_line(error)}"
        case _:
            return f"an amount that request `{want.name}` asks for cannot be represented on {device}"


def _device(view: View, candidate: int) -> str:
    shelf, position = view.device(candidate)
    return f"device {shelf.pool[0]}/{shelf.pool[1]}/{shelf.names[position]} of {view.node.metadata.name}"
