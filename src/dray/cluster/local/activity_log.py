"""Tells what becomes of pods, line by line, while a cluster runs in a terminal.

Theory of operation: a line is told when a pod's place, its progress or its devices have changed since the
last line about it. A cluster under load changes faster than anybody reads: beyond a rate, lines are counted
and the number is told instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.informers.informer import Informer, Ways, without_managed_fields
from dray.client.timing import Limiter
from dray.cluster.live.overview import devices_of, pod_word
from dray.telemetry.metrics import Metrics, table

LINES_PER_SECOND: Final = 20.0
_AT_ONCE: Final = 60
_SENTENCES: Final = {
    "starting": "{pod} comes to {node}{devices}",
    "running": "{pod} runs on {node}{devices}",
    "done": "{pod} is done on {node}",
    "failed": "{pod} failed on {node}",
    "ending": "{pod} is asked to end on {node}",
    "waiting": "{pod} waits{why}",
}


class Narrator:
    """Tells what becomes of pods."""

    def __init__(self, client: Client, tell: Callable[[str], None]) -> None:
        ways = Ways(keep=without_managed_fields)
        self._pods = Informer(client, Pod, ways=ways)
        self._claims = Informer(client, ResourceClaim, ways=ways)
        self._tell = tell
        self._told: dict[str, str] = {}
        self._limit = Limiter(LINES_PER_SECOND, _AT_ONCE, client.habits.tempo)
        self._unsaid = 0
        self.ready = asyncio.Event()
        self.metrics = Metrics(table())

    async def run(self) -> None:
        """Tell until cancelled; what is the case already when it begins is told, too."""
        self._pods.listen(added=self._look, updated=lambda _before, now: self._look(now), deleted=self._bye)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run())
            await self._claims.synced()
            tasks.create_task(self._pods.run())
            await self._pods.synced()
            self.ready.set()

    def _look(self, pod: Pod) -> None:
        line = self._line(pod)
        if line and self._told.get(pod.metadata.uid) != line:
            self._told[pod.metadata.uid] = line
            self._say(line)

    def _bye(self, pod: Pod) -> None:
        if self._told.pop(pod.metadata.uid, None):
            self._say(f"{pod.metadata.namespace}/{pod.metadata.name} is gone")

    def _line(self, pod: Pod) -> str:
        word = pod_word(pod)
        devices = ", ".join(devices_of(pod, self._claims.get)) if pod.spec.resource_claims else ""
        told = [each.message for each in pod.status.conditions if each.type == "PodScheduled"]
        if word == "waiting" and not told:
            return ""  # nobody has looked at it yet
        return _SENTENCES[word].format(
            pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=pod.spec.node_name or "no node",
            devices=f" with {devices}" if devices else "",
            why=f": {told[0]}" if told and told[0] else "",
        )

    def _say(self, line: str) -> None:
        if not self._limit.try_turn():
            self._unsaid += 1
            return
        if self._unsaid:
            self._tell(f"... and {self._unsaid} more changes")
            self._unsaid = 0
        self._tell(line)
