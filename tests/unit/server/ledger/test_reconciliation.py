"""Reconciliation: every difference between ledger and claims is found, named and repaired."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dray.claims.ledger.rows import (
    COUNTER_PREFIX,
    DEVICE_PREFIX,
    LEDGER_PREFIX,
    PREPARATION_PREFIX,
    CounterRow,
    CounterSetId,
    DeviceId,
    DeviceRow,
    Holder,
    Holding,
    build_counter_key,
    build_device_key,
    build_preparation_key,
    encode_row,
)
from dray.server.ledger.admission import LedgerAdmission
from dray.server.ledger.reconciliation import audit_cached_ledger, list_held_devices, repair_ledger
from dray.store import Delete, Put
from dray.values.quantity import Quantity
from tests.unit.claims.ledger_objects import device, slice_of
from tests.unit.server.registries import CLAIMS, World, preparation, result, world

SLICES = [
    slice_of(
        [device("gpu-0"), device("gpu-1", memory="8Gi", shared=True), device("part", draws={"c": "4"})],
        count=2,
    ),
    slice_of(counters={"c": "10"}, count=2),
]
GPU = build_device_key(DeviceId("gpu.example.com", "pool", "gpu-0"))
SHARED = build_device_key(DeviceId("gpu.example.com", "pool", "gpu-1"))
PART = build_device_key(DeviceId("gpu.example.com", "pool", "part"))
SET = build_counter_key(CounterSetId("gpu.example.com", "pool", "set"))
NOBODY = Holder(namespace="default", name="nobody", uid="none")


async def furnished(there: World) -> None:
    """Claims with a device, a share and a partition; one of them prepared, one quarantined."""
    for i, slice_ in enumerate(SLICES):
        await there.put(slice_ | {"metadata": {"name": f"s{i}"}})
    for name in ("a", "b", "c", "old"):
        await there.claim(name, uid=f"uid-{name}")
    await there.allocate("a", result("gpu-0"))
    await there.allocate("b", result("gpu-1", share="s1", memory="2Gi"))
    await there.allocate("c", result("part"))
    await there.allocate("old", result("gpu-1", share="s2", memory="1Gi"))
    await there.put(preparation("p-a", "n1", "a", "uid-a"))
    await there.put(preparation("p-old", "n1", "old", "uid-old"))
    await there.delete(CLAIMS, "default", "old")


def whole(holder: Holder, **more: Any) -> bytes:
    return encode_row(DeviceRow(holdings=(Holding(holder=holder, **more),)))


def sum_of(amount: str) -> bytes:
    return encode_row(CounterRow(charged={"c": Quantity.parse(amount)}))


LOST = Holder(namespace="default", name="lost", uid="uid-lost")
EMPTY = build_device_key(DeviceId("gpu.example.com", "pool/x", "gpu-9"))

SPOILT = [
    ("missing row", GPU, None),
    ("row without claim", EMPTY, whole(LOST)),
    ("other holder", GPU, whole(LOST)),
    (
        "wrong amounts",
        SHARED,
        encode_row(
            DeviceRow(
                holdings=(
                    Holding(
                        holder=Holder(namespace="default", name="b", uid="uid-b"),
                        share="s1",
                        amounts={"memory": Quantity.parse("1Gi")},
                    ),
                    Holding(
                        holder=Holder(namespace="default", name="old", uid="uid-old"),
                        share="s2",
                        amounts={"memory": Quantity.parse("1Gi")},
                        prepared={"p-old": "n1"},
                        gone=True,
                    ),
                )
            )
        ),
    ),
    ("quarantine without preparation", EMPTY, whole(LOST, prepared={"p-lost": "n9"}, gone=True)),
    ("wrong preparations", GPU, whole(Holder(namespace="default", name="a", uid="uid-a"))),
    ("wrong counter sums", SET, sum_of("5")),
    ("wrong counter sums", SET, None),
    ("preparation row differs", build_preparation_key("nobody"), b'{"format":1,"node":"n1"}'),
    ("preparation row differs", build_preparation_key("p-a"), None),
    ("unreadable row", GPU, b"spoilt"),
]


@pytest.mark.parametrize(("flaw", "key", "value"), SPOILT)
def test_a_row_that_differs_is_found_and_repaired(flaw: str, key: bytes, value: bytes | None):
    async def scenario() -> None:
        async with world(lambda cache: [LedgerAdmission(cache)]) as there:
            await furnished(there)
            await there.caught_up()
            before = {entry.key: entry.value for entry in there.cache.list_rows(LEDGER_PREFIX)}
            sound = await audit_cached_ledger(there.cache)
            assert sound.is_consistent, sound.findings
            assert (sound.claims, sound.preparations, sound.rows) == (3, 2, 6)
            await there.store.txn([], [Delete(key) if value is None else Put(key, value)])
            report = await audit_cached_ledger(there.cache)
            assert [finding.flaw.value for finding in report.findings] == [flaw]
            assert report.findings[0].key == key
            repaired = await repair_ledger(there.store, there.cache)
            assert repaired.is_consistent, repaired.findings
            assert [finding.flaw.value for finding in repaired.repaired] == [flaw]
            after = {entry.key: entry.value for entry in there.cache.list_rows(LEDGER_PREFIX)}
            assert after == before

    asyncio.run(scenario())


def test_a_lost_ledger_is_rebuilt():
    """All rows but those of devices that a deleted claim left prepared: only the ledger knows them."""

    async def scenario() -> None:
        async with world(lambda cache: [LedgerAdmission(cache)]) as there:
            await furnished(there)
            await there.caught_up()
            before = {entry.key: entry.value for entry in there.cache.list_rows(LEDGER_PREFIX)}
            await there.store.txn(
                [], [Delete(key) for key in before if key.startswith((DEVICE_PREFIX, COUNTER_PREFIX))]
            )
            report = await repair_ledger(there.store, there.cache)
            assert report.is_consistent
            assert {entry.key: entry.value for entry in there.cache.list_rows(LEDGER_PREFIX)} == before
            await there.store.txn([], [Delete(key) for key in before])
            report = await repair_ledger(there.store, there.cache)
            assert report.is_consistent
            rows = {entry.key: entry.value for entry in there.cache.list_rows(LEDGER_PREFIX)}
            assert rows.keys() == before.keys()
            assert rows[GPU] == before[GPU]
            assert rows[PART] == before[PART]
            assert rows[SET] == before[SET]
            assert b"uid-old" not in rows[SHARED]

    asyncio.run(scenario())


def test_two_claims_with_one_device_are_reported_and_block_it():
    async def scenario() -> None:
        async with world(lambda cache: [LedgerAdmission(cache, enforced=False)]) as there:
            for name in ("a", "b"):
                await there.claim(name)
                await there.allocate(name, result("gpu-0"))
            report = await repair_ledger(there.store, there.cache)
            assert [(finding.flaw.value, finding.repairable) for finding in report.findings] == [
                ("held twice", False)
            ]
            assert report.findings[0].message == (
                "held by default/a and default/b, and at least one of them has it as a whole; "
                "delete or deallocate all but one"
            )
            assert report.findings[0].row_name == "device gpu.example.com/pool/gpu-0"
            assert report.to_document()["agrees"] is False

    asyncio.run(scenario())


def test_a_repair_does_not_undo_what_happens_meanwhile():
    async def scenario() -> None:
        async with world(lambda cache: [LedgerAdmission(cache)]) as there:
            await furnished(there)
            await there.store.txn([], [Delete(GPU)])
            txn = there.store.txn
            meddled = False

            async def meddling(compares, writes):
                nonlocal meddled
                if not meddled and len(writes) == 1 and writes[0].key == GPU:
                    meddled = True
                    await there.deallocate("a")
                return await txn(compares, writes)

            there.store.txn = meddling  # type: ignore[method-assign]
            report = await repair_ledger(there.store, there.cache)
            assert meddled
            assert report.is_consistent
            row = there.cache.get_row(GPU)
            assert row is not None
            assert b'"gone":true' in row.value  # the node still has it; only the claim let go

    asyncio.run(scenario())


def test_entries_list_the_holders_of_devices():
    async def scenario() -> None:
        async with world(lambda cache: [LedgerAdmission(cache)]) as there:
            await furnished(there)
            await there.caught_up()
            assert [entry["device"] for entry in list_held_devices(there.cache)] == [
                "gpu.example.com/pool/gpu-0",
                "gpu.example.com/pool/gpu-1",
                "gpu.example.com/pool/part",
            ]
            mine = list_held_devices(there.cache, "n1")
            assert [entry["device"].rpartition("/")[2] for entry in mine] == ["gpu-0", "gpu-1"]
            assert [(held["claim"], held["quarantined"]) for held in mine[1]["holders"]] == [
                ("default/b", False),
                ("default/old", True),
            ]
            assert list_held_devices(there.cache, "n2") == []

    asyncio.run(scenario())


def test_unknown_rows_are_reported():
    async def scenario() -> None:
        async with world(lambda cache: [LedgerAdmission(cache)]) as there:
            await there.store.txn(
                [], [Put(LEDGER_PREFIX + b"novelty/x", b"{}"), Put(PREPARATION_PREFIX + b"x", b"{")]
            )
            report = await repair_ledger(there.store, there.cache)
            assert report.is_consistent
            assert there.cache.list_rows(LEDGER_PREFIX) == []

    asyncio.run(scenario())
