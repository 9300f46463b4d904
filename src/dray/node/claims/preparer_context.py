"""What the parts of a claim office share: what it was told, and what it works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.core import Node
from dray.client.timing import TimeSource
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.claims.claim_events import PodClaimEvents
from dray.node.claims.driver_calls import CheckpointedCalls, DriverLookup
from dray.node.claims.preparations import NodePreparations
from dray.node.keyed_locks import Broadcast, NodeClaimLocks, PodTaskQueues


def _discard_log(event: str, **fields: Any) -> None:
    pass


def _ignore_crash_point(point: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ClaimPreparerOptions:
    """What a claim office is told."""

    get_node: Callable[[], Node]
    """The node as it was last seen: its name, labels and annotations."""
    checkpoint_path: Path
    drivers: DriverLookup
    """The drivers that are registered."""
    boot_id: str
    time_source: TimeSource = field(default_factory=TimeSource)
    metrics: NodeAgentMetrics = field(default_factory=NodeAgentMetrics)
    prepare_claims: bool = True
    """Whether pods get what their claims promise; they start without it otherwise."""
    log: Callable[..., None] = _discard_log
    """Told what operators should know: a sentence, and fields."""
    crash_point: Callable[[str], None] = _ignore_crash_point
    """Called at points where tests let the agent die."""


@dataclass(frozen=True, slots=True)
class ClaimPreparerContext:
    """What the parts of a claim office work with."""

    options: ClaimPreparerOptions
    calls: CheckpointedCalls
    preparations: NodePreparations
    events: PodClaimEvents
    claim_locks: NodeClaimLocks = field(default_factory=NodeClaimLocks)
    pod_queues: PodTaskQueues = field(default_factory=PodTaskQueues)
    changed: Broadcast = field(default_factory=Broadcast)
    """Rings when a driver came, or anything else changed that anybody may wait for."""
    released: Broadcast = field(default_factory=Broadcast)
    """Rings when a claim was given back."""
