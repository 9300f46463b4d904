"""The ledger keeps its word on every back end, also with two servers on one store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.server.http.errors import ApiStatusError
from dray.server.ledger.admission import LedgerAdmission
from dray.server.ledger.reconciliation import audit_cached_ledger, repair_ledger
from dray.store import Delete, Store
from tests.contract.backends import Backend
from tests.unit.claims.ledger_objects import device, slice_of
from tests.unit.server.registries import CLAIMS, World, preparation, result

MOST = 32
"""Devices of the largest allocation there can be."""


@asynccontextmanager
async def servers(store: Store, count: int):
    """So many servers on one store."""
    worlds = [World(store, lambda cache: [LedgerAdmission(cache)]) for _ in range(count)]
    for each in worlds:
        await each.open()
    following = [asyncio.create_task(each.cache.follow()) for each in worlds]
    try:
        yield worlds
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def published(there: World) -> None:
    devices = [device(f"gpu-{i}", draws={"c": "1"}) for i in range(MOST)]
    slices: list[dict[str, Any]] = [slice_of(devices, count=2), slice_of(counters={"c": str(MOST)}, count=2)]
    for i, slice_ in enumerate(slices):
        await there.put(slice_ | {"metadata": {"name": f"s{i}"}})


async def test_the_largest_allocation_is_one_transaction(backend: Backend):
    async with backend.open() as store, servers(store, 1) as (there,):
        await published(there)
        await there.claim("a")
        await there.claim("b")
        everything = [result(f"gpu-{i}") for i in range(MOST)]
        await there.allocate("a", *everything)
        with pytest.raises(ApiStatusError) as failure:
            await there.allocate("b", *everything)
        assert len((failure.value.details or {})["causes"]) == MOST
        report = await audit_cached_ledger(there.cache)
        assert (report.is_consistent, report.rows) == (True, MOST + 1)
        await there.delete(CLAIMS, "default", "a")
        assert (await audit_cached_ledger(there.cache)).rows == 0


async def test_two_servers_give_a_device_away_once(backend: Backend):
    async with backend.open() as store, servers(store, 2) as (one, other):
        await published(one)
        for name in ("a", "b", "c", "d"):
            await one.claim(name)
        for i in range(8):
            outcomes = await asyncio.gather(
                *(server.allocate(name, result(f"gpu-{i}")) for server, name in ((one, "a"), (other, "b"))),
                return_exceptions=True,
            )
            assert [outcome.code for outcome in outcomes if isinstance(outcome, ApiStatusError)] == [409]
            for server, name, outcome in zip((one, other), ("a", "b"), outcomes, strict=True):
                if not isinstance(outcome, ApiStatusError):
                    await server.deallocate(name)
        assert (await audit_cached_ledger(other.cache)).rows == 0


async def test_quarantine_and_repair_are_the_same_everywhere(backend: Backend):
    async with backend.open() as store, servers(store, 2) as (one, other):
        await published(one)
        await one.claim("a", uid="uid-a")
        await one.allocate("a", result("gpu-0"))
        await other.put(preparation("p", "n1", "a", "uid-a"))
        await one.delete(CLAIMS, "default", "a")
        await one.claim("b")
        with pytest.raises(ApiStatusError, match="is quarantined on node n1"):
            await other.allocate("b", result("gpu-0"))
        await store.txn([], [Delete(b"/ledger/devices/gpu.example.com/pool/gpu-0")])
        report = await repair_ledger(store, other.cache)
        assert [finding.flaw.value for finding in report.repaired] == ["missing row"]
        with pytest.raises(ApiStatusError, match="is quarantined on node n1"):
            await one.allocate("b", result("gpu-0"))
