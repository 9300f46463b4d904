"""Options of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.search.resumable import SEARCH_SECONDS
from dray.claims.binding_conditions import MAX_WAIT_SECONDS
from dray.client.leases import DEFAULT_LEASE_TIMING, LeaseTiming
from dray.placement import profile
from dray.scheduler.queue import QueueTiming
from dray.telemetry.logs import StructuredLogger, build_silent_logger

LEASE_NAME: Final = "dray-scheduler"
LEASE_NAMESPACE: Final = "kube-system"


@dataclass(frozen=True)
class SchedulerOptions:
    """The identity of a scheduler, the pods it places, and its limits."""

    admission: AllocatorGateFilter
    new_share_id: Callable[[], str]
    identity: str = "dray-scheduler"
    placement: profile.PlacementOptions = field(default_factory=profile.PlacementOptions)
    handle_claims: bool = True
    """Whether claims count; without them, pods are placed as if they asked for none."""
    leader_elect: bool = False
    lease_name: str = LEASE_NAME
    lease_namespace: str = LEASE_NAMESPACE
    lease_timing: LeaseTiming = DEFAULT_LEASE_TIMING
    queue_timing: QueueTiming = field(default_factory=QueueTiming)
    max_binding_wait: float = MAX_WAIT_SECONDS
    """Seconds a pod waits for its devices to become ready."""
    search_seconds: float = SEARCH_SECONDS
    """Seconds of work for the search on one group of nodes; a pod as a whole gets ten times as much."""
    max_in_flight: int = 128
    """Placements that are written at the same time."""
    log: StructuredLogger = field(default_factory=build_silent_logger)
