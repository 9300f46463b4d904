"""The collaborators of all pod workers on a node, and the protocols of two of them."""

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
    """Builds launches of containers and manages their log files."""

    async def build_launch(
        self, pod: Mapping[str, Any], container: str, attempt: int, devices: tuple[str, ...]
    ) -> ContainerLaunch | ContainerNotStarted:
        """Build the launch of a container, or return why it cannot start; `devices` are CDI names."""
        ...

    def prune_logs(self, pod: Mapping[str, Any], container: str, attempt: int) -> None:
        """Delete the logs of all attempts older than the previous one."""
        ...

    def delete_logs(self, pod: Mapping[str, Any]) -> None:
        """Delete the logs of a pod."""
        ...

    def delete_orphaned_logs(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Delete the logs of all pods but these."""
        ...


class DeviceHealthSource(Protocol):
    """Returns the health of devices."""

    def get_health(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """Return `Healthy`, `Unhealthy` or `Unknown`, and the driver's message."""
        ...


@dataclass(frozen=True)
class PodWorkerContext:
    """The collaborators that every pod worker of a node uses."""

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
        """Return the current time in seconds since the epoch."""
        return self.time_source.clock.now().timestamp()
