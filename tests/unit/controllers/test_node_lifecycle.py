"""Nodes whose heartbeat stops, that report themselves as not ready, and that come back; and the pods on them.

Time is a manual clock; the server is a real one in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from dray.api.core import Node
from dray.client.client import Client
from dray.client.errors import NotFoundError, ServerUnreachableError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.client.transport import TransportRequest
from dray.clock import ManualClock, format_timestamp
from dray.controllers.runner import ControllerOptions, ControllerRunner
from dray.controllers.upkeep.node_lifecycle import LEASE_NAMESPACE, READY_BEFORE_ANNOTATION
from tests.contract.controlled import CONTROLLER, World, pod
from tests.contract.servers import reaching

LEASE = get_kind("Lease.coordination.k8s.io")
LOST, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"
Document = dict[str, Any]


def node(name: str, ready: str = "True") -> Document:
    said = {"type": "Ready", "status": ready, "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"conditions": [said]},
    }


class Deaf:
    """A way to the server on which questions for single leases get no answer while `deaf`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.address, self.stream, self.close = inner.address, inner.stream, inner.close
        self.deaf = False
        self.held: asyncio.Event | None = None
        """What answers wait for."""

    @property
    def is_holding(self) -> bool:
        return self.held is not None and not self.held.is_set()

    async def request(self, request: TransportRequest, **how: Any) -> Any:
        if self.held is not None and request.method == "GET" and "/leases/" in request.path:
            await self.held.wait()
        if self.deaf and request.method == "GET" and "/leases/" in request.path:
            raise ServerUnreachableError("nobody answers")
        return await self._inner.request(request, **how)


class Watch(World):
    """A cluster whose nodes are looked after, and a clock to turn."""

    def __init__(self, reach: Any) -> None:
        super().__init__(reach)
        self.clock = ManualClock()
        self.way = Deaf(reach._transport(CONTROLLER))
        self._numbers = count()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[ControllerRunner]:
        client = Client(self.way, ClientOptions(time_source=TimeSource(clock=self.clock)))
        async with self.controlled(client, ControllerOptions(upkeep=True)) as controllers:
            self.controllers = controllers
            yield controllers

    async def renew_leases(self, *names: str) -> None:
        """Let agents give signs of life, and the controllers see them."""
        for name in names:
            spec = {"renewTime": f"2026-01-01T00:00:00.{next(self._numbers):06d}Z"}
            try:
                await self.client.patch(LEASE, name, MergePatch({"spec": spec}), LEASE_NAMESPACE)
            except NotFoundError:
                metadata = {"name": name, "namespace": LEASE_NAMESPACE}
                made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
                await self.client.create(made | {"spec": spec})
        await self.settle()

    async def turn(self, seconds: float, *renewing: str) -> None:
        """Let time pass in small steps, in which some nodes give signs of life."""
        while seconds > 0:
            step = min(5.0, seconds)
            seconds -= step
            self.clock.advance(step)
            await self.renew_leases(*renewing)

    async def settle(self) -> None:
        """Let the controllers see everything and do whatever is due."""
        assert self.controllers is not None
        queues: list[Any] = list(self.controllers._queues)
        for _ in range(3):
            await asyncio.sleep(0.01)
            for queue in queues:
                queue.add_due()
            while not all(queue.is_idle for queue in queues) and not self.way.is_holding:
                await asyncio.sleep(0.001)

    async def taints(self, name: str) -> list[tuple[str, str]]:
        found = await self.client.get(Node, name)
        return [(taint.key, taint.effect) for taint in found.spec.taints]

    async def ready(self, name: str) -> str:
        found = (await self.client.get(Node, name)).status.conditions
        return next(each.status for each in found if each.type == "Ready")

    async def until_tainted(self, name: str, key: str) -> None:
        wanted = [(key, "NoSchedule"), (key, "NoExecute")] if key else []
        await self.until(lambda: self.taints(name), lambda taints: taints == wanted)

    async def leaving(self, name: str) -> bool:
        await self.settle()
        return (await self.pod(name)).metadata.deletion_timestamp is not None


@asynccontextmanager
async def watch(directory: Path) -> AsyncIterator[Watch]:
    async with reaching("inside", directory) as reach:
        yield Watch(reach)


