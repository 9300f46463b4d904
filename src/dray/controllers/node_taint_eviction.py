"""Pods that must leave their node: it has a taint that they do not tolerate, or not any longer.

Theory of operation: when the taints of a node change, its pods are looked at; so is a pod that comes to a
node with such taints. A pod that must leave later is looked at again then. Deleting is all that is done: a
pod of a node that is lost stays on its way out until the node itself says that it ended, or an administrator
declares the node out of service (see `orphans`), because until then it may run and use its devices.

On a cluster of Kubernetes its own controllers do this; for dray's server it is part of the upkeep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.api.core import Node, Pod
from dray.claims import reservation
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.object_refs import Key
from dray.controllers.informers import NODE, Sights
from dray.controllers.pod_evictor import Evictor, Words
from dray.controllers.workqueue import WorkQueue
from dray.placement.node_health import NO_EXECUTE, UNREACHABLE, Leave, must_leave
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "node_taint_eviction"
WORDS: Final = Words(
    "DeletionByTaintManager",
    "TaintManagerEviction",
    "Taint manager",
    "deleting due to NoExecute taint",
)
HOLD: Final = 5.0
WORKERS: Final = 8


class NodeEvictionController:
    """Deletes pods that do not tolerate the taints of their node."""

    informers: tuple[Informer[Any], ...] = ()

    def __init__(
        self,
        client: Client,
        sights: Sights,
        nodes: Informer[Node],
        recorder: EventRecorder,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self._sights, self._nodes, self._log = sights, nodes, log
        self._clock = client.habits.tempo.clock
        self._evictor = Evictor(client, recorder, WORDS)
        self.queue: WorkQueue[Key] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        self.on_hold: Callable[[], bool] = lambda: False
        """Whether nobody knows which nodes are lost, so that no pod leaves one for that."""
        nodes.listen(self._node_came, self._node_changed)
        sights.pods.listen(self._pod_seen, self._pod_changed)

    async def run(self) -> None:
        """Look after pods, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._look_at, self._troubled, WORKERS)

    def _troubled(self, key: Key, failed: Exception) -> None:
        self._log.warning("an eviction is tried again later", pod=str(key), why=str(failed))

    def _node_came(self, node: Node) -> None:
        if _ends_pods(node):
            for pod in self._sights.pods.by_index(NODE, node.metadata.name):
                self.queue.add(Key(pod.metadata.namespace, pod.metadata.name))

    def _node_changed(self, old: Node, new: Node) -> None:
        if old.spec.taints != new.spec.taints:
            self._node_came(new)

    def _pod_seen(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        if node is not None and _ends_pods(node):
            self.queue.add(Key(pod.metadata.namespace, pod.metadata.name))

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name or old.spec.tolerations != new.spec.tolerations:
            self._pod_seen(new)

    async def _look_at(self, key: Key) -> None:
        pod = self._sights.pods.get(key.name, key.namespace)
        if pod is None:
            return
        leave = self._judged(pod, key)
        left = 0.0 if leave is None else (leave.at - self._clock.now()).total_seconds()
        if leave is None or left > 0:
            await self._evictor.spare(pod)
            if leave is not None:
                self.queue.add_later(key, left)
        elif await self._evictor.evict(pod, leave.why):
            self._log.info("a pod was evicted", pod=str(key), why=leave.why)

    def _judged(self, pod: Pod, key: Key) -> Leave | None:
        if pod.metadata.deletion_timestamp is not None or reservation.is_over(pod):
            return None
        node = self._nodes.get(pod.spec.node_name)
        taints = () if node is None else node.spec.taints
        if self.on_hold():
            sure = tuple(taint for taint in taints if taint.key != UNREACHABLE)
            if sure != taints:
                self.queue.add_later(key, HOLD)
            taints = sure
        return must_leave(pod, taints)


def _ends_pods(node: Node) -> bool:
    return any(taint.effect == NO_EXECUTE for taint in node.spec.taints)
