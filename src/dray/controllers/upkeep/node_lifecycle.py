"""The node lifecycle controller: writes the condition and taints of nodes that are unreachable or not ready.

Theory of operation: an agent renews the lease of its node every few seconds. What counts is when this process
saw the lease change last, on its own clock, not the time that the node wrote into it. A node whose lease did
not change for a while is suspected: the controller reads the lease from the server, because its watch may be
late. Only when the server answers twice, some seconds apart, that nothing was renewed, the node is
unreachable; so neither a stalled watch nor a server outage makes nodes unreachable. The last readiness of the
node is kept in an annotation, and is restored when it comes back, until the node reports its own.

When most nodes look unreachable at once, the network between them and the server is broken and not the nodes:
then the controller only reports it.

A node without a lease has no agent, and is left alone.

On a cluster of Kubernetes its own controllers do this; on dray's server it is part of the upkeep.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Lease, Node, NodeCondition
from dray.client.client import Client
from dray.client.errors import NotFoundError
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.clock import format_timestamp
from dray.controllers.informers import build_informer_options
from dray.controllers.workqueue import WorkQueue
from dray.placement.node_health import (
    MONITOR_GRACE_PERIOD,
    NodeReadiness,
    build_returned_condition,
    build_unknown_condition,
    compute_readiness,
    compute_taints,
    find_ready_condition,
    is_majority_lost,
)
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

QUEUE_NAME: Final = "node_health"
LEASE_NAMESPACE: Final = "kube-node-lease"
CONFIRMATION_SECONDS: Final = 15.0
"""Seconds between the two answers of the server that confirm a suspicion."""
HOLD_SECONDS: Final = 30.0
"""Seconds until a node is checked again while most nodes look unreachable."""
READY_BEFORE_ANNOTATION: Final = "dray.dev/ready-before-lost"
"""An annotation: the last status of `Ready` before the node became unreachable."""
WORKERS: Final = 4


class NodeLifecycleController:
    """Marks nodes as unreachable or not ready, and as ready again."""

    def __init__(
        self,
        client: Client,
        nodes: Informer[Node],
        recorder: EventRecorder,
        metrics: MetricsRegistry,
        log: StructuredLogger,
        *,
        grace_period: float = MONITOR_GRACE_PERIOD,
    ) -> None:
        self._client, self._nodes, self._recorder, self._log = client, nodes, recorder, log
        self._grace_period, self._confirmation_seconds = (
            grace_period,
            min(CONFIRMATION_SECONDS, grace_period / 2),
        )
        self._clock = client.options.time_source.clock
        self._leases: Informer[Lease] = Informer(
            client, Lease, LEASE_NAMESPACE, options=build_informer_options(log)
        )
        self.informers: tuple[Informer[Any], ...] = (self._leases,)
        self.queue: WorkQueue[str] = WorkQueue(QUEUE_NAME, client.options.time_source, metrics)
        self._renewals: dict[str, tuple[str | None, float]] = {}
        """By node: the renewal time seen last, and when it was seen."""
        self._suspected_since: dict[str, float] = {}
        """Since when the server itself says that nothing was renewed."""
        self.is_disrupted = False
        """Whether most nodes look unreachable, so that none is marked."""
        self._leases.listen(self._on_lease_updated, lambda _old, new: self._on_lease_updated(new))
        nodes.listen(
            self._on_node_updated, lambda _old, new: self._on_node_updated(new), self._on_node_deleted
        )

    async def run(self) -> None:
        """Monitor nodes until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, WORKERS)

    def _log_failure(self, name: str, error: Exception) -> None:
        self._log.warning("checking a node failed and is tried again later", node=name, why=str(error))

    # --- event handlers ---

    def _on_lease_updated(self, lease: Lease) -> None:
        name, renewed = lease.metadata.name, lease.spec.renew_time
        known = self._renewals.get(name)
        if known is not None and known[0] == renewed:
            return
        was_unresponsive = known is not None and self._is_unresponsive(name)
        self._renewals[name] = (renewed, self._clock.monotonic())
        self._suspected_since.pop(name, None)
        if known is None or was_unresponsive:
            self.queue.add(name)

    def _on_node_updated(self, node: Node) -> None:
        if node.metadata.name in self._renewals:
            self.queue.add(node.metadata.name)

    def _on_node_deleted(self, node: Node) -> None:
        self._renewals.pop(node.metadata.name, None)
        self._suspected_since.pop(node.metadata.name, None)

    def _get_seconds_since_renewal(self, name: str) -> float:
        return self._clock.monotonic() - self._renewals[name][1]

    def _is_unresponsive(self, name: str) -> bool:
        """Whether a node is confirmed to be unreachable."""
        suspected = self._suspected_since.get(name)
        confirmed = (
            suspected is not None and self._clock.monotonic() - suspected >= self._confirmation_seconds
        )
        return confirmed and self._get_seconds_since_renewal(name) >= self._grace_period

    # --- reconciliation ---

    async def _reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or name not in self._renewals:
            return
        await self._confirm_with_server(name)
        if name not in self._renewals:
            return  # it was deleted meanwhile
        unresponsive = self._is_unresponsive(name)
        if self._update_disruption() and unresponsive:
            self._recorder.record(node, "NodesLookLost", _DISRUPTION_MESSAGE, warning=True)
            self.queue.add_after(name, HOLD_SECONDS)
            return
        await self._write_health(node, compute_readiness(node, lease_expired=unresponsive))
        if not unresponsive:
            self.queue.add_after(name, self._compute_next_check(name))

    def _compute_next_check(self, name: str) -> float:
        """Return the seconds until a node without news is checked again."""
        quiet, suspected = self._get_seconds_since_renewal(name), self._suspected_since.get(name)
        if suspected is None:
            return max(self._grace_period - self._confirmation_seconds - quiet, 0.0) + 0.001
        confirmed = self._confirmation_seconds - (self._clock.monotonic() - suspected)
        return max(self._grace_period - quiet, confirmed, 0.0) + 0.001

    async def _confirm_with_server(self, name: str) -> None:
        """Read the lease of a node without recent renewal from the server; a failed call confirms nothing."""
        if self._get_seconds_since_renewal(name) < self._grace_period - self._confirmation_seconds:
            return
        try:
            lease: Lease | None = await self._client.get(Lease, name, LEASE_NAMESPACE)
        except NotFoundError:
            lease = None
        known = self._renewals.get(name)
        if lease is not None and known is not None and lease.spec.renew_time != known[0]:
            self._on_lease_updated(lease)
        elif known is not None:
            self._suspected_since.setdefault(name, self._clock.monotonic())

    def _update_disruption(self) -> bool:
        # Suspected nodes count: nodes that fail at the same time are not confirmed at the same time.
        known = min(len(self._renewals), len(self._nodes))  # leases may outlive their nodes
        holding = is_majority_lost(len(self._suspected_since), known)
        if holding != self.is_disrupted:
            self.is_disrupted = holding
            if holding:
                self._log.error(_DISRUPTION_MESSAGE, silent=len(self._suspected_since), nodes=known)
            else:
                self._log.info("most nodes send heartbeats again")
                for name in self._suspected_since:
                    self.queue.add(name)
        return holding

    async def _write_health(self, node: Node, health: NodeReadiness) -> None:
        """Write the taints and the condition of a node where they differ."""
        now, name = format_timestamp(self._clock.now()), node.metadata.name
        taints = compute_taints(node, health, now=now)
        if taints is not node.spec.taints:
            await self._write_taints(node, health, taints)
        before = node.metadata.annotations.get(READY_BEFORE_ANNOTATION, "")
        lost = health is NodeReadiness.LOST
        condition = (
            build_unknown_condition(node, now=now)
            if lost
            else build_returned_condition(node, before, now=now)
        )
        if condition is not None:
            await self._write_condition(name, condition)

    async def _write_taints(self, node: Node, health: NodeReadiness, taints: tuple[Any, ...]) -> None:
        # The patch replaces the whole list, so a concurrent change must cause a conflict.
        metadata: dict[str, Any] = {"resourceVersion": node.metadata.resource_version}
        ready = find_ready_condition(node)
        if health is NodeReadiness.LOST and ready is not None and ready.status in ("True", "False"):
            metadata["annotations"] = {READY_BEFORE_ANNOTATION: ready.status}
        change = MergePatch({"metadata": metadata, "spec": {"taints": taints or None}})
        await self._client.patch(Node, node.metadata.name, change)
        message = _MESSAGES[health]
        self._log.info(message, node=node.metadata.name)
        self._recorder.record(node, _EVENT_REASONS[health], message, warning=health is not NodeReadiness.WELL)

    async def _write_condition(self, name: str, condition: NodeCondition) -> None:
        change = StrategicMergePatch({"status": {"conditions": [condition]}})
        await self._client.patch(Node, name, change, subresource="status")


_DISRUPTION_MESSAGE: Final = "most nodes send no heartbeats: none of them is marked as unreachable"
_MESSAGES: Final = {
    NodeReadiness.WELL: "the node is back",
    NodeReadiness.NOT_READY: "the node reports that it is not ready",
    NodeReadiness.LOST: "the node sends no heartbeats",
}
_EVENT_REASONS: Final = {
    NodeReadiness.WELL: "NodeReady",
    NodeReadiness.NOT_READY: "NodeNotReady",
    NodeReadiness.LOST: "NodeUnreachable",
}
