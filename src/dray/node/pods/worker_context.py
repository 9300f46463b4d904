"""What the pods of a node share: who runs containers, who prepares claims, whom to tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.timing import TimeSource
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.claims.preparer import PodClaimPreparer
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted, ContainerRuntime
from dray.node.pods.restart_policy import RestartBackoff
from dray.telemetry.logs import StructuredLogger


class LaunchBuilder(Protocol):
    """Looks up and expands what a container needs to start, and knows where its output goes."""

    async def build_launch(
        self, pod: Mapping[str, Any], container: str, attempt: int, devices: tuple[str, ...]
    ) -> ContainerLaunch | ContainerNotStarted:
        """A container ready to be started, or why it cannot be; `devices` are names of CDI devices."""
        ...

    def prune_logs(self, pod: Mapping[str, Any], container: str, attempt: int) -> None:
        """Keep the output of an attempt and of the one before it, and of no other."""
        ...

    def delete_logs(self, pod: Mapping[str, Any]) -> None:
        """The pod is gone, and what its containers said with it."""
        ...

    def delete_orphaned_logs(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """All pods but these are gone."""
        ...


class DeviceHealthSource(Protocol):
    """Knows how devices are."""

    def get_health(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """`Healthy`, `Unhealthy` or `Unknown`, and what the driver says about it."""
        ...


@dataclass(frozen=True)
class PodWorkerContext:
    """Everything that the pods of a node share."""

    client: Client
    runtime: ContainerRuntime
    claims: PodClaimPreparer
    launch_builder: LaunchBuilder
    health: DeviceHealthSource
    recorder: EventRecorder
    metrics: NodeAgentMetrics
    log: StructuredLogger
    address: str = "127.0.0.1"
    restart_backoff: RestartBackoff = field(default_factory=RestartBackoff)

    @property
    def time_source(self) -> TimeSource:
        return self.client.options.time_source

    def get_time(self) -> float:
        """Seconds since the epoch."""
        return self.time_source.clock.now().timestamp()
