"""What the pods of a node share: who runs containers, who prepares claims, whom to tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.timing import Tempo
from dray.node.agent_metrics import Metrics
from dray.node.claims.preparer import Claims
from dray.node.containers.runtime.base import Launch, NotStarted, Runtime
from dray.node.pods.restart_policy import Pace
from dray.telemetry.logs import Log


class Launcher(Protocol):
    """Looks up and expands what a container needs to start, and knows where its output goes."""

    async def launch(
        self, pod: Mapping[str, Any], container: str, attempt: int, devices: tuple[str, ...]
    ) -> Launch | NotStarted:
        """A container ready to be started, or why it cannot be; `devices` are names of CDI devices."""
        ...

    def trim(self, pod: Mapping[str, Any], container: str, attempt: int) -> None:
        """Keep the output of an attempt and of the one before it, and of no other."""
        ...

    def forget(self, pod: Mapping[str, Any]) -> None:
        """The pod is gone, and what its containers said with it."""
        ...

    def sweep(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """All pods but these are gone."""
        ...


class HealthBook(Protocol):
    """Knows how devices are."""

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """`Healthy`, `Unhealthy` or `Unknown`, and what the driver says about it."""
        ...


@dataclass(frozen=True)
class Shop:
    """Everything that the pods of a node share."""

    client: Client
    runtime: Runtime
    claims: Claims
    launcher: Launcher
    health: HealthBook
    recorder: EventRecorder
    metrics: Metrics
    log: Log
    address: str = "127.0.0.1"
    pace: Pace = field(default_factory=Pace)

    @property
    def tempo(self) -> Tempo:
        return self.client.habits.tempo

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.tempo.clock.now().timestamp()
