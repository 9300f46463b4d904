"""A classic controller that is killed at every write: nothing leaks, nothing is allocated twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dray.client.errors import ServerUnreachableError
from dray.client.transport import TransportRequest, TransportResponse
from tests.contract.api import MERGE
from tests.contract.classic import CLAIMS
from tests.unit.driver.classic.classic_cluster import ClassicCluster, is_allocated, run
from tests.unit.driver.driver_server import wait_until


async def _through(
    cluster: ClassicCluster, stage: Callable[[], Coroutine[Any, Any, None]], crash_at: int, *, before: bool
) -> int:
    """Run one stage with a controller that is killed at a write and restarted; returns its writes."""
    transport, died = cluster.connect(), asyncio.Event()
    writes = 0

    def count(request: TransportRequest) -> bool:
        nonlocal writes
        if request.method not in ("PATCH", "PUT") or not request.path.startswith(CLAIMS):
            return False
        writes += 1
        return writes == crash_at

    def die() -> None:
        transport.inner = None  # nothing gets through any more: the process is dead
        died.set()
        raise ServerUnreachableError("killed", sent=True)

    def sending(request: TransportRequest) -> None:
        if before and count(request):
            die()

    def answered(request: TransportRequest, _reply: TransportResponse) -> None:
        if not before and count(request):
            die()

    transport.before, transport.after = sending, answered
    working = asyncio.create_task(stage())
    async with cluster.run_controller(transport):
        dying = asyncio.create_task(died.wait())
        await asyncio.wait((working, dying), return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        await asyncio.wait([dying])
    async with cluster.run_controller():
        await working
    return writes


@pytest.mark.parametrize("before", [True, False], ids=["the write is lost", "the answer is lost"])
def test_a_crash_at_any_write_neither_leaks_a_finalizer_nor_gives_twice(before: bool) -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async def allocate() -> None:
            await cluster.create_claim("one", mode="Immediate")
            await cluster.create_claim("two")
            await cluster.select("two", "node-b", "node-a", "node-b")
            await cluster.wait_until("one", is_allocated)
            await cluster.wait_until("two", is_allocated)

        async def reallocate() -> None:
            await cluster.api.patch(f"{CLAIMS}/two/status", {"status": {"phase": "Reallocate"}}, MERGE)
            await cluster.wait_until("two", lambda claim: not claim.metadata.finalizers)

        async def delete() -> None:
            for name in await cluster.names():
                await cluster.api.delete(f"{CLAIMS}/{name}")
            await wait_until(cluster.names, lambda names: names == [])

        for stage in (allocate, reallocate, delete):
            crash_at = 1
            while True:
                if stage is not allocate:
                    async with cluster.run_controller():
                        if not await cluster.names():
                            await allocate()
                        elif stage is reallocate:
                            await cluster.select("two", "node-b")
                            await cluster.wait_until("two", is_allocated)
                writes = await _through(cluster, stage, crash_at, before=before)
                assert cluster.hardware.faults == []
                if stage is allocate:
                    async with cluster.run_controller():
                        await delete()
                    assert cluster.hardware.given == {}
                if writes < crash_at:
                    break
                crash_at += 1
            assert crash_at > 1
            if stage is allocate:
                async with cluster.run_controller():
                    await allocate()
        assert cluster.hardware.given == {}
        assert await cluster.names() == []

    run(scenario)
