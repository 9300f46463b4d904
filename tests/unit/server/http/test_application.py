"""The door: a stream that breaks behind its head is noted, and nothing is sent into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Any

from dray.clock import SystemClock
from dray.server.http.application import App, Ending, Permit
from dray.server.http.errors import bad_request
from dray.server.http.requests import Answer, Call, Request, User
from dray.server.http.routing import Routes


class Open:
    """Lets everybody in."""

    def identify(self, headers: Any, peer: Any, path: str) -> User:
        return User("somebody")

    def permit(self, call: Call, user: User, headers: Any) -> Permit:
        return Permit(user)

    def entered(self, call: Call, user: User) -> Any:
        return nullcontext()


class Noting:
    """Remembers what happened."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        self.endings: list[Ending] = []

    async def arrived(self, request: Request) -> None:
        pass

    async def answered(self, request: Request, ending: Ending) -> None:
        self.endings.append(ending)

    def broke(self, request: Request, error: Exception) -> None:
        self.broken.append(error)

    def cut(self, request: Request) -> None:
        raise AssertionError("nobody was slow")


async def told(error: Exception, door: Any = None) -> tuple[list[dict[str, Any]], Noting]:
    """What is sent when a stream ends in an error, and what is noted."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    async def answer(request: Request) -> Answer:
        return Answer(200, parts())

    noting, door = Noting(), door or Open()
    app = App(Routes(()), door, door, noting, answer, answer, SystemClock())
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
    for error in (ValueError("broken"), bad_request("too late to refuse")):
        sent, noting = asyncio.run(told(error))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert sent[-1]["more_body"]
        assert noting.broken == [error]
        assert [ending.code for ending in noting.endings] == [200]


class Broken(Open):
    """Does not know what to think."""

    def permit(self, call: Call, user: User, headers: Any) -> Permit:
        raise ZeroDivisionError


def test_a_door_that_breaks_is_noted():
    """Nobody learnt why such a request failed."""
    sent, noting = asyncio.run(told(ValueError(), Broken()))
    assert sent == []
    assert [type(error) for error in noting.broken] == [ZeroDivisionError]


def test_a_node_has_a_name():
    nodes = ("system:nodes",)
    assert User("system:node:n1", nodes).node == "n1"
    assert User("system:node:", nodes).node is None
    assert User("n1", nodes).node is None
    assert User("system:node:n1").node is None
