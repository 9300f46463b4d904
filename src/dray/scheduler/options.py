"""What somebody who runs a scheduler chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dray.allocator.feature_gates import Admission
from dray.allocator.search.resumable import SEARCH_SECONDS
from dray.claims.binding_conditions import LONGEST_WAIT
from dray.client.leases import USUAL, Timing
from dray.placement import profile
from dray.scheduler.queue import Terms
from dray.telemetry.logs import Log, silent

LEASE: Final = "dray-scheduler"
LEASE_NAMESPACE: Final = "kube-system"


@dataclass(frozen=True)
class Choices:
    """Who the scheduler is, whose pods it places, and how."""

    door: Admission
    new_share_id: Callable[[], str]
    identity: str = "dray-scheduler"
    placement: profile.Choices = field(default_factory=profile.Choices)
    claims: bool = True
    """Whether claims count; without, pods are placed as if they asked for none."""
    elect: bool = False
    lease: str = LEASE
    lease_namespace: str = LEASE_NAMESPACE
    timing: Timing = USUAL
    terms: Terms = field(default_factory=Terms)
    binding_wait: float = LONGEST_WAIT
    """Seconds a pod waits for its devices to become ready."""
    search_seconds: float = SEARCH_SECONDS
    """Seconds of work for the search on one kind of node; a pod as a whole gets ten times as much."""
    in_flight: int = 128
    """Placements that are written at the same time."""
    log: Log = field(default_factory=silent)
