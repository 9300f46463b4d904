"""Stands in for the agents of simulated nodes: pods that are to go, go.

Theory of operation: a pod that has a node is only removed when the node's agent says that nothing of it runs
any more. Nothing ever runs on a simulated node, so its pods may go at once, whatever their grace period. Pods
are not watched before there is such a node.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dray.api.core import Node, Pod
from dray.client.client import Client, Deletion
from dray.client.errors import Conflict, NotFound
from dray.client.informers.informer import Informer, Ways, without_managed_fields
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.cluster.local.example_nodes import SIMULATED
from dray.telemetry.metrics import Metrics, table

WORKERS: Final = 4


class Attendant:
    """Lets pods of simulated nodes go."""

    def __init__(self, client: Client) -> None:
        self._client = client
        ways = Ways(keep=without_managed_fields)
        self._nodes = Informer(client, Node, label_selector=f"{SIMULATED}=true", ways=ways)
        self._pods = Informer(client, Pod, field_selector="spec.nodeName!=", ways=ways)
        self._leaving: asyncio.Queue[Pod] = asyncio.Queue()
        self._needed = asyncio.Event()
        self.ready = asyncio.Event()
        self.metrics = Metrics(table())

    async def run(self) -> None:
        """Attend until cancelled."""
        self._nodes.listen(added=lambda _node: self._needed.set())
        self._pods.listen(added=self._look, updated=lambda _before, now: self._look(now))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            await self._nodes.synced()
            self.ready.set()
            await self._needed.wait()
            tasks.create_task(self._pods.run())
            for _ in range(WORKERS):
                tasks.create_task(self._see_off())

    def _look(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None and self._nodes.get(pod.spec.node_name) is not None:
            self._leaving.put_nowait(pod)

    async def _see_off(self) -> None:
        while True:
            pod = await self._leaving.get()
            backoff = Backoff(self._client.habits.tempo)
            while not await self._gone(pod):
                await backoff.wait()

    async def _gone(self, pod: Pod) -> bool:
        """Remove a pod; False when it has to be tried again."""
        metadata = pod.metadata
        now = Deletion(uid=metadata.uid, grace=0)
        try:
            await self._client.delete(Pod, metadata.name, metadata.namespace, now)
        except (NotFound, Conflict):
            return True
        except TROUBLE:
            return False
        return True
