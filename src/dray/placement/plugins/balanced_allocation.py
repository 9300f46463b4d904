"""How evenly a pod would fill a node with cpu and memory.

Theory of operation: a node whose cpu is half taken and whose memory is half taken is in balance; one that has
run out of cpu has memory that nobody can use. The balance is 100 when both parts are equal and 50 when one is
all and the other nothing. What counts is what the pod would do to it: 75 when nothing changes, up to 100 when
it brings a node into balance, down to 50 when it takes one out of it. Pods that ask for neither have no say,
otherwise they would all go to the node that happens to be in balance.

These are the numbers of Kubernetes 1.36, in whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dray.placement.framework import MAX_SCORE, PreFilterResult
from dray.placement.resource_requests import CPU, MEMORY

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot, NodeState

NAME = "NodeResourcesBalancedAllocation"

_HALF = MAX_SCORE // 2


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """Requests for cpu and memory against what nodes have of both."""

    name: str = NAME

    def pre_filter(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> PreFilterResult | None:
        """Better where the pod makes use more even; nothing to say about pods that ask for neither."""
        cpu, memory = pending_pod.requests.get(CPU), pending_pod.requests.get(MEMORY)
        return _build_result(cpu, memory) if cpu or memory else None


@lru_cache(maxsize=1024)
def _build_result(cpu: int, memory: int) -> PreFilterResult:
    """The same for all pods of a template."""
    return PreFilterResult(score=_build_score(cpu, memory))


def _build_score(cpu: int, memory: int) -> Callable[[NodeState], int]:
    def score(seat: NodeState) -> int:
        likeness = seat.group_key
        allocatable, used = likeness.traits.allocatable, likeness.requests.amounts
        cpus, memories = allocatable.get(CPU, 0), allocatable.get(MEMORY, 0)
        used_cpu, used_memory = used.get(CPU, 0), used.get(MEMORY, 0)
        before = compute_balance(used_cpu, cpus, used_memory, memories)
        after = compute_balance(used_cpu + cpu, cpus, used_memory + memory, memories)
        return _HALF + (_HALF + after - before) // 2

    return score


@lru_cache(maxsize=8192)
def compute_balance(taken: int, given: int, other_taken: int, other_given: int) -> int:
    """How near two parts are: 100 when equal, 50 when one is all and the other nothing.

    More than all is all. A node without one of the two cannot be out of balance. Remembered, because what is
    taken after this pod is what was taken before the next.
    """
    if given <= 0 or other_given <= 0:
        return MAX_SCORE
    taken = min(taken, given)
    other_taken = min(other_taken, other_given)
    whole = given * other_given
    apart = abs(taken * other_given - other_taken * given)
    return (MAX_SCORE * whole - _HALF * apart) // whole
