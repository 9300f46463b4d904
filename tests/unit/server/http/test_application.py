"""The door: a stream that breaks behind its head is noted, and nothing is sent into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Any

from dray.clock import SystemClock
from dray.server.http.application import ApiApplication, GrantedAccess, RequestResult
from dray.server.http.errors import new_bad_request
from dray.server.http.requests import ApiCall, ApiRequest, ApiResponse, RequestUser
from dray.server.http.routing import Router


class Open:
    """Lets everybody in."""

    def authenticate(self, headers: Any, peer: Any, path: str) -> RequestUser:
        return RequestUser("somebody")

    def authorize(self, call: ApiCall, user: RequestUser, headers: Any) -> GrantedAccess:
        return GrantedAccess(user)

    def acquire(self, call: ApiCall, user: RequestUser) -> Any:
        return nullcontext()


class Noting:
    """Remembers what happened."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        self.endings: list[RequestResult] = []

    async def record_arrival(self, request: ApiRequest) -> None:
        pass

    async def record_response(self, request: ApiRequest, ending: RequestResult) -> None:
        self.endings.append(ending)

    def record_fault(self, request: ApiRequest, error: Exception) -> None:
        self.broken.append(error)

    def record_cutoff(self, request: ApiRequest) -> None:
        raise AssertionError("nobody was slow")


async def told(error: Exception, door: Any = None) -> tuple[list[dict[str, Any]], Noting]:
    """What is sent when a stream ends in an error, and what is noted."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    async def answer(request: ApiRequest) -> ApiResponse:
        return ApiResponse(200, parts())

    noting, door = Noting(), door or Open()
    app = ApiApplication(Router(()), door, door, noting, answer, answer, SystemClock())
    arrived = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if arrived.is_set():
            await asyncio.Event().wait()
        arrived.set()
        return {"type": "http.request", "body": b""}

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/page", "headers": [], "client": ("10.0.0.1", 1)}
    with suppress(ZeroDivisionError):
        await app(scope, receive, send)
    return sent, noting


def test_a_stream_that_breaks_is_noted_and_left_unfinished():
    for error in (ValueError("broken"), new_bad_request("too late to refuse")):
        sent, noting = asyncio.run(told(error))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert sent[-1]["more_body"]
        assert noting.broken == [error]
        assert [ending.code for ending in noting.endings] == [200]


class Broken(Open):
    """Does not know what to think."""

    def authorize(self, call: ApiCall, user: RequestUser, headers: Any) -> GrantedAccess:
        raise ZeroDivisionError


def test_a_door_that_breaks_is_noted():
    """Nobody learnt why such a request failed."""
    sent, noting = asyncio.run(told(ValueError(), Broken()))
    assert sent == []
    assert [type(error) for error in noting.broken] == [ZeroDivisionError]


def test_a_node_has_a_name():
    nodes = ("system:nodes",)
    assert RequestUser("system:node:n1", nodes).node_name == "n1"
    assert RequestUser("system:node:", nodes).node_name is None
    assert RequestUser("n1", nodes).node_name is None
    assert RequestUser("system:node:n1").node_name is None
