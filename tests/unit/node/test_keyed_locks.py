"""Locks by claim and task queues by pod."""

from __future__ import annotations

import asyncio

import pytest

from dray.node.keyed_locks import Broadcast, NodeClaimLocks, PodTaskQueues

X, Y = frozenset("x"), frozenset("y")


async def until_idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_tasks_of_a_pod_run_in_order_also_without_a_waiting_caller():
    turns, done, gate = PodTaskQueues(), [], asyncio.Event()

    async def first() -> None:
        await gate.wait()
        done.append("first")

    async def second() -> None:
        done.append("second")

    impatient = asyncio.create_task(turns.run_in_order("pod", first))
    await until_idle()
    impatient.cancel()
    waiting = asyncio.create_task(turns.run_in_order("pod", second))
    other = asyncio.create_task(turns.run_in_order("other", second))
    await until_idle()
    assert done == ["second"]
    assert other.done()
    gate.set()
    await waiting
    assert done == ["second", "first", "second"]


async def test_work_that_failed_does_not_keep_the_next_from_its_turn():
    turns = PodTaskQueues()

    async def broken() -> None:
        raise RuntimeError("broken")

    async def fine() -> str:
        return "fine"

    with pytest.raises(RuntimeError):
        await turns.run_in_order("pod", broken)
    assert await turns.run_in_order("pod", fine) == "fine"


async def test_closing_ends_all_work():
    turns = PodTaskQueues()
    waiting = asyncio.create_task(turns.run_in_order("pod", asyncio.Event().wait))
    behind = asyncio.create_task(turns.run_in_order("pod", asyncio.Event().wait))
    await until_idle()
    await turns.close()
    await asyncio.wait((waiting, behind))
    assert waiting.cancelled()
    assert behind.cancelled()


async def test_a_claim_is_locked_by_one_task():
    busy, order = NodeClaimLocks(), []

    async def work(name: str, claims: frozenset[str]) -> None:
        async with busy.hold(lambda: claims):
            order.append(f"{name} begins")
            await until_idle()
            order.append(f"{name} ends")

    await asyncio.gather(work("one", X), work("two", X | Y), work("three", Y))
    assert order.index("one ends") < order.index("two begins")
    assert order.index("three ends") < order.index("two begins")
    assert order[:2] == ["one begins", "three begins"]
    assert busy.locked == set()


async def test_a_cancelled_request_gets_no_lock():
    busy = NodeClaimLocks()
    leaving: set[str] = set()

    async def work() -> bool:
        async with busy.hold(lambda: X, should_cancel=lambda: bool(leaving)) as taken:
            return taken

    async with busy.hold(lambda: X):
        waiting = asyncio.create_task(work())
        await until_idle()
        assert not waiting.done()
        leaving.add("pod")
        busy.recheck()
        assert await waiting is False
        assert busy.locked == set(X)
    leaving.clear()
    assert await work()


async def test_a_wait_reports_whether_a_claim_was_locked():
    busy = NodeClaimLocks()
    assert not await busy.wait_until_free(lambda: X)
    async with busy.hold(lambda: X):
        assert not await busy.wait_until_free(lambda: Y)
        waiting = asyncio.create_task(busy.wait_until_free(lambda: X))
        await until_idle()
        assert not waiting.done()
    assert await waiting


async def test_a_broadcast_wakes_waiting_tasks_and_no_later_ones():
    bell = Broadcast()
    early = asyncio.create_task(bell.wait())
    await until_idle()
    bell.notify_all()
    late = asyncio.create_task(bell.wait())
    await until_idle()
    assert early.done()
    assert not late.done()
    late.cancel()
