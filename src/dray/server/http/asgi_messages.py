"""ASGI messages: reads the head and body of a request, sends a response whole or as a stream.

Theory of operation: a whole response is sent in one message. A stream is sent part by part while a second
task waits for the client to disconnect. A client that does not accept a part within `STREAM_SEND_SECONDS` is
disconnected, so that a stalled reader cannot hold memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any, Final

from dray.server.http.errors import ApiStatusError, new_bad_request, new_too_large
from dray.server.http.requests import IN_PROCESS, ApiRequest, ApiResponse
from dray.tasks import cancel_and_wait

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]

STREAM_SEND_SECONDS: Final = 30.0
"""How long a client may take to accept a part of a stream."""


async def serve_lifespan(receive: Receive, send: Send) -> None:
    """Answer the lifespan messages; the server starts and stops outside of ASGI."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def read_target(scope: Scope) -> tuple[str, str]:
    """The path and the query of a request, both still encoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1"), scope.get("query_string", b"").decode("latin-1")


def read_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name; repeated headers are joined by commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in given:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def get_source_address(scope: Scope) -> str:
    """The address of the client; `IN_PROCESS` when the request came over no socket."""
    client = scope.get("client")
    return client[0] if client else IN_PROCESS


async def read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    """The whole body; raises an `ApiStatusError` when it is too large or the client disconnects."""
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise new_body_too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise new_bad_request("the client disconnected before its request was complete")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise new_body_too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def new_body_too_large(max_bytes: int) -> ApiStatusError:
    return new_too_large(f"the body of a request has at most {max_bytes} bytes")


def _build_headers(response: ApiResponse, request: ApiRequest) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"audit-id", request.audit_id.encode("latin-1", "replace")),
        (b"content-type", response.content_type.encode()),
    ]
    given = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in response.headers]
    if not any(name == b"cache-control" for name, _ in given):
        headers.append((b"cache-control", b"no-cache, private"))
    return headers + given


async def send_whole(send: Send, response: ApiResponse, request: ApiRequest) -> None:
    """Send a response whose body is complete."""
    assert isinstance(response.body, bytes)
    headers = _build_headers(response, request)
    headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    body = b"" if request.call.path and response.code == 304 else response.body
    await send({"type": "http.response.body", "body": body})


async def send_stream(send: Send, receive: Receive, response: ApiResponse, request: ApiRequest) -> bool:
    """Send parts until they end or the client disconnects; False when the client stopped reading."""
    assert not isinstance(response.body, bytes)
    await send(
        {"type": "http.response.start", "status": response.code, "headers": _build_headers(response, request)}
    )
    progress = _SendProgress()
    sending = asyncio.ensure_future(_send_parts(send, response.body, progress))
    disconnecting = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        while not (sending.done() or disconnecting.done()):
            if (timeout := progress.compute_timeout()) <= 0:
                return False
            await asyncio.wait((sending, disconnecting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return sending.result() if sending.done() else True
    finally:
        await cancel_and_wait(sending, disconnecting)


class _SendProgress:
    """Since when a part of a stream waits to be accepted; one timer for all parts, as most never wait."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.waiting_since: float | None = None

    def compute_timeout(self) -> float:
        """How long it is at least until a part has waited too long."""
        return (
            STREAM_SEND_SECONDS
            if self.waiting_since is None
            else self.waiting_since + STREAM_SEND_SECONDS - self.now()
        )


async def _send_parts(send: Send, parts: AsyncIterator[bytes], progress: _SendProgress) -> bool:
    async with aclosing(parts) as lines:  # type: ignore[type-var]
        async for line in lines:
            progress.waiting_since = progress.now()
            await send({"type": "http.response.body", "body": line, "more_body": True})
            progress.waiting_since = None
    await send({"type": "http.response.body", "body": b""})
    return True


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
