"""The local transport: a client's requests go straight to the API server in the same process.

Theory of operation: a request passes the same steps as over a socket (authorization, flow control, audit,
admission), but is never encoded as HTTP. A watch is read where it is produced: no queue and no task are in
between, and a client that does not read overflows the server's own buffer, as any other does.

Rules for this file: the user is fixed when the transport is built; nothing in a request changes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from dray.client.client import Client
from dray.client.errors import ServerUnreachableError
from dray.client.informers.shared_reflectors import SharedReflectors, SharingClient
from dray.client.rest_client import ClientOptions
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.cluster.services.component_connection import merge_headers
from dray.server.http.application import ApiApplication, InProcessRequest
from dray.server.http.requests import AUTHENTICATED, ApiResponse, RequestUser
from dray.server.objects.stored_object import StoredObject


class LocalTransport:
    """A transport to the server in this process, as a given user."""

    def __init__(self, app: ApiApplication, user: str, groups: tuple[str, ...] = ()) -> None:
        self._app = app
        self._user = RequestUser(user, groups)

    @property
    def address(self) -> str:
        return "this process"

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        if timeout >= DEFAULT_TIMEOUT_SECONDS:
            # The server has a timeout of its own, and a timer per call would cost more than the call.
            return to_transport_response(
                await self._app.serve_in_process(to_server_request(request), self._user)
            )
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return to_transport_response(
                    await self._app.serve_in_process(to_server_request(request), self._user)
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise ServerUnreachableError(
                f"no answer to {request.method} {request.path} in {timeout:g} seconds"
            ) from None

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        answer = await self._app.serve_in_process(to_server_request(request), self._user)
        if isinstance(answer.body, bytes):
            yield TransportStream(answer.code, merge_headers(answer), _iterate_once(answer.body))
            return
        async with aclosing(answer.body) as parts:  # type: ignore[type-var]
            yield TransportStream(answer.code, merge_headers(answer), parts)

    async def close(self) -> None:
        """There is nothing to close."""


def to_server_request(request: TransportRequest) -> InProcessRequest:
    """Convert a request of a client to one of the server."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers["accept"] = request.accept
    if request.body:
        headers["content-type"] = request.content_type
    return InProcessRequest(request.method, request.path, request.query, headers, request.body)


def to_transport_response(answer: ApiResponse) -> TransportResponse:
    """Convert a response of the server to one for a client."""
    assert isinstance(answer.body, bytes)
    parts = tuple(
        TransportResponse(part.code, {}, part.body, _get_view_of(part.stored)) for part in answer.parts
    )
    return TransportResponse(
        answer.code, merge_headers(answer), answer.body, _get_view_of(answer.stored), parts
    )


def _get_view_of(stored: StoredObject | None) -> Callable[[], Any] | None:
    """Return what gets the struct of a stored object, which is as good as one decoded from a body: structs
    are frozen.
    """
    return None if stored is None else lambda: stored.view


async def _iterate_once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def build_local_client(
    app: ApiApplication, user: str, *groups: str, reflectors: SharedReflectors | None = None
) -> Client:
    """Build a client of the server in this process, as an authenticated user.

    Its informers use the shared `reflectors`, if there are any.
    """
    transport = LocalTransport(app, user, (*groups, AUTHENTICATED))
    options = ClientOptions(field_manager=user.replace(":", "-"))
    return Client(transport, options) if reflectors is None else SharingClient(transport, reflectors, options)
