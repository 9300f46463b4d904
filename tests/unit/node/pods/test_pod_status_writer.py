"""The status of a pod is written with retries, and only the newest counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dray.client.client import Client
from dray.client.errors import ServerUnreachableError
from dray.client.object_refs import ObjectKey
from dray.client.patches import StrategicMergePatch
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.client.transport import TransportRequest, TransportResponse
from dray.clock import ManualClock
from dray.node.pods.pod_status_writer import SETTLE_SECONDS, PodStatusWriter
from dray.telemetry.logs import build_silent_logger


class Script:
    """A server that answers writes as it is told, and notes what was written."""

    address = "script"

    def __init__(self, *codes: int, there: str = "") -> None:
        """`there` is the uid of the pod that can be read."""
        self.codes = list(codes)
        pod = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "%s"}}'
        self.there = (pod % there).encode() if there else b""
        self.written: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.reached = asyncio.Event()

    async def request(self, request: TransportRequest, *, timeout: float = 60.0) -> TransportResponse:
        if request.method != "PATCH":
            return TransportResponse(200, {}, self.there) if self.there else TransportResponse(404, {}, b"{}")
        self.reached.set()
        await self.gate.wait()
        self.written.append(request.body.decode())
        code = self.codes.pop(0) if self.codes else 200
        if code == 0:
            raise ServerUnreachableError("nobody is there")
        if code == 200:
            return TransportResponse(
                200, {}, b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}'
            )
        body = b'{"kind": "Status", "status": "Failure", "code": %d, "message": "no", "reason": "%s"}'
        reasons = {404: b"NotFound", 409: b"Conflict", 422: b"Invalid", 403: b"Forbidden"}
        return TransportResponse(code, {}, body % (code, reasons[code]))

    def stream(self, request: TransportRequest, *, idle_timeout: float) -> Any:
        raise AssertionError(request)

    async def close(self) -> None:
        """Nothing is open."""


def run_writer(script: Script, work: Callable[[PodStatusWriter], Awaitable[None]]) -> PodStatusWriter:
    async def at_once(_seconds: float) -> None:
        await asyncio.sleep(0)

    async def main() -> PodStatusWriter:
        client = Client(script, ClientOptions(max_attempts=1, time_source=TimeSource(sleep=at_once)))
        writer = PodStatusWriter(client, ObjectKey("default", "p"), "u", build_silent_logger())
        running = asyncio.create_task(writer.run())
        async with asyncio.timeout(10):
            await work(writer)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return writer

    return asyncio.run(main())


async def set_running(writer: PodStatusWriter) -> None:
    writer.set_status({"phase": "Running"})
    await writer.wait_until_written()


def test_a_status_is_written_for_this_pod_and_no_other() -> None:
    script = Script()
    run_writer(script, set_running)
    assert script.written == ['{"metadata":{"uid":"u"},"status":{"phase":"Running"}}']


def test_an_unchanged_status_is_not_written_again() -> None:
    script = Script()

    async def work(writer: PodStatusWriter) -> None:
        await set_running(writer)
        await set_running(writer)

    run_writer(script, work)
    assert len(script.written) == 1


def test_a_server_that_is_away_is_waited_for() -> None:
    script = Script(0, 403, 0)
    writer = run_writer(script, set_running)
    assert len(script.written) == 4
    assert not writer.gone


def test_only_the_newest_is_written_when_the_server_is_back() -> None:
    script = Script()

    async def work(writer: PodStatusWriter) -> None:
        script.gate.clear()
        for phase in ("Pending", "Running", "Succeeded"):
            writer.set_status({"phase": phase})
            await asyncio.sleep(0)
        script.gate.set()
        await writer.wait_until_written()

    run_writer(script, work)
    assert "Succeeded" in script.written[-1]
    assert not any("Running" in text for text in script.written)


def run_writer_by_hand(script: Script, work: Callable[[PodStatusWriter], Awaitable[None]]) -> list[float]:
    """Run a writer with a clock that moves when it sleeps; return for how long it slept."""
    clock, slept = ManualClock(), list[float]()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        slept.append(seconds)
        await asyncio.sleep(0)

    async def main() -> None:
        client = Client(script, ClientOptions(max_attempts=1, time_source=TimeSource(clock, sleep)))
        writer = PodStatusWriter(client, ObjectKey("default", "p"), "u", build_silent_logger())
        running = asyncio.create_task(writer.run())
        async with asyncio.timeout(30):
            await work(writer)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    return slept


def test_a_status_that_soon_has_a_successor_is_not_written() -> None:
    script = Script()

    async def work(writer: PodStatusWriter) -> None:
        writer.set_status({"phase": "Pending"}, urgent=False)
        writer.set_status({"phase": "Pending", "podIP": "::1"}, urgent=False)
        writer.set_status({"phase": "Running"})
        await writer.wait_until_written()

    assert run_writer_by_hand(script, work) == []
    assert script.written == ['{"metadata":{"uid":"u"},"status":{"phase":"Running"}}']


def test_a_status_without_a_successor_is_written_after_a_moment() -> None:
    """One that follows within this time does not prolong it."""
    script = Script()

    async def work(writer: PodStatusWriter) -> None:
        writer.set_status({"phase": "Pending"}, urgent=False)
        writer.set_status({"phase": "Pending", "podIP": "::1"}, urgent=False)
        await writer.wait_until_written()

    assert sum(run_writer_by_hand(script, work)) == SETTLE_SECONDS
    assert script.written == ['{"metadata":{"uid":"u"},"status":{"phase":"Pending","podIP":"::1"}}']


def test_the_same_status_becomes_urgent() -> None:
    script = Script()

    async def work(writer: PodStatusWriter) -> None:
        writer.set_status({"phase": "Pending"}, urgent=False)
        writer.set_status({"phase": "Pending"})
        await writer.wait_until_written()

    assert run_writer_by_hand(script, work) == []
    assert len(script.written) == 1


@pytest.mark.parametrize("together", [True, False])
def test_the_last_status_is_written_with_more_or_alone(together: bool) -> None:
    script, offered = Script(0), list[bytes]()

    async def write_last(patch: StrategicMergePatch) -> bool:
        offered.append(patch.encode_body())
        return together

    async def work(writer: PodStatusWriter) -> None:
        writer.set_final_status({"phase": "Failed"}, write_last)
        await writer.wait_until_written()

    run_writer(script, work)
    assert offered == [b'{"metadata":{"uid":"u"},"status":{"phase":"Failed"}}'], "once, whatever it says"
    assert len(script.written) == (0 if together else 2)


def test_the_end_is_written_after_a_status_in_flight_and_nothing_after_the_end() -> None:
    script, order = Script(), list[str]()

    async def write_last(_patch: StrategicMergePatch) -> bool:
        order.extend([*script.written, "the end"])
        return True

    async def work(writer: PodStatusWriter) -> None:
        script.gate.clear()
        writer.set_status({"phase": "Running"})
        await script.reached.wait()
        writer.set_final_status({"phase": "Succeeded"}, write_last)
        script.gate.set()
        await writer.wait_until_written()

    run_writer(script, work)
    assert order == ['{"metadata":{"uid":"u"},"status":{"phase":"Running"}}', "the end"]
    assert len(script.written) == 1


def test_a_deleted_pod_ends_the_writer() -> None:
    for code in (404, 409):
        script = Script(code)
        writer = run_writer(script, set_running)
        assert writer.gone
        assert len(script.written) == 1


def test_a_status_that_the_server_refuses_does_not_hold_up_the_pod() -> None:
    script = Script(422)
    writer = run_writer(script, set_running)
    assert not writer.gone
    assert len(script.written) == 1


def test_a_conflict_about_something_else_than_the_pod_is_tried_again() -> None:
    script = Script(409, 409, there="u")

    async def work(writer: PodStatusWriter) -> None:
        writer.set_status({"phase": "Running"})
        await writer.wait_until_written()

    writer = run_writer(script, work)
    assert (writer.gone, len(script.written)) == (False, 3)
    other = Script(409, there="another")
    assert run_writer(other, work).gone
    assert len(other.written) == 1
