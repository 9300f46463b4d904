"""The transport between parts of one process: a client's requests go straight to the server's door.

Theory of operation: what a client asks passes the same stations as over a socket (rights, limits, audit,
rules), but is never written as HTTP. A watch is read where it is made: no queue and no task stand between,
and a client that does not read lets the server's own buffer run over, as any other does.

Rules for this file: who asks was settled when the transport was made; nothing in a request changes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

from dray.client.client import Client
from dray.client.errors import Unreachable
from dray.client.rest_client import Habits
from dray.client.transport import LONGEST_CALL, Reply, Request, Stream
from dray.server.http.application import App, Asked
from dray.server.http.requests import AUTHENTICATED, Answer, User


class Inside:
    """A way to the server of this process, as the user given."""

    def __init__(self, app: App, user: str, groups: tuple[str, ...] = ()) -> None:
        self._app = app
        self._user = User(user, groups)

    @property
    def address(self) -> str:
        return "this process"

    async def request(self, request: Request, *, timeout: float = LONGEST_CALL) -> Reply:
        if timeout >= LONGEST_CALL:
            # The server gives up by itself, and an alarm for every call would cost more than all the rest.
            return _reply(await self._app.inside(_asked(request), self._user))
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return _reply(await self._app.inside(_asked(request), self._user))
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unreachable(
                f"no answer to {request.method} {request.path} in {timeout:g} seconds"
            ) from None

    @asynccontextmanager
    async def stream(self, request: Request, *, silence: float) -> AsyncIterator[Stream]:
        answer = await self._app.inside(_asked(request), self._user)
        if isinstance(answer.body, bytes):
            yield Stream(answer.code, _headers(answer), _once(answer.body))
            return
        async with aclosing(answer.body) as parts:  # type: ignore[type-var]
            yield Stream(answer.code, _headers(answer), parts)

    async def close(self) -> None:
        """There is nothing to let go of."""


def _asked(request: Request) -> Asked:
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers["accept"] = request.accept
    if request.body:
        headers["content-type"] = request.content_type
    return Asked(request.method, request.path, request.query, headers, request.body)


def _reply(answer: Answer) -> Reply:
    assert isinstance(answer.body, bytes)
    held = answer.held
    # Structs are frozen: the one the server stored is as good as one read from the body.
    view = None if held is None else lambda: held.view
    return Reply(answer.code, _headers(answer), answer.body, view)


def _headers(answer: Answer) -> Mapping[str, str]:
    headers = {"content-type": answer.content_type}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def client_inside(app: App, user: str, *groups: str) -> Client:
    """A client of the server of this process, as somebody who has shown who they are."""
    return Client(Inside(app, user, (*groups, AUTHENTICATED)), Habits(manager=user.replace(":", "-")))
