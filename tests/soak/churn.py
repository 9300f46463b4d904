"""Steady work for a simulated cluster: pods, claims, taints, nodes and processes come and go.

Theory of operation: each kind of work is a coroutine that repeats one round: it creates something, lets it
run for a while, and removes it. Pauses are drawn from the seed. Between two checks the work stops and
everything that it created goes away, so that the cluster at every check is the same except for what has
leaked. Connections break and servers restart, so that informers list and watch again; other processes are not
restarted, because a leak must have the time to show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from dray.client.client import Client, DeleteOptions
from dray.client.errors import ApiError, NotFoundError, ServerUnreachableError
from dray.client.object_refs import get_key, get_kind
from dray.client.patches import MergePatch
from tests.contract.documents import claim, config, device_class, pod, resource_slice, template
from tests.simulated.cluster import SimulatedCluster, SimulatedService
from tests.simulated.network import CalmConditions

POD, CLAIM, NODE, RULE, CONFIG, SLICE, EVENT = (
    get_kind(name)
    for name in (
        "Pod",
        "ResourceClaim.resource.k8s.io",
        "Node",
        "DeviceTaintRule.resource.k8s.io",
        "ConfigMap",
        "ResourceSlice.resource.k8s.io",
        "Event",
    )
)
NODES: Final = ("node-a", "node-b", "node-c")
DEVICES: Final = 4
TEMPLATE: Final = "devices"
_PASSING: Final = (ApiError, ServerUnreachableError)
"""What a client meets while servers restart, nodes are removed and objects are deleted by others."""


@dataclass(frozen=True)
class ChurnOptions:
    """How much work there is."""

    pod_loops: int = 6
    claim_loops: int = 2
    config_loops: int = 2
    pause: float = 4.0
    """The mean time between two steps of a loop, in seconds."""
    restart_share: float = 0.05
    """How often a round of the loop that restarts servers does so."""
    cut_share: float = 0.002
    """How often a message of a watch is the last one, because the connection breaks."""


class BreakingConnections(CalmConditions):
    """A network in which watches break now and then, so that informers list again."""

    def __init__(self, random: Random, share: float) -> None:
        self._random, self._share = random, share

    def cuts_stream(self) -> bool:
        return self._random.random() < self._share


class Churn:
    """The work on one cluster."""

    def __init__(self, cluster: SimulatedCluster, random: Random, options: ChurnOptions) -> None:
        self._cluster, self._random, self._options = cluster, random, options
        self._client: Client = cluster.build_admin()
        cluster.network.conditions = BreakingConnections(random, options.cut_share)
        self._number = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopping = False

    async def prepare(self) -> None:
        """Create what stays: classes, templates and devices."""
        for document in (device_class(), template(TEMPLATE)):
            await self._client.create(document)
        for node in NODES:
            await self._client.create(resource_slice(f"slice-{node}", node, DEVICES))

    def start(self) -> None:
        """Begin with the work."""
        self._stopping = False
        options = self._options
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *([self._run_pod] * options.pod_loops),
            *([self._use_claim] * options.claim_loops),
            *([self._write_config] * options.config_loops),
            self._taint_devices,
            self._taint_node,
            self._publish_devices,
            self._restart_server,
        ]
        loop = self._cluster.loop
        self._tasks = [loop.spawn(loop.outside, self._repeat(work)) for work in works]

    def stop(self) -> None:
        """Let every loop end with its present round."""
        self._stopping = True

    @property
    def is_stopped(self) -> bool:
        """Whether every loop has ended."""
        return all(task.done() for task in self._tasks)

    async def clean_up(self) -> None:
        """Remove what interrupted rounds have left."""
        for kind in (POD, CLAIM, CONFIG, RULE):
            for found in (await self._client.list(kind)).items:
                key = get_key(found)
                namespace, name = key.namespace, key.name
                if namespace in ("default", "") and not name.endswith(".crt"):
                    with suppress(*_PASSING):
                        await self._client.delete(kind, name, namespace, DeleteOptions(grace_seconds=0))

    async def delete_events(self) -> None:
        """Delete all events."""
        for found in (await self._client.list(EVENT)).items:
            with suppress(*_PASSING):
                key = get_key(found)
                await self._client.delete(EVENT, key.name, key.namespace)

    # --- rounds ---

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._stopping:
            with suppress(*_PASSING):
                await work()
            await self._pause()

    async def _pause(self, factor: float = 1.0) -> None:
        await asyncio.sleep(self._options.pause * factor * (0.5 + self._random.random()))

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}-{self._number}"

    async def _run_pod(self) -> None:
        document = pod(self._name("pod"))
        name = document["metadata"]["name"]
        document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
        document["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        await self._client.create(document)
        await self._pause(2)
        await self._delete(POD, name)

    async def _use_claim(self) -> None:
        name = self._name("claim")
        await self._client.create(claim(name))
        document = pod(self._name("shared"))
        document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        document["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        await self._client.create(document)
        await self._pause(2)
        await self._delete(POD, document["metadata"]["name"])
        await self._delete(CLAIM, name)

    async def _write_config(self) -> None:
        name = self._name("config")
        await self._client.create(config(name))
        for number in range(5):
            await self._client.patch(CONFIG, name, MergePatch({"data": {"n": str(number)}}), "default")
        await self._delete(CONFIG, name)

    async def _taint_devices(self) -> None:
        name = self._name("rule")
        device = f"gpu-{self._random.randrange(DEVICES)}"
        taint = {"key": "dray.example/service", "value": "x", "effect": "NoExecute"}
        selector = {"driver": "gpu.example.com", "pool": self._choose_node(), "device": device}
        await self._client.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceTaintRule",
                "metadata": {"name": name},
                "spec": {"deviceSelector": selector, "taint": taint},
            }
        )
        await self._pause(3)
        await self._delete(RULE, name, "")

    async def _taint_node(self) -> None:
        node = self._choose_node()
        taint = {"key": "dray.example/away", "effect": "NoSchedule"}
        await self._client.patch(NODE, node, MergePatch({"spec": {"taints": [taint]}}))
        await self._pause(2)
        await self._client.patch(NODE, node, MergePatch({"spec": {"taints": None}}))

    async def _publish_devices(self) -> None:
        name = f"slice-{self._choose_node()}"
        found = await self._client.get(SLICE, name)
        generation = found.spec.pool.generation + 1
        patch = MergePatch({"spec": {"pool": {"generation": generation}}})
        await self._client.patch(SLICE, name, patch)
        await self._pause(4)

    async def _restart_server(self) -> None:
        await self._pause(4)
        if self._random.random() >= self._options.restart_share:
            return
        servers = [each for name, each in self._cluster.services.items() if name.startswith("server")]
        service = servers[self._random.randrange(len(servers))]
        await self._stop_process(service)
        await self._pause()
        self._cluster.start(service)

    async def _stop_process(self, service: SimulatedService) -> None:
        """End a process in good order, so that nothing of it remains."""
        process, task = service.process, service.task
        assert process is not None
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        self._cluster.crash(service)
        self._cluster.loop._processes.remove(process)

    async def _delete(self, kind: Any, name: str, namespace: str = "default") -> None:
        with suppress(NotFoundError):
            await self._client.delete(kind, name, namespace)

    def _choose_node(self) -> str:
        return NODES[self._random.randrange(len(NODES))]
