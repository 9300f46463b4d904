"""The application records exceptions in streams and in access control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Any

from dray.clock import SystemClock
from dray.server.http.application import ApiApplication, RequestResult
from dray.server.http.errors import new_bad_request
from dray.server.http.requests import ApiCall, ApiRequest, ApiResponse, RequestUser
from dray.server.http.routing import Router


class AllowAll:
    """Access and flow control that allow every request."""

    def authenticate(self, headers: Any, peer: Any, path: str) -> RequestUser:
        return RequestUser("somebody")

    def impersonate(self, user: RequestUser, headers: Any) -> RequestUser:
        return user

    def authorize(self, call: ApiCall, user: RequestUser) -> str:
        return "everything is allowed"

    def acquire(self, call: ApiCall, user: RequestUser) -> Any:
        return nullcontext()


class RecordingObserver:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.faults: list[Exception] = []
        self.results: list[RequestResult] = []

    async def record_arrival(self, request: ApiRequest) -> ApiRequest:
        return request

    async def record_response(self, request: ApiRequest, result: RequestResult) -> None:
        self.results.append(result)

    def record_fault(self, request: ApiRequest, error: Exception) -> None:
        self.faults.append(error)

    def record_cutoff(self, request: ApiRequest) -> None:
        raise AssertionError("no client was slow")


async def serve_stream(
    error: Exception, access: Any = None
) -> tuple[list[dict[str, Any]], RecordingObserver]:
    """The messages of a stream that ends in an error, and the observer of its request."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    async def answer(request: ApiRequest) -> ApiResponse:
        return ApiResponse(200, parts())

    observer, access = RecordingObserver(), access or AllowAll()
    app = ApiApplication(
        Router(()), access, access, observer, answer, answer, SystemClock(), lambda request: request
    )
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
    return sent, observer


def test_a_stream_that_raises_is_recorded_and_left_incomplete():
    for error in (ValueError("broken"), new_bad_request("too late to refuse")):
        sent, observer = asyncio.run(serve_stream(error))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert sent[-1]["more_body"]
        assert observer.faults == [error]
        assert [result.code for result in observer.results] == [200]


class FailingAccessControl(AllowAll):
    """Raises when it authorizes."""

    def authorize(self, call: ApiCall, user: RequestUser) -> str:
        raise ZeroDivisionError


def test_an_exception_of_access_control_is_recorded():
    """Such a request once failed without any record."""
    sent, observer = asyncio.run(serve_stream(ValueError(), FailingAccessControl()))
    assert sent == []
    assert [type(error) for error in observer.faults] == [ZeroDivisionError]


def test_a_node_has_a_name():
    nodes = ("system:nodes",)
    assert RequestUser("system:node:n1", nodes).node_name == "n1"
    assert RequestUser("system:node:", nodes).node_name is None
    assert RequestUser("n1", nodes).node_name is None
    assert RequestUser("system:node:n1").node_name is None
