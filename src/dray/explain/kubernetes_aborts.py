"""Kubernetes aborts: errors with which kube-scheduler ends the whole scheduling attempt of a pod.

Theory of operation: kube-scheduler stops at the first error that the allocator returns for any node it
examines, even when other nodes fit. dray treats an error on one node as a refusal there and continues. So a
pod that dray places may wait for ever in Kubernetes, and users who compare both should know. There are three
such errors: a device that cannot be evaluated (its selector fails, an amount cannot be represented), a
request for all devices on a node that sees an incomplete or invalid pool, and a request for all devices one
of which violates a constraint. Kubernetes prepares requests for all devices before it searches, including
alternatives that it never reaches.

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
from dray.explain.refusal_details import describe_pool_flaw
from dray.explain.rendering.refusal_phrases import format_error_line, format_pool_flaw
from dray.explain.search_trace import DETAILED_STEPS

ALL_NODES_SEARCHED_BELOW = 100
"""Below this number kube-scheduler examines all nodes; above it, it may not reach the one that fails."""

MAX_SHAPES = 50
"""Different shapes of nodes that are checked for aborts."""

_CONSTRAINT_REASONS = frozenset({RefusalReason.CONSTRAINT, RefusalReason.ATTRIBUTE_MISSING})


class KubernetesAbort(msgspec.Struct, frozen=True):
    """Why Kubernetes ends an attempt; `certain` when it reaches that node and reports an error there."""

    why: str
    certain: bool

    def __str__(self) -> str:
        return f"Kubernetes {'would' if self.certain else 'may'} abort the whole attempt: {self.why}"


def find_abort(
    allocation_request: AllocationRequest, searched_nodes: Sequence[tuple[NodeView, SearchEnding]]
) -> KubernetesAbort | None:
    """The first error with which Kubernetes would end an attempt, given the ending of the search on each
    node.
    """
    shapes: set[NodeShape] = set()
    taking_all = [
        one for choice in allocation_request.choices for one in choice.alternatives if one.takes_all
    ]
    for view, ending in searched_nodes:
        if view.shape in shapes:
            continue
        shapes.add(view.shape)
        found = next(
            _find_errors(allocation_request, view, ending, taking_all if len(shapes) <= MAX_SHAPES else ()),
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
    taking_all: Sequence[RequestAlternative],
) -> Iterator[KubernetesAbort]:
    """The errors on a node, in the order in which Kubernetes would meet them."""
    for alternative in taking_all:
        yield from _find_preparation_errors(alternative, view)
    if isinstance(ending, Faulted):
        yield KubernetesAbort(
            _describe_unevaluable(ending.point.alternative, view, ending.candidate, ending.refusal),
            certain=True,
        )
    if any(alternative.constraints for alternative in taking_all):
        yield from _find_search_errors(allocation_request, view)


def _find_preparation_errors(alternative: RequestAlternative, view: NodeView) -> Iterator[KubernetesAbort]:
    """The errors of a request for all devices before the search."""
    node = view.node.metadata.name
    for pool_view in view.pool_views:
        if pool_view.flaw is not None:
            flaw = format_pool_flaw(describe_pool_flaw(pool_view.pool, pool_view.flaw, node), with_names=True)
            # Kubernetes accepts some pools that are invalid here (slices that disagree, for example).
            certain = pool_view.flaw.reason is RefusalReason.POOL_INCOMPLETE
            yield KubernetesAbort(
                f"request `{alternative.name}` asks for all devices, and on {node} {flaw}", certain
            )
    candidates = get_candidate_set(view.shape, alternative)
    candidates.evaluate_all()
    if candidates.faulty:
        first = (candidates.faulty & -candidates.faulty).bit_length() - 1
        yield KubernetesAbort(
            _describe_unevaluable(alternative, view, first, candidates.refusals[first]), certain=True
        )


def _find_search_errors(allocation_request: AllocationRequest, view: NodeView) -> Iterator[KubernetesAbort]:
    """Devices that violate a constraint where all devices are requested."""
    for event in search(allocation_request, view.shape, DETAILED_STEPS, prune=False):
        if isinstance(event, DeadEnd) and event.point.alternative.takes_all:
            for candidate, refusal in event.refused:
                if refusal.reason in _CONSTRAINT_REASONS:
                    asking = f"request `{event.point.alternative.name}` asks for all devices"
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
                f"the selector of {alternative.find_owner(expression)} fails on "
                f"{device}: {format_error_line(error)}"
            )
        case _:
            return f"an amount that request `{alternative.name}` asks for cannot be represented on {device}"


def _format_device(view: NodeView, candidate: int) -> str:
    pool_view, position = view.locate_device(candidate)
    return (
        f"device {pool_view.pool[0]}/{pool_view.pool[1]}/{pool_view.names[position]} of "
        f"{view.node.metadata.name}"
    )
