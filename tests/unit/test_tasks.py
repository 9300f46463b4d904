"""Waiting for the first of several tasks: the others end, and no error is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dray.tasks import cancel_and_wait, wait_for_first


async def fail(message: str) -> None:
    raise ValueError(message)


class Endless:
    """A coroutine that runs until it is cancelled, and takes a while to end."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.has_ended = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.has_ended = True
            if self.error:
                raise ValueError(self.error)


def collect_reports() -> list[dict[str, Any]]:
    """Collect what the exception handler of the running event loop receives."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, details: found.append(details))
    return found


def run_in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a coroutine."""

    def run() -> None:
        asyncio.run(test())

    return run


@run_in_loop
async def test_the_position_of_the_first_to_end_is_returned():
    assert await wait_for_first(Endless().run(), asyncio.sleep(0)) == 1


@run_in_loop
async def test_of_several_that_ended_the_leftmost_counts():
    ready = [asyncio.get_running_loop().create_future() for _ in range(2)]
    ready[0].set_result(None)
    ready[1].set_exception(ValueError("too late"))
    assert await wait_for_first(*ready) == 0
    assert str(ready[1].exception()) == "too late"


@run_in_loop
async def test_the_others_have_ended_when_the_wait_is_over():
    others = [Endless(), Endless()]
    await wait_for_first(asyncio.sleep(0), *(each.run() for each in others))
    assert all(each.has_ended for each in others)


@run_in_loop
async def test_the_error_of_the_first_is_raised_after_the_others_have_ended():
    other = Endless()
    with pytest.raises(ValueError, match="broken"):
        await wait_for_first(other.run(), fail("broken"))
    assert other.has_ended


@run_in_loop
async def test_cancelling_the_wait_ends_all():
    others = [Endless(), Endless()]
    waiting = asyncio.create_task(wait_for_first(*(each.run() for each in others)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert all(each.has_ended for each in others)


@run_in_loop
async def test_an_error_on_the_way_out_is_reported():
    reported = collect_reports()
    await wait_for_first(Endless("cannot clean up").run(), asyncio.sleep(0))
    assert [str(details["exception"]) for details in reported] == ["cannot clean up"]


@run_in_loop
async def test_a_cancelled_gather_is_no_error():
    reported = collect_reports()
    gathered = asyncio.gather(Endless().run(), Endless().run())
    assert await wait_for_first(gathered, asyncio.sleep(0)) == 1
    del gathered
    assert reported == []


@run_in_loop
async def test_a_second_cancellation_does_not_reach_the_clean_up():
    reached = asyncio.Event()
    cleaned = asyncio.Event()

    async def clean_up_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reached.set()
            await asyncio.sleep(0.01)
            cleaned.set()

    task = asyncio.create_task(clean_up_slowly())
    await asyncio.sleep(0)
    ending = asyncio.create_task(cancel_and_wait(task))
    await reached.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await cleaned.wait()


@run_in_loop
async def test_tasks_that_have_ended_need_no_waiting():
    done = asyncio.create_task(asyncio.sleep(0))
    await done
    await cancel_and_wait(done)
    await cancel_and_wait()
