"""Two processes of a driver on one node, and what the book keeps, for how long and at what price."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.driver import Ready
from dray.driver.preparing.cdi_files import CdiFiles
from dray.driver.preparing.claim_locks import Turns
from dray.driver.preparing.prepared_claims import (
    FORGETTING_EVERY,
    LATE_SECONDS,
    MOST_REMEMBERED,
    REMEMBERED_SECONDS,
    Book,
)
from dray.driver.preparing.prepared_records import Entry
from tests.contract.api import path
from tests.unit.driver.onnode import DRIVER, Gpu, on_node
from tests.unit.driver.served import until


def book(root: Path) -> Book:
    return Book(root / "state", CdiFiles(root / "cdi", DRIVER), "boot-1")


def given_back(kept: Book, uid: str, *consumers: str, now: float = 0.0) -> None:
    entry = Entry(uid=uid, namespace="default", name=uid, boot_id="boot-1", consumers=consumers)
    kept.begin(entry, now)
    kept.given(kept.giving(kept.finish(entry, [Ready(env={"A": "1"})], [None])), (), now)


def test_a_claim_that_the_old_process_is_still_preparing_is_given_back_by_the_new_one_afterwards() -> None:
    async def scene() -> None:
        async with on_node() as node:
            go, began = threading.Event(), threading.Event()
            old, new = Gpu(), Gpu()

            def slowly(_what: str, _claim: object) -> None:
                began.set()
                assert go.wait(20)

            old.trouble = slowly
            async with (
                node.running(old, instance="old") as first,
                node.running(new, instance="new") as second,
            ):
                uid = await node.claim("c")
                asked = asyncio.create_task(first.prepare((uid, "c")))
                await asyncio.to_thread(began.wait, 20)
                asked.cancel()
                giving = asyncio.create_task(second.given_back(uid, "c"))
                await until(lambda: _now("another process of the driver is busy with a claim" in node.said))
                assert new.calls == []
                go.set()
                await giving
            assert (old.calls, new.calls) == ([("prepare", "c")], [("unprepare", "c")])
            assert node.cdi() == {}
            assert list((node.state / "prepared").iterdir()) == []
            assert list((node.state / "turns").iterdir()) == []

    asyncio.run(scene())


async def _now(value: bool) -> bool:
    return value


def test_what_a_process_left_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    async def scene() -> None:
        turns, told = Turns(tmp_path / "turns"), list[str]()
        (tmp_path / "turns" / "c.lock").touch()
        async with turns.of("c", lambda: told.append("busy")):
            Turns(tmp_path / "turns").tidy()
            assert [each.name for each in (tmp_path / "turns").iterdir()] == ["c.lock"]
        (tmp_path / "turns" / "d.lock").touch()
        turns.tidy()
        assert list((tmp_path / "turns").iterdir()) == []
        assert told == []

    asyncio.run(scene())


def test_what_others_hold_waits_and_what_failed_lets_go(tmp_path: Path) -> None:
    async def scene() -> None:
        one, other, told = Turns(tmp_path), Turns(tmp_path), list[str]()
        with pytest.raises(OSError, match="mine"):
            async with one.of("c", lambda: None):
                raise OSError("mine")
        async with one.of("c", lambda: None):
            waiting = asyncio.create_task(_once(other, told))
            await until(lambda: _now(told == ["busy"]))
        await waiting
        assert told == ["busy", "mine now"]

    asyncio.run(scene())


async def _once(turns: Turns, told: list[str]) -> None:
    async with turns.of("c", lambda: told.append("busy")):
        told.append("mine now")


# --- for how long ---


@pytest.mark.parametrize("had", [["pod-1"], ["pod-1", "pod-2"]])
def test_who_had_a_claim_may_have_it_again_a_little_later(tmp_path: Path, had: list[str]) -> None:
    kept = book(tmp_path)
    given_back(kept, "c", *had)
    soon, later, before = LATE_SECONDS / 2, LATE_SECONDS * 2, -LATE_SECONDS * 2
    assert kept.late("c", ["pod-1"], soon)
    assert not kept.late("c", ["pod-1"], later)
    assert not kept.late("c", ["pod-1"], before), "somebody has set the clock back"
    assert not kept.late("c", ["pod-1", "pod-3"], soon), "somebody came since"
    assert kept.late("c", [], soon)
    assert kept.late("c", [], later), "nobody has it reserved any more"


def test_claims_that_were_given_back_are_forgotten_while_a_driver_runs(tmp_path: Path) -> None:
    kept, notes = book(tmp_path), tmp_path / "state" / "returned"
    given_back(kept, "first", "pod")
    for number in range(FORGETTING_EVERY):
        given_back(kept, f"c-{number}", "pod", now=REMEMBERED_SECONDS * 2)
    assert not (notes / "first.json").exists()
    assert len(list(notes.iterdir())) == FORGETTING_EVERY < MOST_REMEMBERED


def test_a_claim_that_got_something_else_since_gives_back_what_it_had() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")
            where = path("resourceclaims", "c", sub="status")
            for allocation in (None, _elsewhere("gpu-0")):
                await node.served.api.patch(
                    where, {"status": {"allocation": allocation, "reservedFor": None}}
                )
            gpu = Gpu()
            async with node.running(gpu):
                await until(lambda: _now(gpu.calls == [("unprepare", "c")]))
                await until(lambda: _now(node.cdi() == {}))

    asyncio.run(scene())


def test_a_claim_that_got_other_devices_is_not_answered_with_those_it_had() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c")
            answer = await line.ok(uid, "c")
            where = path("resourceclaims", "c", sub="status")
            moved = _elsewhere("gpu-1") | {"nodeSelector": None}
            for allocation in (None, moved):
                await node.served.api.patch(
                    where, {"status": {"allocation": allocation, "reservedFor": None}}
                )
            told = await line.refused(uid, "c")
            assert (
                "prepared here with `node-a/gpu-0` and has `node-b/gpu-1` now; it must be given back" in told
            )
            node.way.inner = None
            assert await line.ok(uid, "c") == answer, "nobody can tell while the API is away"

    asyncio.run(scene())


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
    kept = book(tmp_path)
    entry = Entry(uid="c", namespace="default", name="c", boot_id="boot-1", consumers=("pod",))
    with counted(monkeypatch) as preparing:
        kept.begin(entry, 0.0)
        whole = kept.finish(entry, [Ready(env={"A": "1"})], [None])
    with counted(monkeypatch) as giving:
        kept.given(kept.giving(whole), (), 0.0)
    assert (len(preparing), len(giving)) == (3, 2)
