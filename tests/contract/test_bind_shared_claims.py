"""Pods that share claims are bound with few writes, whoever of them holds the lock of a claim."""

from __future__ import annotations

import asyncio

import pytest

from dray.client.errors import ConflictError
from tests.contract.binding import TRANSACTION, binding_place


@pytest.mark.parametrize("transactions", [True, False])
async def test_a_claim_of_a_hundred_pods_is_written_for_all_that_wait(tmp_path, transactions):
    async with binding_place(tmp_path, transactions=transactions) as on:
        names = [f"p{number:02}" for number in range(100)]
        await on.make("a", pods=names)
        await on.protect("a")
        placements = [await on.place(name, {"a": "gpu-0"}) for name in names]
        assert await on.bind_together(placements, "a") == [None] * 100
        assert await on.users("a") == names
        assert {await on.node_of(name) for name in names} == {"node-a"}
        # The first may be on its way when the others come; they go together.
        assert on.count_claim_writes() in (1, 2)
        assert len(on.list_writes()) <= 102
        assert len(on.binder.reservations.locks) == 0


async def test_pods_that_share_several_claims_in_any_order_are_one_write_each(tmp_path):
    async with binding_place(tmp_path) as on:
        names = [f"p{number:02}" for number in range(20)]
        given = {"a": "gpu-0", "b": "gpu-1", "c": "gpu-2"}
        await on.make(*given, pods=names)
        orders = [dict(given), dict(reversed(given.items()))]
        placements = [await on.place(name, orders[number % 2]) for number, name in enumerate(names)]
        await asyncio.wait_for(asyncio.gather(*map(on.bind, placements)), 30)
        for claim in given:
            assert await on.users(claim) == names
        assert {await on.node_of(name) for name in names} == {"node-a"}
        assert on.count_claim_writes() <= len(names)
        assert len(on.list_writes()) <= len(names)
        assert on.binder.reservations.conflicts == 0


async def test_a_pod_that_was_reserved_by_another_and_fails_is_unreserved(tmp_path):
    """The holder of the lock reserves for a pod that waits; that pod is then found to be deleted."""
    async with binding_place(tmp_path) as on:
        await on.make("a", pods=("first", "p", "q"))
        await on.hold("q")
        placements = [await on.place(name, {"a": "gpu-0"}) for name in ("first", "p", "q")]
        await on.here.delete("q")
        ends = await on.bind_together(placements, "a")
        assert on.list_writes() == [TRANSACTION, TRANSACTION, "POST q/binding", "PUT a/status"]
        assert ends[:2] == [None, None]
        assert isinstance(ends[2], ConflictError)
        assert await on.users("a") == ["first", "p"]
