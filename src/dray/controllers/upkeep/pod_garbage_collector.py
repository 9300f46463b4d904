"""The pod garbage collector: fails and deletes pods whose node is gone or out of service.

Theory of operation: a pod whose node does not exist is checked again after a grace period, because a node may
come back, and because the watch may show a pod before its node. Then the server is asked; when there is still
no such node, the pod is deleted without grace. So is a terminating pod on a node that is declared out of
service and not ready. The claim controller releases the claims of these pods, as of any deleted pod; devices
that the node may still have prepared the ledger holds back.

On a cluster of Kubernetes its own controllers do this; on dray's server it is part of the upkeep.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Node, Pod
from dray.claims import reservation
from dray.client.client import Client, DeleteOptions
from dray.client.errors import ConflictError, NotFoundError
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey
from dray.client.patches import StrategicMergePatch
from dray.clock import format_timestamp
from dray.controllers.informers import NODE_INDEX, SharedInformers, build_informer_options
from dray.controllers.workqueue import WorkQueue
from dray.placement.fencing import allows_forced_deletion, build_failed_status
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

QUEUE_NAME: Final = "orphaned_pods"
GRACE_SECONDS: Final = 40.0
"""Seconds a node may be absent before its pods are deleted."""
WORKERS: Final = 4


class PodGarbageCollector:
    """Deletes pods whose node is gone, or does not stop them any more."""

    def __init__(
        self,
        client: Client,
        shared_informers: SharedInformers,
        recorder: EventRecorder,
        metrics: MetricsRegistry,
        log: StructuredLogger,
        *,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._client, self._shared_informers, self._recorder, self._log = (
            client,
            shared_informers,
            recorder,
            log,
        )
        self._grace = grace
        self._clock = client.options.time_source.clock
        self.nodes = self._nodes = Informer(client, Node, options=build_informer_options(log))
        self.informers: tuple[Informer[Any], ...] = (self._nodes,)
        self.queue: WorkQueue[ObjectKey] = WorkQueue(QUEUE_NAME, client.options.time_source, metrics)
        self._absent_since: dict[str, float] = {}
        shared_informers.pods.listen(self._on_pod_added, self._on_pod_updated)
        self._nodes.listen(
            self._on_node_updated, lambda _old, new: self._on_node_updated(new), self._on_node_deleted
        )

    async def run(self) -> None:
        """Collect pods without a node until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, WORKERS)

    def _log_failure(self, key: ObjectKey, error: Exception) -> None:
        self._log.warning(
            "deleting a pod without a node failed and is tried again later", pod=str(key), why=str(error)
        )

    def _on_pod_added(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        if pod.spec.node_name and (node is None or _is_stuck(pod, node)):
            self.queue.add(ObjectKey(pod.metadata.namespace, pod.metadata.name))

    def _on_pod_updated(self, old: Pod, new: Pod) -> None:
        leaves = new.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None
        if leaves or (new.spec.node_name and not old.spec.node_name):
            self._on_pod_added(new)

    def _on_node_updated(self, node: Node) -> None:
        self._absent_since.pop(node.metadata.name, None)
        if allows_forced_deletion(node):
            self._check_pods_of_node(node)

    def _on_node_deleted(self, node: Node) -> None:
        self._check_pods_of_node(node)

    def _check_pods_of_node(self, node: Node) -> None:
        for pod in self._shared_informers.pods.get_by_index(NODE_INDEX, node.metadata.name):
            self._on_pod_added(pod)

    async def _reconcile(self, key: ObjectKey) -> None:
        pod = self._shared_informers.pods.get(key.name, key.namespace)
        if pod is None or not pod.spec.node_name:
            return
        name, now = pod.spec.node_name, self._clock.monotonic()
        seen = self._nodes.get(name)
        if seen is not None:
            if _is_stuck(pod, seen) and _is_stuck(pod, await self._read_node(name)):
                await self._remove_pod(pod, f"node {name} is out of service")
            return
        waited = now - self._absent_since.setdefault(name, now)
        if waited < self._grace:
            self.queue.add_after(key, self._grace - waited)
        elif await self._read_node(name) is None:
            await self._remove_pod(pod, f"node {name} is gone")

    async def _read_node(self, node: str) -> Node | None:
        """Read a node from the server."""
        try:
            return await self._client.get(Node, node)
        except NotFoundError:
            return None

    async def _remove_pod(self, pod: Pod, why: str) -> None:
        metadata = pod.metadata
        try:
            if not reservation.is_pod_finished(pod):
                await self._mark_failed(pod, why)
            options = DeleteOptions(uid=metadata.uid, grace_seconds=0)
            await self._client.delete(Pod, metadata.name, metadata.namespace, options)
        except (NotFoundError, ConflictError):
            return  # the pod is gone, or another one has its name
        self._log.info("a pod was deleted", pod=f"{metadata.namespace}/{metadata.name}", why=why)

    async def _mark_failed(self, pod: Pod, why: str) -> None:
        self._recorder.record(pod, "NodeLost", f"the pod is deleted: {why}", warning=True)
        status = build_failed_status(pod, why, now=format_timestamp(self._clock.now()))
        patch = StrategicMergePatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        metadata = pod.metadata
        await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")


def _is_stuck(pod: Pod, node: Node | None) -> bool:
    """Whether a terminating pod is on a node that allows forced deletion."""
    return pod.metadata.deletion_timestamp is not None and node is not None and allows_forced_deletion(node)
