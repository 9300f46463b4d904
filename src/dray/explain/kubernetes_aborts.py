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

from dray.allocator.inventory.node_shapes import NodeShape, NodeView
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import AllocationRequest, RequestAlternative
from dray.allocator.search.backtracking import search
from dray.allocator.search.candidates import get_candidate_set
from dray.allocator.search.trace import DeadEnd, Faulted, SearchEnding
from dray.explain.refusal_details import describe_pool_flaw, find_selector_owner
from dray.explain.rendering.refusal_phrases import format_error_line, format_pool_flaw
from dray.explain.search_trace import DETAILED_STEPS

ALL_NODES_SEARCHED_BELOW = 100
"""Below so many nodes kube-scheduler looks at all of them; of more, it may not come to the one that fails."""

MAX_SHAPES = 50
"""Different shapes of nodes that are looked into for the sake of a note."""

_CONSTRAINT_REASONS = frozenset({RefusalReason.CONSTRAINT, RefusalReason.ATTRIBUTE_MISSING})


class KubernetesAbort(msgspec.Struct, frozen=True):
    """Why Kubernetes ends an attempt; whether it surely comes to that node, and surely calls it an error."""

    why: str
    certain: bool

    def __str__(self) -> str:
        return f"Kubernetes {'would' if self.certain else 'may'} abort the whole attempt: {self.why}"


def find_abort(
    allocation_request: AllocationRequest, searched_nodes: Sequence[tuple[NodeView, SearchEnding]]
) -> KubernetesAbort | None:
    """The first error with which Kubernetes would end an attempt, given how the search ended on each node."""
    shapes: set[NodeShape] = set()
    wanting_all = [
        want for choice in allocation_request.choices for want in choice.alternatives if want.takes_all
    ]
    for view, ending in searched_nodes:
        if view.shape in shapes:
            continue
        shapes.add(view.shape)
        found = next(
            _find_errors(allocation_request, view, ending, wanting_all if len(shapes) <= MAX_SHAPES else ()),
            None,
        )
        if found is not None:
            return (
                found
                if len(searched_nodes) < ALL_NODES_SEARCHED_BELOW
                else KubernetesAbort(found.why, certain=False)
            )
    return None


def _find_errors(
    allocation_request: AllocationRequest,
    view: NodeView,
    ending: SearchEnding,
    wanting_all: Sequence[RequestAlternative],
) -> Iterator[KubernetesAbort]:
    """What goes wrong on a node, in the order in which Kubernetes would come to it."""
    for want in wanting_all:
        yield from _find_preparation_errors(want, view)
    if isinstance(ending, Faulted):
        yield KubernetesAbort(
            _describe_unevaluable(ending.point.alternative, view, ending.candidate, ending.refusal),
            certain=True,
        )
    if any(want.constraints for want in wanting_all):
        yield from _find_search_errors(allocation_request, view)


def _find_preparation_errors(alternative: RequestAlternative, view: NodeView) -> Iterator[KubernetesAbort]:
    """What is wrong for a request for all devices before the search."""
    node = view.node.metadata.name
    for shelf in view.pool_views:
        if shelf.flaw is not None:
            flaw = format_pool_flaw(describe_pool_flaw(shelf.pool, shelf.flaw, node), with_names=True)
            # Of what makes a pool invalid here (slices that disagree, for one) Kubernetes lets some through.
            certain = shelf.flaw.reason is RefusalReason.POOL_INCOMPLETE
            yield KubernetesAbort(
                f"request `{alternative.name}` asks for all devices, and on {node} {flaw}", certain
            )
    options = get_candidate_set(view.shape, alternative)
    options.evaluate_all()
    if options.faulty:
        first = (options.faulty & -options.faulty).bit_length() - 1
        yield KubernetesAbort(
            _describe_unevaluable(alternative, view, first, options.refusals[first]), certain=True
        )


def _find_search_errors(allocation_request: AllocationRequest, view: NodeView) -> Iterator[KubernetesAbort]:
    """A device that breaks a constraint where all devices are wanted."""
    for beat in search(allocation_request, view.shape, DETAILED_STEPS, prune=False):
        if isinstance(beat, DeadEnd) and beat.point.alternative.takes_all:
            for candidate, refusal in beat.refused:
                if refusal.reason in _CONSTRAINT_REASONS:
                    asking = f"request `{beat.point.alternative.name}` asks for all devices"
                    yield KubernetesAbort(
                        f"{asking}, and {_format_device(view, candidate)} breaks a constraint", certain=True
                    )


def _describe_unevaluable(
    alternative: RequestAlternative, view: NodeView, candidate: int, refusal: Refusal
) -> str:
    device = _format_device(view, candidate)
    match refusal.reason, refusal.detail:
        case RefusalReason.BROKEN_SELECTOR, (str(expression), str(error)):
            return (
                f"the selector of {find_selector_owner(alternative, expression)} fails on "
                f"{device}: {format_error_line(error)}"
            )
        case _:
            return f"an amount that request `{alternative.name}` asks for cannot be represented on {device}"


def _format_device(view: NodeView, candidate: int) -> str:
    shelf, position = view.locate_device(candidate)
    return f"device {shelf.pool[0]}/{shelf.pool[1]}/{shelf.names[position]} of {view.node.metadata.name}"
