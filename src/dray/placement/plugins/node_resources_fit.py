"""NodeResourcesFit: whether a node has enough free resources for a pod, and how full it is.

Theory of operation: for every resource the pod requests, the allocatable amount less the requests of its pods
must be enough; a resource that the pod does not request may be overcommitted. The number of pods is a
resource like the others. A reason has what is the same for all nodes, the resource and the requested amount,
and not what is left on this one; it tells whether the node has none of it, never had enough, or has too
little left, because only the last changes when pods leave.

The score is the fraction of CPU and of memory that stays free (or is used), in percent rounded down, and the
mean of both rounded down, counted with default amounts for containers without requests; a node without one of
the two is scored by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from dray.placement.framework import MAX_SCORE, PreFilterResult
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.resource_requests import CPU, HUGE_PAGES_PREFIX, MEMORY, PODS, ResourceRequests
from dray.values.quantity import Quantity, QuantityForm

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot, NodeState

NAME = "NodeResourcesFit"

_WAKES_GROWN = frozenset({Signal(Topic.NODES)})
_WAKES_EMPTIED = frozenset({Signal(Topic.NODES), Signal(Topic.RESOURCES)})
_IN_BYTES = (MEMORY, "ephemeral-storage", HUGE_PAGES_PREFIX)


class Scoring(StrEnum):
    """Which nodes are better: those with the most free, or those with the least."""

    LEAST = "least"
    MOST = "most"


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Requests of pods against `status.allocatable` of nodes."""

    scoring: Scoring = Scoring.LEAST
    name: str = NAME

    def pre_filter(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> PreFilterResult:
        """Reject nodes with too little of a resource; score the others by how full they would be."""
        return _build_result(pending_pod.requests, self.scoring)


@lru_cache(maxsize=1024)
def _build_result(requests: ResourceRequests, scoring: Scoring) -> PreFilterResult:
    """The same for all pods of a template."""
    return PreFilterResult(filter=_build_filter(requests), score=_build_score(requests, _SHARES[scoring]))


# --- shortages ---


class _Shortage(StrEnum):
    """Kinds of shortage, with the text around the name of the resource."""

    ABSENT = "no {}"
    TOO_SMALL = "too little {} in all"
    TAKEN = "too little {} free"


_Shortages = tuple[tuple[str, _Shortage], ...]


def _build_filter(requests: ResourceRequests) -> Callable[[NodeState], PluginRejection | None]:
    wanted = tuple(requests.amounts.items())
    known: dict[_Shortages, PluginRejection] = {}

    def refuse(node_state: NodeState) -> PluginRejection | None:
        likeness = node_state.group_key
        allocatable, used = likeness.traits.allocatable, likeness.requests.amounts
        for name, asked in wanted:
            if asked > allocatable.get(name, 0) - used.get(name, 0):
                break
        else:
            return None
        shortages = _find_shortages(requests, allocatable, used) if allocatable else ()
        rejection = known.get(shortages)
        if rejection is None:
            rejection = known[shortages] = _build_rejection(requests, shortages)
        return rejection

    return refuse


def _find_shortages(
    requests: ResourceRequests, allocatable: Mapping[str, int], used: Mapping[str, int]
) -> _Shortages:
    found: list[tuple[str, _Shortage]] = []
    for name, asked in sorted(requests.amounts.items()):
        given = allocatable.get(name, 0)
        if given <= 0:
            found.append((name, _Shortage.ABSENT))
        elif asked > given:
            found.append((name, _Shortage.TOO_SMALL))
        elif asked > given - used.get(name, 0):
            found.append((name, _Shortage.TAKEN))
    return tuple(found)


def _build_rejection(requests: ResourceRequests, shortages: _Shortages) -> PluginRejection:
    """The shortages as text; without any the node reports no allocatable resources."""
    if not shortages:
        return PluginRejection(NAME, "status.allocatable does not say what the node can give", _WAKES_GROWN)
    reason = ", ".join(_format_shortage(requests, name, shortage) for name, shortage in shortages)
    emptied = all(shortage is _Shortage.TAKEN for _, shortage in shortages)
    return PluginRejection(NAME, reason, _WAKES_EMPTIED if emptied else _WAKES_GROWN)


def _format_shortage(requests: ResourceRequests, name: str, shortage: _Shortage) -> str:
    if name == PODS:
        return "too many pods"
    asked = Quantity(
        requests.get(name), QuantityForm.BINARY if name.startswith(_IN_BYTES) else QuantityForm.DECIMAL
    )
    return f"{shortage.format(name)} (asks for {asked})"


# --- scores ---

_Share = Callable[[int, int], int]


def _score_free(taken: int, given: int) -> int:
    return (given - taken) * MAX_SCORE // given if taken < given else 0


def _score_used(taken: int, given: int) -> int:
    return taken * MAX_SCORE // given if taken < given else MAX_SCORE


_SHARES: dict[Scoring, _Share] = {Scoring.LEAST: _score_free, Scoring.MOST: _score_used}


def _build_score(requests: ResourceRequests, share: _Share) -> Callable[[NodeState], int]:
    cpu, memory = requests.scored

    def score(node_state: NodeState) -> int:
        likeness = node_state.group_key
        allocatable, (used_cpu, used_memory) = likeness.traits.allocatable, likeness.requests.scored
        cpus, memories = allocatable.get(CPU, 0), allocatable.get(MEMORY, 0)
        if cpus > 0 and memories > 0:
            return (share(used_cpu + cpu, cpus) + share(used_memory + memory, memories)) // 2
        if cpus > 0:
            return share(used_cpu + cpu, cpus)
        return share(used_memory + memory, memories) if memories > 0 else 0

    return score
