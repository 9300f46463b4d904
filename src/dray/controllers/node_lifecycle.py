"""Nodes that give no sign of life, or say that they are not ready: their condition and their taints.

Theory of operation: an agent renews the lease of its node every few seconds. What counts is when we saw the
lease change last, on our own clock, not what time the node wrote into it. A node whose lease did not change
for a while is suspected: the server is asked for the lease itself, because our watch may be late. Only when
the server answers twice, some seconds apart, that nothing was renewed, the node is lost; so neither a watch
that stands still nor a server that was away makes nodes disappear. What a node said before it was lost is
noted on it, and is said again when it comes back, until the node speaks for itself.

When most nodes look lost at once, something between them and the server is broken and not the nodes: then
nothing is done but saying so.

A node without a lease is none that an agent keeps, and is left alone.

On a cluster of Kubernetes its own controllers do this; for dray's server it is part of the upkeep.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Lease, Node, NodeCondition
from dray.client.client import Client
from dray.client.errors import NotFound
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.patches import MergePatch, StrategicPatch
from dray.clock import timestamp
from dray.controllers.informers import ways
from dray.controllers.workqueue import WorkQueue
from dray.placement.node_health import (
    SILENCE,
    Health,
    health_of,
    most_are_lost,
    ready_of,
    returned,
    silenced,
    taints_of,
)
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "node_health"
LEASES: Final = "kube-node-lease"
DOUBT: Final = 15.0
"""Seconds before that in which the server must have answered twice that nothing was renewed."""
HOLD: Final = 30.0
"""Seconds after which a node is looked at again while most of them look lost."""
BEFORE: Final = "dray.dev/ready-before-lost"
"""An annotation: the status of `Ready` when the node was last heard of."""
WORKERS: Final = 4


class NodeHealthController:
    """Says of nodes that they are lost, or not ready, and that they are back."""

    def __init__(
        self,
        client: Client,
        nodes: Informer[Node],
        recorder: EventRecorder,
        metrics: Metrics,
        log: Log,
        *,
        silence: float = SILENCE,
    ) -> None:
        self._client, self._nodes, self._recorder, self._log = client, nodes, recorder, log
        self._silence, self._doubt = silence, min(DOUBT, silence / 2)
        self._clock = client.habits.tempo.clock
        self._leases: Informer[Lease] = Informer(client, Lease, LEASES, ways=ways(log))
        self.informers: tuple[Informer[Any], ...] = (self._leases,)
        self.queue: WorkQueue[str] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        self._beats: dict[str, tuple[str | None, float]] = {}
        """By node: the renewal that was seen last, and when."""
        self._doubted: dict[str, float] = {}
        """Since when the server itself says that nothing was renewed."""
        self.holding = False
        """Whether most nodes look lost, so that nothing is done about any."""
        self._leases.listen(self._beat, lambda _old, new: self._beat(new))
        nodes.listen(self._seen, lambda _old, new: self._seen(new), self._gone)

    async def run(self) -> None:
        """Look after nodes, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._look_at, self._troubled, WORKERS)

    def _troubled(self, name: str, failed: Exception) -> None:
        self._log.warning("a node is looked at again later", node=name, why=str(failed))

    # --- what is seen ---

    def _beat(self, lease: Lease) -> None:
        name, renewed = lease.metadata.name, lease.spec.renew_time
        known = self._beats.get(name)
        if known is not None and known[0] == renewed:
            return
        was_silent = known is not None and self._is_silent(name)
        self._beats[name] = (renewed, self._clock.monotonic())
        self._doubted.pop(name, None)
        if known is None or was_silent:
            self.queue.add(name)

    def _seen(self, node: Node) -> None:
        if node.metadata.name in self._beats:
            self.queue.add(node.metadata.name)

    def _gone(self, node: Node) -> None:
        self._beats.pop(node.metadata.name, None)
        self._doubted.pop(node.metadata.name, None)

    def _quiet_for(self, name: str) -> float:
        return self._clock.monotonic() - self._beats[name][1]

    def _is_silent(self, name: str) -> bool:
        """Whether a node is lost for all we know."""
        doubted = self._doubted.get(name)
        sure = doubted is not None and self._clock.monotonic() - doubted >= self._doubt
        return sure and self._quiet_for(name) >= self._silence

    # --- what is done ---

    async def _look_at(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or name not in self._beats:
            return
        await self._ask_about(name)
        if name not in self._beats:
            return  # it went meanwhile
        silent = self._is_silent(name)
        if self._hold() and silent:
            self._recorder.record(node, "NodesLookLost", _HELD, warning=True)
            self.queue.add_later(name, HOLD)
            return
        await self._say(node, health_of(node, silent=silent))
        if not silent:
            self.queue.add_later(name, self._next_look(name))

    def _next_look(self, name: str) -> float:
        """How long a node needs not be looked at when nothing is heard of it."""
        quiet, doubted = self._quiet_for(name), self._doubted.get(name)
        if doubted is None:
            return max(self._silence - self._doubt - quiet, 0.0) + 0.001
        sure = self._doubt - (self._clock.monotonic() - doubted)
        return max(self._silence - quiet, sure, 0.0) + 0.001

    async def _ask_about(self, name: str) -> None:
        """Ask the server itself about a node that was not heard of for a while; a call that fails says no."""
        if self._quiet_for(name) < self._silence - self._doubt:
            return
        try:
            lease: Lease | None = await self._client.get(Lease, name, LEASES)
        except NotFound:
            lease = None
        known = self._beats.get(name)
        if lease is not None and known is not None and lease.spec.renew_time != known[0]:
            self._beat(lease)
        elif known is not None:
            self._doubted.setdefault(name, self._clock.monotonic())

    def _hold(self) -> bool:
        # Those in doubt count: nodes that went at one time are not all found silent at one time.
        known = min(len(self._beats), len(self._nodes))  # leases may be left of nodes that are gone
        holding = most_are_lost(len(self._doubted), known)
        if holding != self.holding:
            self.holding = holding
            if holding:
                self._log.error(_HELD, silent=len(self._doubted), nodes=known)
            else:
                self._log.info("most nodes give signs of life again")
                for name in self._doubted:
                    self.queue.add(name)
        return holding

    async def _say(self, node: Node, health: Health) -> None:
        """Write what a node's health is, where it is not written yet."""
        now, name = timestamp(self._clock.now()), node.metadata.name
        taints = taints_of(node, health, now=now)
        if taints is not node.spec.taints:
            await self._taint(node, health, taints)
        before = node.metadata.annotations.get(BEFORE, "")
        lost = health is Health.LOST
        condition = silenced(node, now=now) if lost else returned(node, before, now=now)
        if condition is not None:
            await self._condition(name, condition)

    async def _taint(self, node: Node, health: Health, taints: tuple[Any, ...]) -> None:
        # Taints are one value to the server, so somebody else's change meanwhile must not get lost.
        metadata: dict[str, Any] = {"resourceVersion": node.metadata.resource_version}
        ready = ready_of(node)
        if health is Health.LOST and ready is not None and ready.status in ("True", "False"):
            metadata["annotations"] = {BEFORE: ready.status}
        change = MergePatch({"metadata": metadata, "spec": {"taints": taints or None}})
        await self._client.patch(Node, node.metadata.name, change)
        said = _SAID[health]
        self._log.info(said, node=node.metadata.name)
        self._recorder.record(node, _EVENTS[health], said, warning=health is not Health.WELL)

    async def _condition(self, name: str, condition: NodeCondition) -> None:
        change = StrategicPatch({"status": {"conditions": [condition]}})
        await self._client.patch(Node, name, change, subresource="status")


_HELD: Final = "most nodes give no sign of life: nothing is done about any of them"
_SAID: Final = {
    Health.WELL: "the node is back",
    Health.NOT_READY: "the node says that it is not ready",
    Health.LOST: "the node gives no sign of life",
}
_EVENTS: Final = {
    Health.WELL: "NodeReady",
    Health.NOT_READY: "NodeNotReady",
    Health.LOST: "NodeUnreachable",
}
