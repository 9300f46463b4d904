"""Scheduler, controllers and a classic driver together, in one process and through one server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.core import Pod
from dray.client.client import Client
from dray.client.transport import TransportRequest, TransportResponse
from dray.controllers.runner import ControllerRunner
from dray.placement.classic_negotiation import MAX_NODES, ReserveClassic
from dray.scheduler.binding import classic_claims as writing
from dray.scheduler.options import SchedulerOptions
from dray.scheduler.queue import QueueTiming
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.api import Api, path, serving
from tests.contract.classic import (
    CLAIMS,
    CLASSES,
    admit_driver,
    classic_claim,
    classic_class,
    client_of,
    driving,
    in_phase,
    read,
    until,
)
from tests.contract.documents import node, pod
from tests.support.in_process_transport import InProcessTransport

req = pytest.mark.req
QUICK = QueueTiming(initial_backoff=0.01, max_backoff=0.05)


class Counted(InProcessTransport):
    """Notes every request that is no watch."""

    def __init__(self, api: Api, user: str, noted: list[str]) -> None:
        super().__init__(api.app, user, ("system:authenticated",))
        self._noted = noted

    async def request(self, request: TransportRequest, **more: Any) -> TransportResponse:
        self._noted.append(f"{request.method} {request.path}")
        return await super().request(request, **more)


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Services that run while the block lasts."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
        assert [task for task in tasks if task.done()] == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def scheduler(client: Client) -> Scheduler:
    return Scheduler(
        client,
        SchedulerOptions(
            AllocatorGateFilter.from_overrides({}), new_share_id=lambda: str(uuid.uuid4()), queue_timing=QUICK
        ),
    )


@asynccontextmanager
async def cluster(nodes: int = 3, *, schedulers: int = 1) -> AsyncIterator[tuple[Api, list[str]]]:
    """A cluster with a class and no driver yet; what its services ask is noted."""
    async with serving() as api:
        await admit_driver(api)
        await api.create(classic_class(), CLASSES)
        for number in range(nodes):
            await api.create(roomy(f"n{number:03}"))
        noted: list[str] = []
        services = [scheduler(Client(Counted(api, "dray:scheduler", noted))) for _ in range(schedulers)]
        keeping = ControllerRunner(Client(Counted(api, "dray:controller", noted)))
        async with beside(keeping.run(), *(service.run() for service in services)):
            for service in services:
                await service.ready.wait()
            yield api, noted


def roomy(name: str) -> dict[str, Any]:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {**node(name), "status": {"allocatable": capacity, "capacity": capacity}}


def inline(name: str, *entries: str) -> dict[str, Any]:
    made = [{"name": entry, "template": {"spec": {"resourceClassName": "acme"}}} for entry in entries]
    document = pod(name)
    document["spec"]["resourceClaims"] = made
    return document


async def bound(api: Api, name: str) -> str:
    said = await api.until(path("pods", name), lambda said: said.document["spec"].get("nodeName"))
    return str(said["spec"]["nodeName"])


@req("K3063-181")
async def test_nobody_asks_anything_while_a_pod_runs_and_its_claim_is_allocated() -> None:
    async with cluster() as (api, noted), driving(api, {"n001": 1}):
        await api.create(inline("p", "gpu"))
        assert await bound(api, "p") == "n001"
        await api.until(path("events"), lambda said: said.document["items"])
        await asyncio.sleep(0.2)
        noted.clear()
        await asyncio.sleep(1.5)
        assert noted == []


@req("K3063-185")
async def test_the_one_node_of_many_is_found_and_the_claim_stays_small() -> None:
    longest = 0
    async with cluster(nodes=400) as (api, _), api.watch(CLAIMS) as watch, driving(api, {"n399": 1}):
        await api.create(inline("p", "gpu"))
        assert await bound(api, "p") == "n399"
        while True:
            status = (await watch.event())["object"]["status"]
            scheduling = status.get("scheduling", {})
            lists = (scheduling.get("scheduler", {}).get("potentialNodes", ()),)
            longest = max(longest, *map(len, lists))
            if status.get("reservedFor"):
                break
        assert longest == MAX_NODES


@req("K3063-040", "K3063-041", "K3063-050")
async def test_pods_with_several_claims_compete_and_none_is_left_half_served() -> None:
    """Every pod needs two units of one node; there are five on one node and three on another."""
    async with cluster() as (api, _), driving(api, {"n000": 5, "n002": 3}):
        names = [f"p{number}" for number in range(6)]
        for name in names:
            await api.create(inline(name, "x", "y"))

        async def placed() -> list[str]:
            items = (await api.get(path("pods")))["items"]
            return [item["metadata"]["name"] for item in items if item["spec"].get("nodeName")]

        while len(done := await placed()) < 3:
            await asyncio.sleep(0.02)
        # two fit on one node and one on the other; when they go, the others follow
        while names:
            for name in done:
                await api.delete(path("pods", name), {"gracePeriodSeconds": 0})
            names = [name for name in names if name not in done]
            while names and not (done := await placed()):
                await asyncio.sleep(0.02)
        while await api.names(CLAIMS):
            await asyncio.sleep(0.02)


@req("K3063-077")
async def test_two_schedulers_that_compete_for_a_claim_give_it_to_one_pod() -> None:
    async with cluster(schedulers=2) as (api, _), driving(api, {"n001": 1}):
        await api.create(classic_claim("c"), CLAIMS)
        for number in range(4):
            await api.create(pod(f"p{number}", claim_name="c"))
        claim = await until(api, "c", lambda claim: bool(claim.status.reserved_for))
        (user,) = claim.status.reserved_for
        assert await bound(api, user.name) == "n001"
        others = [f"p{number}" for number in range(4) if f"p{number}" != user.name]
        pods = [await api.get(path("pods", name)) for name in others]
        assert [item["spec"].get("nodeName") for item in pods] == [None] * 3


async def test_what_a_scheduler_reserved_before_it_died_is_used_by_the_next() -> None:
    async with serving() as api:
        await admit_driver(api)
        await api.create(classic_class(), CLASSES)
        await api.create(roomy("n000"))
        await api.create(classic_claim("c", "Immediate"), CLAIMS)
        await api.create(pod("p", claim_name="c"))
        async with driving(api, {"n000": 1}):
            claim = await until(api, "c", in_phase("Allocated"))
        who = await client_of(api).get(Pod, "p", "default")
        assert await writing.reserve(client_of(api), [ReserveClassic(claim, who)])
        async with beside(scheduler(client_of(api, "dray:scheduler", "nobody")).run()):
            assert await bound(api, "p") == "n000"
        assert [user.name for user in (await read(api, "c")).status.reserved_for] == ["p"]
