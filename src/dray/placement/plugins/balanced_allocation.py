"""NodeResourcesBalancedAllocation: prefers nodes that a pod fills evenly with CPU and memory.

Theory of operation: a node with half of its CPU and half of its memory in use is balanced; one without free
CPU has memory that no pod can use. The balance is 100 when both fractions are equal and 50 when one is
everything and the other nothing. The score is the change: 75 when nothing changes, up to 100 when the pod
brings a node into balance, down to 50 when it takes it out of balance. Pods that request neither get no
score, otherwise they would all go to the node that happens to be balanced.

These are the numbers of Kubernetes 1.36, in integers.
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
        """Score nodes by balance; None for pods that request neither resource."""
        cpu, memory = pending_pod.requests.get(CPU), pending_pod.requests.get(MEMORY)
        return _build_result(cpu, memory) if cpu or memory else None


@lru_cache(maxsize=1024)
def _build_result(cpu: int, memory: int) -> PreFilterResult:
    """The same for all pods of a template."""
    return PreFilterResult(score=_build_score(cpu, memory))


def _build_score(cpu: int, memory: int) -> Callable[[NodeState], int]:
    def score(node_state: NodeState) -> int:
        likeness = node_state.group_key
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

    Fractions above one count as one. A node without one of the two cannot be out of balance. Cached, because
    the use after this pod is the use before the next.
    """
    if given <= 0 or other_given <= 0:
        return MAX_SCORE
    taken = min(taken, given)
    other_taken = min(other_taken, other_given)
    whole = given * other_given
    apart = abs(taken * other_given - other_taken * given)
    return (MAX_SCORE * whole - _HALF * apart) // whole
