"""Two processes of a driver on one node: locks per claim, and how long records are kept."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.driver import Ready
from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.claim_locks import ClaimFileLocks
from dray.driver.preparing.prepared_claims import (
    LATE_CALL_SECONDS,
    MAX_UNPREPARED_RECORDS,
    PRUNE_EVERY_CLAIMS,
    UNPREPARED_RETENTION_SECONDS,
    PreparedClaimStore,
)
from dray.driver.preparing.prepared_records import PreparedClaimRecord
from tests.contract.api import path
from tests.unit.driver.driver_node import DRIVER, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until


def open_store(root: Path) -> PreparedClaimStore:
    return PreparedClaimStore(root / "state", ClaimCdiFiles(root / "cdi", DRIVER), "boot-1")


def given_back(store: PreparedClaimStore, uid: str, *consumers: str, now: float = 0.0) -> None:
    entry = PreparedClaimRecord(uid=uid, namespace="default", name=uid, boot_id="boot-1", consumers=consumers)
    store.begin_prepare(entry, now)
    store.finish_unprepare(
        store.begin_unprepare(store.finish_prepare(entry, [Ready(env={"A": "1"})], [None])), (), now
    )


def test_a_claim_that_the_old_process_is_still_preparing_is_given_back_by_the_new_one_afterwards() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            go, began = threading.Event(), threading.Event()
            old, new = Gpu(), Gpu()

            def slowly(_what: str, _claim: object) -> None:
                began.set()
                assert go.wait(20)

            old.on_call = slowly
            async with (
                node.run_driver(old, instance="old") as first,
                node.run_driver(new, instance="new") as second,
            ):
                uid = await node.create_claim("c")
                asked = asyncio.create_task(first.prepare((uid, "c")))
                await asyncio.to_thread(began.wait, 20)
                asked.cancel()
                giving = asyncio.create_task(second.unprepare_ok(uid, "c"))
                await wait_until(
                    lambda: _now("another process of the driver is busy with a claim" in node.log_text)
                )
                assert new.calls == []
                go.set()
                await giving
            assert (old.calls, new.calls) == ([("prepare", "c")], [("unprepare", "c")])
            assert node.cdi() == {}
            assert list((node.state / "prepared").iterdir()) == []
            assert list((node.state / "turns").iterdir()) == []

    asyncio.run(scenario())


async def _now(value: bool) -> bool:
    return value


def test_the_locks_of_a_killed_process_do_not_block(tmp_path: Path) -> None:
    async def scenario() -> None:
        locks, events = ClaimFileLocks(tmp_path / "locks"), list[str]()
        (tmp_path / "locks" / "c.lock").touch()
        async with locks.acquire("c", lambda: events.append("busy")):
            ClaimFileLocks(tmp_path / "locks").remove_stale()
            assert [each.name for each in (tmp_path / "locks").iterdir()] == ["c.lock"]
        (tmp_path / "locks" / "d.lock").touch()
        locks.remove_stale()
        assert list((tmp_path / "locks").iterdir()) == []
        assert events == []

    asyncio.run(scenario())


def test_a_held_lock_is_waited_for_and_a_failure_releases_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, other, events = ClaimFileLocks(tmp_path), ClaimFileLocks(tmp_path), list[str]()
        with pytest.raises(OSError, match="a failure"):
            async with one.acquire("c", lambda: None):
                raise OSError("a failure")
        async with one.acquire("c", lambda: None):
            waiting = asyncio.create_task(acquire_once(other, events))
            await wait_until(lambda: _now(events == ["busy"]))
        await waiting
        assert events == ["busy", "acquired"]

    asyncio.run(scenario())


async def acquire_once(locks: ClaimFileLocks, events: list[str]) -> None:
    async with locks.acquire("c", lambda: events.append("busy")):
        events.append("acquired")


# --- retention ---


@pytest.mark.parametrize("had", [["pod-1"], ["pod-1", "pod-2"]])
def test_an_earlier_consumer_can_use_a_claim_again_a_little_later(tmp_path: Path, had: list[str]) -> None:
    store = open_store(tmp_path)
    given_back(store, "c", *had)
    soon, later, before = LATE_CALL_SECONDS / 2, LATE_CALL_SECONDS * 2, -LATE_CALL_SECONDS * 2
    assert store.compute_late_seconds("c", ["pod-1"], soon)
    assert not store.compute_late_seconds("c", ["pod-1"], later)
    assert not store.compute_late_seconds("c", ["pod-1"], before), "somebody has set the clock back"
    assert not store.compute_late_seconds("c", ["pod-1", "pod-3"], soon), "somebody came since"
    assert store.compute_late_seconds("c", [], soon)
    assert store.compute_late_seconds("c", [], later), "nobody has it reserved any more"


def test_records_of_unprepared_claims_are_pruned_while_a_driver_runs(tmp_path: Path) -> None:
    store, notes = open_store(tmp_path), tmp_path / "state" / "returned"
    given_back(store, "first", "pod")
    for number in range(PRUNE_EVERY_CLAIMS):
        given_back(store, f"c-{number}", "pod", now=UNPREPARED_RETENTION_SECONDS * 2)
    assert not (notes / "first.json").exists()
    assert len(list(notes.iterdir())) == PRUNE_EVERY_CLAIMS < MAX_UNPREPARED_RECORDS


def test_a_claim_that_got_something_else_since_gives_back_what_it_had() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
            where = path("resourceclaims", "c", sub="status")
            for allocation in (None, _elsewhere("gpu-0")):
                await node.server.api.patch(
                    where, {"status": {"allocation": allocation, "reservedFor": None}}
                )
            gpu = Gpu()
            async with node.run_driver(gpu):
                await wait_until(lambda: _now(gpu.calls == [("unprepare", "c")]))
                await wait_until(lambda: _now(node.cdi() == {}))

    asyncio.run(scenario())


def test_a_claim_that_got_other_devices_is_not_answered_with_those_it_had() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            answer = await agent.prepare_ok(uid, "c")
            where = path("resourceclaims", "c", sub="status")
            moved = _elsewhere("gpu-1") | {"nodeSelector": None}
            for allocation in (None, moved):
                await node.server.api.patch(
                    where, {"status": {"allocation": allocation, "reservedFor": None}}
                )
            error = await agent.expect_refusal(uid, "c")
            assert (
                "prepared here with `node-a/gpu-0` and has `node-b/gpu-1` now; it must be given back" in error
            )
            node.transport.inner = None
            assert await agent.prepare_ok(uid, "c") == answer, "nobody can tell while the API is away"

    asyncio.run(scenario())


def _elsewhere(device: str) -> dict[str, object]:
    from tests.contract.documents import allocation

    return allocation(device, node="node-b")


# --- at what price ---


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    found: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", found.append)
        yield found


def test_little_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    entry = PreparedClaimRecord(uid="c", namespace="default", name="c", boot_id="boot-1", consumers=("pod",))
    with counted(monkeypatch) as preparing:
        store.begin_prepare(entry, 0.0)
        whole = store.finish_prepare(entry, [Ready(env={"A": "1"})], [None])
    with counted(monkeypatch) as giving:
        store.finish_unprepare(store.begin_unprepare(whole), (), 0.0)
    assert (len(preparing), len(giving)) == (3, 2)
