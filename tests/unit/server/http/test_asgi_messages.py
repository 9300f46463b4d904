"""A stream lasts as long as its client accepts its parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import pytest

from dray.server.http import asgi_messages
from dray.server.http.asgi_messages import send_stream
from dray.server.http.requests import ANONYMOUS_USER, ApiCall, ApiRequest, ApiResponse

REQUEST = ApiRequest(ApiCall("watch", "/api/v1/pods"), ANONYMOUS_USER)
PARTS = 8


class Client:
    """Accepts parts after a pause, or never; disconnects when `gone` is set."""

    def __init__(self, pause: float | None = 0.0) -> None:
        self.pause = pause
        self.taken: list[bytes] = []
        self.gone = asyncio.Event()
        self.ended = False

    async def receive(self) -> MutableMapping[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] != "http.response.body":
            return
        await (asyncio.Event().wait() if self.pause is None else asyncio.sleep(self.pause))
        self.taken.append(message["body"])

    async def parts(self) -> AsyncGenerator[bytes, None]:
        try:
            for number in range(PARTS):
                yield b"%d" % number
        finally:
            self.ended = True

    async def stream(self) -> bool:
        return await send_stream(self.send, self.receive, ApiResponse(200, self.parts()), REQUEST)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi_messages, "STREAM_SEND_SECONDS", 0.5)


def test_a_client_that_accepts_nothing_is_disconnected(short: None) -> None:
    async def scenario() -> None:
        client = Client(None)
        assert not await client.stream()
        assert (client.taken, client.ended) == ([], True)

    asyncio.run(scenario())


def test_a_slow_client_that_accepts_every_part_in_time_gets_all(short: None) -> None:
    async def scenario() -> None:
        client = Client(0.08)  # all parts together take longer than one may
        assert await client.stream()
        assert client.taken == [*(b"%d" % number for number in range(PARTS)), b""]

    asyncio.run(scenario())


def test_a_disconnect_ends_the_stream(short: None) -> None:
    async def scenario() -> None:
        client = Client(None)
        client.gone.set()
        assert await client.stream()
        assert client.ended

    asyncio.run(scenario())