async def test_a_node_that_falls_silent_is_lost_and_comes_back(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a"), node("b"))
        mine = {"spec": {"taints": [{"key": "mine", "effect": "PreferNoSchedule"}]}}
        await here.client.patch(Node, "b", MergePatch(mine))
        await here.renew_leases("a", "b")
        await here.turn(35, "a")
        assert await here.taints("b") == [("mine", "PreferNoSchedule")], "not yet"
        await here.turn(15, "a")
        lost = [("mine", "PreferNoSchedule"), (LOST, "NoSchedule"), (LOST, "NoExecute")]
        await here.until(lambda: here.taints("b"), lambda taints: taints == lost)
        await here.until(lambda: here.ready("b"), lambda ready: ready == "Unknown")
        assert (await here.client.get(Node, "b")).metadata.annotations[READY_BEFORE_ANNOTATION] == "True"
        assert (await here.taints("a"), await here.ready("a")) == ([], "True")
        await here.renew_leases("b")
        await here.until(lambda: here.taints("b"), lambda taints: taints == lost[:1])
        await here.until(lambda: here.ready("b"), lambda ready: ready == "True")


async def test_a_node_that_says_it_is_not_ready_is_kept_free(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a", "False"))
        await here.renew_leases("a")
        await here.until_tainted("a", NOT_READY)
        well = StrategicMergePatch({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        await here.client.patch(Node, "a", well, subresource="status")
        await here.until_tainted("a", "")


async def test_a_node_without_a_lease_is_left_alone(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("simulated", "False"), node("a"))
        await here.renew_leases("a")
        await here.turn(120, "a")
        assert (await here.taints("simulated"), await here.ready("simulated")) == ([], "False")


async def test_a_lease_that_is_taken_away_is_not_renewed(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a"))
        await here.renew_leases("a")
        await here.client.delete(LEASE, "a", LEASE_NAMESPACE)
        await here.turn(50)
        await here.until_tainted("a", LOST)


async def test_when_most_nodes_look_lost_nothing_is_done_and_that_is_said(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        names = [f"n{number}" for number in range(4)]
        await here.make(*(node(name) for name in names))
        await here.renew_leases(*names)
        await here.turn(300, "n0")
        assert [await here.taints(name) for name in names] == [[], [], [], []]
        said = await here.until(lambda: here.told("NodesLookLost"))
        assert set(said) == {"most nodes send no heartbeats: none of them is marked as unreachable"}
        await here.renew_leases("n1", "n2")
        await here.turn(10, "n0", "n1", "n2")
        await here.until_tainted("n3", LOST)
        assert [await here.taints(name) for name in names[:3]] == [[], [], []]


async def test_a_server_that_does_not_answer_makes_no_node_disappear(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a"))
        await here.renew_leases("a")
        here.way.deaf = True
        await here.turn(100)
        assert await here.taints("a") == []
        here.way.deaf = False
        await here.turn(10)
        assert await here.taints("a") == [], "the node gets a chance to be heard"
        await here.turn(60)
        await here.until_tainted("a", LOST)


async def test_pods_stay_for_as_long_as_they_endure_and_are_deleted_but_not_gone(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a"), node("b"))
        for_ever = {"key": LOST, "operator": "Exists", "effect": "NoExecute"}
        await here.make(pod("usual"), pod("loyal", tolerations=[for_ever]), pod("elsewhere"))
        brief = for_ever | {"tolerationSeconds": 30}
        await here.make(pod("brief", tolerations=[brief]))
        for name, where in {"usual": "a", "loyal": "a", "brief": "a", "elsewhere": "b"}.items():
            await here.bind(name, where)
            await here.end(name, "Running")
        await here.renew_leases("a", "b")
        await here.turn(50, "b")
        await here.until_tainted("a", LOST)
        assert not await here.leaving("brief")
        await here.turn(31, "b")
        await here.until(lambda: here.leaving("brief"))
        assert not await here.leaving("usual")
        await here.turn(300, "b")
        await here.until(lambda: here.leaving("usual"))
        gone = await here.pod("usual")
        (said,) = [each for each in gone.status.conditions if each.type == "DisruptionTarget"]
        assert (said.status, said.reason) == ("True", "DeletionByTaintManager")
        assert gone.status.phase == "Running", "nobody but its node says that it ended"
        assert [await here.leaving(name) for name in ("loyal", "elsewhere")] == [False, False]


async def test_pods_of_a_node_that_comes_back_in_time_stay(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a"), pod("p"))
        await here.bind("p", "a")
        await here.renew_leases("a")
        await here.turn(50)
        await here.until_tainted("a", LOST)
        await here.turn(200)
        await here.renew_leases("a")
        await here.until_tainted("a", "")
        await here.turn(400, "a")
        assert not await here.leaving("p")


async def test_no_pod_leaves_a_lost_node_while_most_look_lost(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        names = [f"n{number}" for number in range(5)]
        await here.make(*(node(name) for name in names), pod("p"))
        await here.bind("p", "n4")
        await here.renew_leases(*names)
        await here.turn(60, *names[:4])
        await here.until_tainted("n4", LOST)
        await here.turn(400, *names[:2])
        assert not await here.leaving("p")
        await here.turn(20, *names[:4])
        await here.until(lambda: here.leaving("p"))


async def test_a_pod_leaves_a_node_out_of_service_also_while_most_look_lost(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        names = [f"n{number}" for number in range(5)]
        await here.make(*(node(name) for name in names), pod("p"))
        await here.bind("p", "n4")
        await here.renew_leases(*names)
        await here.turn(60, *names[:4])
        await here.until_tainted("n4", LOST)
        await here.turn(400, *names[:2])
        assert not await here.leaving("p")
        lost = await here.client.get(Node, "n4")
        since = format_timestamp(here.clock.now())
        fence = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "timeAdded": since}
        await here.client.patch(Node, "n4", MergePatch({"spec": {"taints": [*lost.spec.taints, fence]}}))

        async def is_gone() -> bool:
            await here.settle()
            try:
                await here.pod("p")
            except NotFoundError:
                return True
            return False

        await here.until(is_gone)


async def test_a_node_that_is_deleted_while_it_is_asked_about_troubles_nobody(tmp_path):
    async with watch(tmp_path) as here, here.kept():
        await here.make(node("a"), node("b"))
        await here.renew_leases("a", "b")
        asked = asyncio.Event()
        here.way.held = asked
        here.clock.advance(30)
        await here.renew_leases("b")
        await here.client.delete(Node, "a")
        await asyncio.sleep(0.1)
        asked.set()
        await here.turn(60, "b")
        assert await here.taints("b") == []
