"""Events that are recorded in a burst: in how many requests they are written, and what is left at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dray.client.client import Client
from dray.client.events import MAX_CONCURRENT_WRITES, NEW_EVENT_KIND, EventRecorder, InvolvedObject
from dray.client.rest_client import ClientOptions
from tests.unit.client.fakeapi import InstantTime
from tests.unit.client.transactions.batching import Batching, opening_batches


def run_recorder(work: Callable[[Batching, EventRecorder], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opening_batches() as batching, asyncio.timeout(20):
            recorder = EventRecorder(batching.client, "dray-scheduler", "host1")
            await batching.client.list(NEW_EVENT_KIND)
            batching.take_writes()
            await work(batching, recorder)

    asyncio.run(main())


def record(recorder: EventRecorder, name: str, namespace: str = "default") -> None:
    recorder.record(InvolvedObject("v1", "Pod", namespace, name, "u"), "Scheduled", "assigned")


async def list_subjects(batching: Batching) -> list[str]:
    events = (await batching.client.list(NEW_EVENT_KIND)).items
    return sorted(event["regarding"]["name"] for event in events)


def test_a_burst_of_events_is_a_few_requests() -> None:
    async def work(batching: Batching, recorder: EventRecorder) -> None:
        names = [f"p{number:02}" for number in range(2 * MAX_CONCURRENT_WRITES + 5)]
        for name in names:
            record(recorder, name)
        await recorder.write_due()
        assert await list_subjects(batching) == names
        full = f"POST transactions of {MAX_CONCURRENT_WRITES}"
        assert batching.take_writes() == [full, full, "POST transactions of 5"]
        assert recorder.stats.created == len(names)

    run_recorder(work)


def test_events_that_come_soon_after_another_are_written_with_it() -> None:
    async def work(batching: Batching, recorder: EventRecorder) -> None:
        run = asyncio.create_task(recorder.run())
        for name in "abc":
            record(recorder, name)
            await asyncio.sleep(0)
        while recorder.stats.created < 3:
            await asyncio.sleep(0.005)
        assert batching.take_writes() == ["POST transactions of 3"]
        run.cancel()
        await asyncio.wait([run])

    run_recorder(work)


def test_an_event_that_is_refused_concerns_no_other() -> None:
    async def work(batching: Batching, recorder: EventRecorder) -> None:
        for name in "abc":
            record(recorder, name, "nowhere" if name == "b" else "default")
        await recorder.write_due()
        assert await list_subjects(batching) == ["a", "c"]
        assert (recorder.stats.created, recorder.stats.failed, recorder.stats.dropped) == (2, 1, 1)

    run_recorder(work)


def test_an_event_whose_name_is_taken_gets_another_name() -> None:
    async def work(batching: Batching, _recorder: EventRecorder) -> None:
        options = ClientOptions(time_source=InstantTime().time_source)
        client = Client(batching.transport, options)
        for instance in ("first", "second"):
            recorder = EventRecorder(client, "dray-scheduler", instance)
            for name in "abc"[: 1 if instance == "first" else 3]:
                record(recorder, name)
            await recorder.write_due()
            assert recorder.stats.failed == 0
        assert await list_subjects(batching) == ["a", "a", "b", "c"]

    run_recorder(work)


def test_events_that_are_left_are_written_when_recording_ends() -> None:
    async def work(batching: Batching, recorder: EventRecorder) -> None:
        run = asyncio.create_task(recorder.run())
        await asyncio.sleep(0)
        for name in "abc":
            record(recorder, name)
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
        assert await list_subjects(batching) == ["a", "b", "c"]

    run_recorder(work)
