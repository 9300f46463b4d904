"""A server in this process with a scheduler and controllers, and helpers for clusters and pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.object_refs import get_kind
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.gates import GateSet
from dray.scheduler import status_reporter
from dray.scheduler.options import SchedulerOptions
from dray.scheduler.queue import QueueTiming
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.controlled import World
from tests.contract.documents import device_class
from tests.contract.intercepted_transport import InterceptedTransport, RequestGate
from tests.contract.servers import reaching

SCHEDULER = "dray:scheduler"
"""Who the scheduler is: somebody with the rights of its role, and no others."""

NODE = get_kind("Node")

Document = dict[str, Any]
DRIVER = "gpu.example.com"

SOON_AGAIN = QueueTiming(initial_backoff=0.02, max_backoff=0.1)
"""Pods that failed are tried again without much ado."""

LARGE = {"cpu": "8", "memory": "16Gi", "pods": "300"}


@pytest.fixture(params=("http", "inside"))
def way(request: pytest.FixtureRequest) -> str:
    """Over a socket with TLS, and within this process."""
    return str(request.param)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are told why they wait without much ado."""
    monkeypatch.setattr(status_reporter, "REPORT_DELAY_SECONDS", 0.02)


def some_ids() -> Callable[[], str]:
    """Share ids that differ."""
    numbers = count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"


def choices(**more: Any) -> SchedulerOptions:
    """What a scheduler of tests chooses."""
    chosen: dict[str, Any] = {"new_share_id": some_ids(), "queue_timing": SOON_AGAIN}
    chosen["admission"] = AllocatorGateFilter(more.pop("gates", GateSet.from_defaults()))
    return SchedulerOptions(**(chosen | more))


def node(name: str, *, labels: dict[str, str] | None = None, **more: Any) -> Document:
    """A node with capacity; `taints`, `unschedulable` as they are, `capacity` instead of plenty."""
    capacity = more.pop("capacity", LARGE)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": more,
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def devices_of(place: str, *devices: Document | str, driver: str = DRIVER, **spec: Any) -> Document:
    """A slice with the devices of one node, or of a pool that `spec` says more about."""
    listed = [{"name": each} if isinstance(each, str) else each for each in devices]
    where = (
        {} if spec.keys() & {"allNodes", "nodeSelector", "perDeviceNodeSelection"} else {"nodeName": place}
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{place}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {"name": place, "generation": 1, "resourceSliceCount": 1},
            "devices": listed,
            **where,
            **spec,
        },
    }


def asks(*requests: Document, name: str = "t", made: bool = True, **devices: Any) -> Document:
    """A template, or with `made` False a claim, with these requests."""
    spec = {"devices": {"requests": list(requests), **devices}}
    kind = "ResourceClaimTemplate" if made else "ResourceClaim"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": spec} if made else spec,
    }


def exactly(name: str = "gpu", selector: str = "", **fields: Any) -> Document:
    return {"name": name, "exactly": _asked(selector, fields)}


def first_of(name: str, *alternatives: tuple[str, str]) -> Document:
    """A request with alternatives: names and selectors."""
    listed = [{"name": each, **_asked(selector, {})} for each, selector in alternatives]
    return {"name": name, "firstAvailable": listed}


def _asked(selector: str, fields: Document) -> Document:
    selectors = {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    return {"deviceClassName": DRIVER, **selectors, **fields}


def attribute(name: str, value: str) -> str:
    """A selector for devices whose attribute has a value."""
    return f'device.attributes["{DRIVER}"].{name} == "{value}"'


class Place(World):
    """A world in which pods are scheduled."""

    @asynccontextmanager
    async def scheduling(self, client: Client | None = None, **more: Any) -> AsyncIterator[Scheduler]:
        """A scheduler while the block lasts; a fault in it fails the test."""
        scheduler = Scheduler(client or self.reach.client(user=SCHEDULER), choices(**more))
        task = asyncio.create_task(scheduler.run())
        ready = asyncio.create_task(scheduler.ready.wait())
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        try:
            yield scheduler
        finally:
            fault = task.exception() if task.done() else None
            task.cancel()
            await asyncio.wait([task])
            if fault is not None:
                raise fault

    def intercept_client(
        self, tempo: TimeSource | None = None, *, transactions: bool = False
    ) -> tuple[Client, InterceptedTransport]:
        """A client for a scheduler over a way that tests meddle with, perhaps with a clock of its own."""
        transport = InterceptedTransport(self.reach._transport(SCHEDULER), transactions=transactions)
        client = Client(transport, ClientOptions(time_source=tempo or TimeSource()))
        self.reach._open.append(client)
        return client, transport

    async def cluster(self, nodes: int = 2, devices: int = 2) -> None:
        """Nodes `node-a`, `node-b` ... with devices `gpu-0` ... each, and their class."""
        await self.make(device_class())
        for letter in "abcdefgh"[:nodes]:
            await self.make(node(f"node-{letter}"))
            if devices:
                await self.make(devices_of(f"node-{letter}", *[f"gpu-{n}" for n in range(devices)]))

    async def until_bound(self, *names: str) -> list[Pod]:
        """Wait until pods have their nodes."""
        return [await self.until(partial(self.pod, name), lambda pod: pod.spec.node_name) for name in names]

    async def until_refused(self, name: str, *words: str) -> str:
        """Wait until a pod says that it has no node, with these words; what it says."""

        def said(text: str | None) -> bool:
            return text is not None and all(word in text for word in words)

        found: str = await self.until(lambda: self.why(name), said)
        return found

    async def why(self, name: str) -> str | None:
        """What the condition of a pod says while it has no node."""
        for each in (await self.pod(name)).status.conditions:
            if each.type == "PodScheduled" and each.status == "False":
                return each.message
        return None

    async def held(self, names: Iterable[str] | None = None) -> dict[str, list[str]]:
        """The devices of claims, as `node/device`."""
        return {
            claim.metadata.name: devices_in(claim)
            for claim in await self.claims()
            if names is None or claim.metadata.name in names
        }

    async def claim_of(self, pod: str, entry: str = "gpu") -> ResourceClaim:
        """The claim that was made for a pod."""
        name = (await self.recorded(pod))[entry]
        assert name is not None
        return await self.claim(name)


def gate_allocation(claim: str, *, transactions: bool, most: int = 1) -> RequestGate:
    """Stop the write that allocates a claim: alone, or together with the binding of its pod."""
    path = f"/resourceclaims/{claim}/status"
    if transactions:
        return RequestGate("POST", "/transactions", body=path.encode(), most=most)
    return RequestGate("PUT", path, most=most)


def devices_in(claim: ResourceClaim) -> list[str]:
    allocation = claim.status.allocation
    return [] if allocation is None else [f"{each.pool}/{each.device}" for each in allocation.devices.results]


@asynccontextmanager
async def place(way: str, directory: Path, *, ledger: bool = True) -> AsyncIterator[Place]:
    async with reaching(way, directory, ledger=ledger) as reach:
        yield Place(reach)
