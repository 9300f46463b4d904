"""The activity log: writes a line when a pod changes, while a cluster runs in a terminal.

Theory of operation: a line is written when a pod's node, state or devices have changed since the last line
about it. A cluster under load changes faster than people read: beyond a rate, lines are counted and their
number is written instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.informers.informer import Informer, InformerOptions, strip_managed_fields
from dray.client.timing import RateLimiter
from dray.cluster.live.overview import describe_pod_state, list_pod_devices
from dray.telemetry.metrics import MetricsRegistry, build_metric_table

LINES_PER_SECOND: Final = 20.0
_MAX_BURST: Final = 60
_MESSAGE_TEMPLATES: Final = {
    "starting": "{pod} comes to {node}{devices}",
    "running": "{pod} runs on {node}{devices}",
    "done": "{pod} is done on {node}",
    "failed": "{pod} failed on {node}",
    "ending": "{pod} is asked to end on {node}",
    "waiting": "{pod} waits{why}",
}


class ActivityLog:
    """Writes what happens to pods."""

    def __init__(self, client: Client, write_line: Callable[[str], None]) -> None:
        options = InformerOptions(transform=strip_managed_fields, may_share=True)
        self._pods = Informer(client, Pod, options=options)
        self._claims = Informer(client, ResourceClaim, options=options)
        self._write_line = write_line
        self._last_lines: dict[str, str] = {}
        self._limiter = RateLimiter(LINES_PER_SECOND, _MAX_BURST, client.options.time_source)
        self._suppressed = 0
        self.ready = asyncio.Event()
        self.metrics = MetricsRegistry(build_metric_table())

    async def run(self) -> None:
        """Write until cancelled, beginning with the current state."""
        self._pods.listen(
            added=self._on_pod_changed,
            updated=lambda _before, now: self._on_pod_changed(now),
            deleted=self._on_pod_deleted,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run())
            await self._claims.wait_for_sync()
            tasks.create_task(self._pods.run())
            await self._pods.wait_for_sync()
            self.ready.set()

    def _on_pod_changed(self, pod: Pod) -> None:
        line = self._render_line(pod)
        if line and self._last_lines.get(pod.metadata.uid) != line:
            self._last_lines[pod.metadata.uid] = line
            self._emit(line)

    def _on_pod_deleted(self, pod: Pod) -> None:
        if self._last_lines.pop(pod.metadata.uid, None):
            self._emit(f"{pod.metadata.namespace}/{pod.metadata.name} is gone")

    def _render_line(self, pod: Pod) -> str:
        state = describe_pod_state(pod)
        held = list_pod_devices(pod, self._claims.get) if pod.spec.resource_claims else ()
        devices = ", ".join(map(str, held))
        messages = [each.message for each in pod.status.conditions if each.type == "PodScheduled"]
        if state == "waiting" and not messages:
            return ""  # no scheduler has reported on it yet
        return _MESSAGE_TEMPLATES[state].format(
            pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=pod.spec.node_name or "no node",
            devices=f" with {devices}" if devices else "",
            why=f": {messages[0]}" if messages and messages[0] else "",
        )

    def _emit(self, line: str) -> None:
        if not self._limiter.try_acquire():
            self._suppressed += 1
            return
        if self._suppressed:
            self._write_line(f"... and {self._suppressed} more changes")
            self._suppressed = 0
        self._write_line(line)
