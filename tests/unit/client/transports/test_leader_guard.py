"""Writes that are sent only while the process leads."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import cast

import pytest

from dray.client.errors import NotLeaderError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.client.transports.leader_guard import WRITE_CHECK, LeaderGuardTransport


class Line:
    """Notes what is sent."""

    address = "somewhere"

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        self.sent.append(request.method)
        return TransportResponse(200, {})

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        self.sent.append("stream")
        return cast(AbstractAsyncContextManager[TransportStream], None)

    async def close(self) -> None:
        self.sent.append("close")


def test_reads_pass_always_and_writes_while_they_are_allowed() -> None:
    line, leading = Line(), [True]
    guard = LeaderGuardTransport(line, lambda: leading[0])
    writes = ("POST", "PUT", "PATCH", "DELETE")

    async def work() -> None:
        for method in ("GET", *writes):
            await guard.request(TransportRequest(method, "/x"))
        leading[0] = False
        await guard.request(TransportRequest("GET", "/x"))
        guard.stream(TransportRequest("GET", "/x"), idle_timeout=1)
        for method in writes:
            with pytest.raises(NotLeaderError, match=f"{method} /x was not sent"):
                await guard.request(TransportRequest(method, "/x"))
        leading[0] = True
        await guard.request(TransportRequest("POST", "/x"))
        await guard.close()

    asyncio.run(work())
    assert line.sent == ["GET", *writes, "GET", "stream", "POST", "close"]
    assert guard.address == "somewhere"


def test_a_cancelled_write_waits_for_its_response() -> None:
    events: list[str] = []

    class Slow(Line):
        async def request(
            self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
        ) -> TransportResponse:
            events.append("sent")
            await asyncio.sleep(0.05)
            events.append("arrived")
            return TransportResponse(200, {})

    async def work() -> None:
        writing = asyncio.create_task(
            LeaderGuardTransport(Slow(), lambda: True).request(TransportRequest("POST", "/x"))
        )
        await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.wait([writing])
        events.append("stopped")
        assert writing.cancelled()

    asyncio.run(work())
    assert events == ["sent", "arrived", "stopped"]


def test_a_slow_transport_checks_again_whether_it_may_still_send() -> None:
    leading, asked = [True], []

    class Opening(Line):
        async def request(
            self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
        ) -> TransportResponse:
            await asyncio.sleep(0)  # a connection is opened
            allowed = WRITE_CHECK.get()
            asked.append(allowed is None or allowed())
            return TransportResponse(200, {})

    async def work() -> None:
        guard = LeaderGuardTransport(Opening(), lambda: leading[0])
        await guard.request(TransportRequest("GET", "/x"))
        writing = asyncio.create_task(guard.request(TransportRequest("POST", "/x")))
        await asyncio.sleep(0)
        leading[0] = False
        await writing
        assert WRITE_CHECK.get() is None

    asyncio.run(work())
    assert asked == [True, False]
