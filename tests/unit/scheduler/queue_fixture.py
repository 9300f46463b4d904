"""A scheduling queue with a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.api.core import Pod, PodResourceClaimStatus, PodSpec, PodStatus, SchedulingGate
from dray.api.meta import ObjectMeta
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queued_pod import QueuedPod

DEVICES = Signal(Topic.DEVICES)
RESOURCES = Signal(Topic.RESOURCES)


def pod(name: str = "a", *, priority: int | None = None, gates: tuple[str, ...] = (), **spec: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
        spec=PodSpec(
            priority=priority,
            scheduling_gates=tuple(SchedulingGate(name=gate) for gate in gates),
            scheduler_name="dray",
            **spec,
        ),
    )


def recorded(before: Pod, **claims: str) -> Pod:
    """The pod with claims recorded in its status."""
    rows = tuple(
        PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in claims.items()
    )
    return Pod(metadata=before.metadata, spec=before.spec, status=PodStatus(resource_claim_statuses=rows))


class QueueFixture:
    """A queue, its clock, and what it was asked and told."""

    def __init__(self, judge: Callable[[Pod], PluginRejection | None] | None = None) -> None:
        self.clock = ManualClock()
        self.moves: list[tuple[str, str, str]] = []
        self.verdicts: dict[str, PluginRejection] = {}
        self.queue = SchedulingQueue(
            TimeSource(self.clock, self.sleep), pre_enqueue=judge or self.judge, on_enqueued=self.told
        )

    async def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def judge(self, asked: Pod) -> PluginRejection | None:
        return self.verdicts.get(asked.metadata.name)

    def told(self, entry: QueuedPod, event: str) -> None:
        self.moves.append((entry.pod.metadata.name, entry.state.value, event))

    def take(self) -> QueuedPod:
        entry = self.queue.pop_ready()
        assert entry is not None
        return entry

    def entry(self, name: str) -> QueuedPod:
        entry = self.queue.get(f"uid-{name}")
        assert entry is not None
        return entry

    def places(self) -> dict[str, int]:
        """The lengths that are not zero."""
        return {place: count for place, count in self.queue.count_pending().items() if count}

    def order(self) -> list[str]:
        """The names of all that are ready, as they come."""
        names = []
        while (entry := self.queue.pop_ready()) is not None:
            names.append(entry.pod.metadata.name)
        return names

    def waiting(self, name: str, *signals: Signal, prompt: bool = False) -> QueuedPod:
        """A pod that was tried and waits."""
        self.queue.add(pod(name))
        entry = self.take()
        assert entry.pod.metadata.name == name
        self.queue.requeue(entry, frozenset(signals), skip_backoff=prompt)
        return entry
