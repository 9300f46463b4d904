"""Plugin framework: the phases of a scheduling cycle, and what a plugin contributes to them.

Theory of operation: the cycle calls each plugin once per pod (PreFilter). The plugin returns a result, a
rejection of the whole cluster, or None. A result narrows the nodes by name, filters them (Filter) and scores
them (Score); `normalize_scores` maps scores to 0..100 over all remaining nodes, and the profile weighs them.
Nodes that are alike get the same answer, so a filter runs once per group, unless it reads names or labels
(`by_node`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from dray.api.resource import AllocationResult, ResourceClaim
from dray.placement.rejections import PluginRejection

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot, NodeState

MAX_SCORE = 100
"""The best score."""


class Phase(StrEnum):
    """The phases of a cycle, named as in Kubernetes."""

    PRE_ENQUEUE = "PreEnqueue"
    PRE_FILTER = "PreFilter"
    FILTER = "Filter"
    POST_FILTER = "PostFilter"
    PRE_SCORE = "PreScore"
    SCORE = "Score"
    RESERVE = "Reserve"
    PRE_BIND = "PreBind"


ScoreNormalizer = Callable[[Sequence[int]], Sequence[int]]
"""Maps the raw scores of all remaining nodes to 0..100."""


def keep_scores(scores: Sequence[int]) -> Sequence[int]:
    """Scores that are 0..100 already."""
    return scores


def normalize_to_max(scores: Sequence[int]) -> Sequence[int]:
    """The best gets 100 and the others their part of it; nothing when all have nothing."""
    most = max(scores, default=0)
    return [score * MAX_SCORE // most for score in scores] if most else scores


def normalize_inverted(scores: Sequence[int]) -> Sequence[int]:
    """The smallest is best: 100 for none, 0 for the most; all get 100 when all have none."""
    most = max(scores, default=0)
    return (
        [MAX_SCORE - score * MAX_SCORE // most for score in scores] if most else [MAX_SCORE for _ in scores]
    )


def normalize_min_max(scores: Sequence[int]) -> Sequence[int]:
    """The worst gets 0, the best 100, the others what lies between; 0 for all when they are equal."""
    least, most = min(scores, default=0), max(scores, default=0)
    return [(score - least) * MAX_SCORE // (most - least) if most > least else 0 for score in scores]


ClaimAllocation = tuple[ResourceClaim, AllocationResult]
"""A claim and the devices it gets."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """What a plugin contributes for one pod in one cycle; None where it contributes nothing."""

    node_names: frozenset[str] | None = None
    """The only nodes that come into question."""
    other_nodes_rejection: PluginRejection | None = None
    """The rejection of all nodes outside `node_names`."""
    filter: Callable[[NodeState], PluginRejection | None] | None = None
    score: Callable[[NodeState], int] | None = None
    normalize_scores: ScoreNormalizer = keep_scores
    by_node: bool = False
    """Whether `filter` or `score` look at the name or the labels of the node."""
    reserve: Callable[[NodeState], tuple[ClaimAllocation, ...]] | None = None
    """What the claims of the pod get on the chosen node."""


class SchedulingPlugin(Protocol):
    """A scheduler plugin."""

    @property
    def name(self) -> str:
        """Its name as in Kubernetes, for profiles and metrics."""
        ...

    def pre_filter(
        self, pending_pod: PendingPod, snapshot: ClusterSnapshot
    ) -> PreFilterResult | PluginRejection | None:
        """Evaluate a pod; a rejection when no node is feasible, None when the plugin does not apply."""
        ...
