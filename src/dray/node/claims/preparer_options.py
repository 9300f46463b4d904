"""Options of the claim preparer: the node's state directory, its drivers, and hooks for logs and tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.core import Node
from dray.client.timing import TimeSource
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.claims.driver_calls import DriverLookup


def _discard_log(event: str, **fields: Any) -> None:
    pass


def _ignore_crash_point(point: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ClaimPreparerOptions:
    """Options of `PodClaimPreparer`, which its releaser and the accounting after a restore share."""

    get_node: Callable[[], Node]
    """Returns the node as last observed: its name, labels and annotations."""
    checkpoint_path: Path
    drivers: DriverLookup
    """The registered drivers."""
    boot_id: str
    time_source: TimeSource = field(default_factory=TimeSource)
    metrics: NodeAgentMetrics = field(default_factory=NodeAgentMetrics)
    prepare_claims: bool = True
    """Whether claims are prepared; otherwise pods start without their devices."""
    log: Callable[..., None] = _discard_log
    """Logs a message for operators, with fields."""
    crash_point: Callable[[str], None] = _ignore_crash_point
    """Called at the points where tests kill the agent."""
