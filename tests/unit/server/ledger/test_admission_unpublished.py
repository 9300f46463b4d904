"""Ledger admission of unpublished devices: their consumption of counters is charged all the same."""

from __future__ import annotations

import asyncio

from dray.store import TxnConflict
from tests.unit.claims.ledger_objects import device, slice_of
from tests.unit.server.ledger.test_admission import denied, guarded, named, rows
from tests.unit.server.registries import SLICES, World, result, world

WHOLE = slice_of([device(name, draws={"c": "4"}) for name in ("part-0", "part-1")], count=2)
BUDGET = slice_of(counters={"c": "4"}, count=2)


async def publish(there: World) -> None:
    await there.put(named("budget", BUDGET))
    await there.put(named("parts", WHOLE))


def test_an_unpublished_device_is_charged_when_it_is_published():
    """A driver once withdrew its slices while a device was allocated, and its counters were not charged."""

    async def scenario() -> None:
        async with world(guarded) as there:
            for name in ("a", "b"):
                await there.claim(name)
            await there.allocate("a", result("part-0"))
            await publish(there)
            status = await denied(there.allocate("b", result("part-1")))
            assert "draws 4, 0 left of 4" in status["message"]
            await there.put(named("parts", WHOLE | {"spec": {**WHOLE["spec"], "allNodes": True}}))
            await there.deallocate("a")
            await there.allocate("b", result("part-1"))
            await there.deallocate("b")
            await there.caught_up()
            assert rows(there) == []

    asyncio.run(scenario())


def test_devices_of_withdrawn_slices_are_not_allocated():
    async def scenario() -> None:
        async with world(guarded) as there:
            for name in ("a", "b", "admin"):
                await there.claim(name)
            await publish(there)
            await there.allocate("a", result("part-0"))
            await there.delete(SLICES, "", "parts")
            status = await denied(there.allocate("b", result("part-1")))
            assert "part-1 is not published by any slice now" in status["message"]
            assert status["details"]["causes"][0]["reason"] == "DeviceNotPublished"
            await there.allocate("admin", result("part-1", admin=True))
            await there.deallocate("a")
            await there.put(named("parts", WHOLE))
            await there.allocate("b", result("part-1"))

    asyncio.run(scenario())


def test_an_allocation_is_reviewed_again_when_its_device_is_published_meanwhile():
    async def scenario() -> None:
        async with world(guarded) as there:
            for name in ("a", "b"):
                await there.claim(name)
            await there.put(named("budget", BUDGET))
            await there.allocate("b", result("part-1"))
            meddled = False
            txn = there.store.txn

            async def meddling(compares, writes):
                nonlocal meddled
                if not meddled:
                    meddled = True
                    await there.put(named("parts", WHOLE))
                    outcome = await txn(compares, writes)
                    assert isinstance(outcome, TxnConflict)
                    return outcome
                return await txn(compares, writes)

            there.store.txn = meddling  # type: ignore[method-assign]
            status = await denied(there.allocate("a", result("part-0")))
            assert meddled
            assert "draws 4, 0 left of 4" in status["message"]

    asyncio.run(scenario())


def test_a_slice_is_reviewed_again_when_its_device_is_allocated_meanwhile():
    async def scenario() -> None:
        async with world(guarded) as there:
            for name in ("a", "b"):
                await there.claim(name)
            await there.put(named("budget", BUDGET))
            meddled = False
            txn = there.store.txn

            async def meddling(compares, writes):
                nonlocal meddled
                if not meddled:
                    meddled = True
                    await there.allocate("a", result("part-0"))
                    outcome = await txn(compares, writes)
                    assert isinstance(outcome, TxnConflict)
                    return outcome
                return await txn(compares, writes)

            there.store.txn = meddling  # type: ignore[method-assign]
            await there.put(named("parts", WHOLE))
            assert meddled
            assert "draws 4, 0 left of 4" in (await denied(there.allocate("b", result("part-1"))))["message"]

    asyncio.run(scenario())
