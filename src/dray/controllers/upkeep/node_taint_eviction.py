"""The controller that evicts pods from nodes with `NoExecute` taints they do not tolerate.

Theory of operation: when the taints of a node change, its pods are checked; so is a pod that is bound to a
node with such taints. A pod that must leave later is checked again then. The controller only deletes: a pod
on an unreachable node stays terminating until the node itself reports its end, or an administrator declares
the node out of service (see `pod_garbage_collector`), because until then it may run and use its devices.

On a cluster of Kubernetes its own controllers do this; on dray's server it is part of the upkeep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.api.core import Node, Pod
from dray.claims import reservation
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey
from dray.controllers.informers import NODE_INDEX, SharedInformers
from dray.controllers.pod_evictor import EvictionWording, PodEvictor
from dray.controllers.workqueue import WorkQueue
from dray.placement.node_health import NO_EXECUTE, UNREACHABLE, NodeEviction, find_node_eviction
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

QUEUE_NAME: Final = "node_taint_eviction"
WORDING: Final = EvictionWording(
    "DeletionByTaintManager",
    "TaintManagerEviction",
    "Taint manager",
    "deleting due to NoExecute taint",
)
HOLD_SECONDS: Final = 5.0
WORKERS: Final = 8


class NodeTaintEvictionController:
    """Deletes pods that do not tolerate the taints of their node."""

    informers: tuple[Informer[Any], ...] = ()

    def __init__(
        self,
        client: Client,
        shared_informers: SharedInformers,
        nodes: Informer[Node],
        recorder: EventRecorder,
        metrics: MetricsRegistry,
        log: StructuredLogger,
    ) -> None:
        self._shared_informers, self._nodes, self._log = shared_informers, nodes, log
        self._clock = client.options.time_source.clock
        self._evictor = PodEvictor(client, recorder, WORDING)
        self.queue: WorkQueue[ObjectKey] = WorkQueue(QUEUE_NAME, client.options.time_source, metrics)
        self.is_on_hold: Callable[[], bool] = lambda: False
        """Whether it is uncertain which nodes are unreachable, so that no pod is evicted for that."""
        nodes.listen(self._on_node_added, self._on_node_updated)
        shared_informers.pods.listen(self._on_pod_added, self._on_pod_updated)

    async def run(self) -> None:
        """Evict pods until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, WORKERS)

    def _log_failure(self, key: ObjectKey, error: Exception) -> None:
        self._log.warning("an eviction failed and is tried again later", pod=str(key), why=str(error))

    def _on_node_added(self, node: Node) -> None:
        if _has_no_execute_taint(node):
            for pod in self._shared_informers.pods.get_by_index(NODE_INDEX, node.metadata.name):
                self.queue.add(ObjectKey(pod.metadata.namespace, pod.metadata.name))

    def _on_node_updated(self, old: Node, new: Node) -> None:
        if old.spec.taints != new.spec.taints:
            self._on_node_added(new)

    def _on_pod_added(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        if node is not None and _has_no_execute_taint(node):
            self.queue.add(ObjectKey(pod.metadata.namespace, pod.metadata.name))

    def _on_pod_updated(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name or old.spec.tolerations != new.spec.tolerations:
            self._on_pod_added(new)

    async def _reconcile(self, key: ObjectKey) -> None:
        pod = self._shared_informers.pods.get(key.name, key.namespace)
        if pod is None:
            return
        eviction = self._decide_eviction(pod, key)
        left = 0.0 if eviction is None else (eviction.at - self._clock.now()).total_seconds()
        if eviction is None or left > 0:
            await self._evictor.cancel_eviction(pod)
            if eviction is not None:
                self.queue.add_after(key, left)
        elif await self._evictor.evict(pod, eviction.why):
            self._log.info("a pod was evicted", pod=str(key), why=eviction.why)

    def _decide_eviction(self, pod: Pod, key: ObjectKey) -> NodeEviction | None:
        if pod.metadata.deletion_timestamp is not None or reservation.is_pod_finished(pod):
            return None
        node = self._nodes.get(pod.spec.node_name)
        taints = () if node is None else node.spec.taints
        if self.is_on_hold():
            certain = tuple(taint for taint in taints if taint.key != UNREACHABLE)
            if certain != taints:
                self.queue.add_after(key, HOLD_SECONDS)
            taints = certain
        return find_node_eviction(pod, taints)


def _has_no_execute_taint(node: Node) -> bool:
    return any(taint.effect == NO_EXECUTE for taint in node.spec.taints)
