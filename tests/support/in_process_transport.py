"""A transport that calls an ASGI application in this process: no sockets, no TLS, no copying.

Theory of operation: a request is one call of the application in the caller's own task. A stream runs the
application in a task that ends with the stream; what it sends waits in a short queue, so that an application
that sends faster than its reader reads has to wait too. The user is passed in the scope, under `extensions`
as `dray.user`; a server accepts that only from a scope without a client's socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlencode

from dray.client.errors import ServerUnreachableError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

ChunkQueue = asyncio.Queue[bytes | Exception | None]

USER_EXTENSION = "dray.user"

MAX_QUEUED_CHUNKS = 16
"""How many chunks of a stream wait for their reader before the application has to."""


class InProcessTransport:
    """A transport to an application in this process, as a given user."""

    def __init__(self, application: Application, user: str, groups: tuple[str, ...] = ()) -> None:
        self._application = application
        self._user = (user, groups)

    @property
    def address(self) -> str:
        return "this process"

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        answer = _BufferedResponse()
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await self._application(self._build_scope(request), _RequestBody(request.body), answer)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ServerUnreachableError(
                f"no answer to {request.method} {request.path} in {timeout:g} seconds"
            ) from None
        if not answer.code:
            raise ServerUnreachableError(
                f"the application answered nothing to {request.method} {request.path}"
            )
        return TransportResponse(answer.code, answer.headers, b"".join(answer.parts))

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        answer, body = _StreamedResponse(), _RequestBody(request.body)
        work = asyncio.ensure_future(self._run_application(request, body, answer))
        chunks = _iterate_chunks(answer.queue, idle_timeout)
        try:
            if await anext(chunks, None) is None:  # comes when the head of the response is known
                raise ServerUnreachableError(
                    f"the application answered nothing to {request.method} {request.path}"
                )
            yield TransportStream(answer.code, answer.headers, chunks)
        finally:
            await chunks.aclose()
            body.disconnected.set()
            work.cancel()
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # the reader has got the error, or has left

    async def close(self) -> None:
        """There is nothing to close."""

    async def _run_application(
        self, request: TransportRequest, body: _RequestBody, response: _StreamedResponse
    ) -> None:
        try:
            await self._application(self._build_scope(request), body, response)
        except Exception as broken:
            await response.queue.put(broken)
            raise
        await response.queue.put(None)

    def _build_scope(self, request: TransportRequest) -> MutableMapping[str, Any]:
        headers = [(b"accept", request.accept.encode())]
        if request.body:
            headers.append((b"content-type", request.content_type.encode()))
            headers.append((b"content-length", str(len(request.body)).encode()))
        headers += [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(request.path),
            "raw_path": request.path.encode(),
            "query_string": urlencode(request.query).encode(),
            "root_path": "",
            "headers": headers,
            "client": None,
            "server": None,
            "extensions": {USER_EXTENSION: self._user},
        }


class _RequestBody:
    """What the application receives: the body, and later that the reader has disconnected."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.disconnected = asyncio.Event()

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}


class _ResponseStart:
    """The start of every response."""

    def __init__(self) -> None:
        self.code = 0
        self.headers: dict[str, str] = {}

    def read_start(self, message: Message) -> None:
        self.code = message["status"]
        for name, value in message.get("headers", ()):
            text, more = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[text] = f"{self.headers[text]}, {more}" if text in self.headers else more


class _BufferedResponse(_ResponseStart):
    """Takes a response as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.read_start(message)
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))


class _StreamedResponse(_ResponseStart):
    """Takes a response chunk by chunk; an empty first chunk says that the head is known."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: ChunkQueue = asyncio.Queue(MAX_QUEUED_CHUNKS)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.read_start(message)
            await self.queue.put(b"")
        elif message["type"] == "http.response.body" and message.get("body"):
            await self.queue.put(message["body"])


async def _iterate_chunks(queue: ChunkQueue, idle_timeout: float) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                chunk = await queue.get()
        except TimeoutError:
            raise ServerUnreachableError(f"the stream said nothing for {idle_timeout:g} seconds") from None
        if chunk is None:
            return
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk
