"""Pods that no node will ever end, because it is gone or given up: they are marked as failed and removed.

Theory of operation: a pod whose node is not there is looked at again after a time of grace, because a node
may come back, and because pods may be seen before their node. Then the server is asked; when there is still
no such node, the pod goes without waiting for a node to agree. So does a pod that is on its way out of a node
that somebody declared out of service and that is not ready. The claims they used are freed by the claim
controller, as for any pod that is gone; what the node may still have in its hands the ledger holds back.

On a cluster of Kubernetes its own controllers do this; for dray's server it is part of the upkeep.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Node, Pod
from dray.claims import reservation
from dray.client.client import Client, Deletion
from dray.client.errors import Conflict, NotFound
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.object_refs import Key
from dray.client.patches import StrategicPatch
from dray.clock import timestamp
from dray.controllers.informers import NODE, Sights, ways
from dray.controllers.workqueue import WorkQueue
from dray.placement.fencing import failed, is_given_up
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "orphaned_pods"
GRACE: Final = 40.0
"""Seconds a node may be absent before its pods are taken for lost."""
WORKERS: Final = 4


class OrphanController:
    """Ends pods whose node is gone, or does not end them itself any more."""

    def __init__(
        self,
        client: Client,
        sights: Sights,
        recorder: EventRecorder,
        metrics: Metrics,
        log: Log,
        *,
        grace: float = GRACE,
    ) -> None:
        self._client, self._sights, self._recorder, self._log = client, sights, recorder, log
        self._grace = grace
        self._clock = client.habits.tempo.clock
        self.nodes = self._nodes = Informer(client, Node, ways=ways(log))
        self.informers: tuple[Informer[Any], ...] = (self._nodes,)
        self.queue: WorkQueue[Key] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        self._absent_since: dict[str, float] = {}
        sights.pods.listen(self._pod_seen, self._pod_changed)
        self._nodes.listen(self._node_came, lambda _old, new: self._node_came(new), self._node_went)

    async def run(self) -> None:
        """Look for pods without a node, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._look_at, self._troubled, WORKERS)

    def _troubled(self, key: Key, failed: Exception) -> None:
        self._log.warning("a pod without a node is tried again later", pod=str(key), why=str(failed))

    def _pod_seen(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        if pod.spec.node_name and (node is None or _is_stuck(pod, node)):
            self.queue.add(Key(pod.metadata.namespace, pod.metadata.name))

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        leaves = new.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None
        if leaves or (new.spec.node_name and not old.spec.node_name):
            self._pod_seen(new)

    def _node_came(self, node: Node) -> None:
        self._absent_since.pop(node.metadata.name, None)
        if is_given_up(node):
            self._look_over(node)

    def _node_went(self, node: Node) -> None:
        self._look_over(node)

    def _look_over(self, node: Node) -> None:
        for pod in self._sights.pods.by_index(NODE, node.metadata.name):
            self._pod_seen(pod)

    async def _look_at(self, key: Key) -> None:
        pod = self._sights.pods.get(key.name, key.namespace)
        if pod is None or not pod.spec.node_name:
            return
        name, now = pod.spec.node_name, self._clock.monotonic()
        seen = self._nodes.get(name)
        if seen is not None:
            if _is_stuck(pod, seen) and _is_stuck(pod, await self._asked(name)):
                await self._end(pod, f"node {name} is out of service")
            return
        waited = now - self._absent_since.setdefault(name, now)
        if waited < self._grace:
            self.queue.add_later(key, self._grace - waited)
        elif await self._asked(name) is None:
            await self._end(pod, f"node {name} is gone")

    async def _asked(self, node: str) -> Node | None:
        """A node as the server itself knows it."""
        try:
            return await self._client.get(Node, node)
        except NotFound:
            return None

    async def _end(self, pod: Pod, why: str) -> None:
        metadata = pod.metadata
        try:
            if not reservation.is_over(pod):
                await self._mark(pod, why)
            how = Deletion(uid=metadata.uid, grace=0)
            await self._client.delete(Pod, metadata.name, metadata.namespace, how)
        except (NotFound, Conflict):
            return  # the pod is gone, or another one has its name
        self._log.info("a pod was ended", pod=f"{metadata.namespace}/{metadata.name}", why=why)

    async def _mark(self, pod: Pod, why: str) -> None:
        self._recorder.record(pod, "NodeLost", f"the pod is deleted: {why}", warning=True)
        status = failed(pod, why, now=timestamp(self._clock.now()))
        patch = StrategicPatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        metadata = pod.metadata
        await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")


def _is_stuck(pod: Pod, node: Node | None) -> bool:
    """Whether a pod is on its way out of a node that will not let it go."""
    return pod.metadata.deletion_timestamp is not None and node is not None and is_given_up(node)
