"""The simulated kubelet: deletes terminating pods of simulated nodes without an agent.

Theory of operation: a pod with a node is only removed when the node's agent reports that nothing of it runs
any more. Nothing ever runs on a simulated node without an agent, so its pods are deleted at once, whatever
their grace period. Pods are not watched before there is such a node.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dray.api.core import Node, Pod
from dray.client.client import Client, DeleteOptions
from dray.client.errors import ConflictError, NotFoundError
from dray.client.informers.informer import Informer, InformerOptions, strip_managed_fields
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.cluster.local.example_nodes import SIMULATED_LABEL
from dray.telemetry.metrics import MetricsRegistry, build_metric_table

WORKERS: Final = 4


class SimulatedKubelet:
    """Deletes terminating pods of simulated nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        options = InformerOptions(transform=strip_managed_fields)
        self._nodes = Informer(client, Node, label_selector=f"{SIMULATED_LABEL}=true", options=options)
        self._pods = Informer(client, Pod, field_selector="spec.nodeName!=", options=options)
        self._removal_queue: asyncio.Queue[Pod] = asyncio.Queue()
        self._has_nodes = asyncio.Event()
        self.ready = asyncio.Event()
        self.metrics = MetricsRegistry(build_metric_table())

    async def run(self) -> None:
        """Delete pods until cancelled."""
        self._nodes.listen(added=lambda _node: self._has_nodes.set())
        self._pods.listen(added=self._on_pod_changed, updated=lambda _before, now: self._on_pod_changed(now))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            await self._nodes.wait_for_sync()
            self.ready.set()
            await self._has_nodes.wait()
            tasks.create_task(self._pods.run())
            for _ in range(WORKERS):
                tasks.create_task(self._remove_pods())

    def _on_pod_changed(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None and self._nodes.get(pod.spec.node_name) is not None:
            self._removal_queue.put_nowait(pod)

    async def _remove_pods(self) -> None:
        while True:
            pod = await self._removal_queue.get()
            backoff = Backoff(self._client.options.time_source)
            while not await self._try_remove_pod(pod):
                await backoff.wait()

    async def _try_remove_pod(self, pod: Pod) -> bool:
        """Delete a pod; False when it has to be tried again."""
        metadata = pod.metadata
        delete_options = DeleteOptions(uid=metadata.uid, grace_seconds=0)
        try:
            await self._client.delete(Pod, metadata.name, metadata.namespace, delete_options)
        except (NotFoundError, ConflictError):
            return True
        except CALL_ERRORS:
            return False
        return True
