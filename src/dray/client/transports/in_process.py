"""The transport that calls an ASGI application in this process: no sockets, no TLS, no copying.

Theory of operation: a request is one call of the application in the caller's own task. A stream runs the
application in a task that lives as long as the stream is held; what it sends waits in a short queue, so that
an application that sends faster than anybody reads has to wait too. Who asks is told in the scope, under
`extensions` as `dray.user`; a server believes that only of a scope without a client's socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlencode

from dray.client.errors import Unreachable
from dray.client.transport import LONGEST_CALL, Reply, Request, Stream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

Queue = asyncio.Queue[bytes | Exception | None]

USER_EXTENSION = "dray.user"

WAITING_PARTS = 16
"""How many parts of a stream wait for their reader before the application has to."""


class InProcess:
    """A way to an application in this process, as the user given."""

    def __init__(self, application: Application, user: str, groups: tuple[str, ...] = ()) -> None:
        self._application = application
        self._user = (user, groups)

    @property
    def address(self) -> str:
        return "this process"

    async def request(self, request: Request, *, timeout: float = LONGEST_CALL) -> Reply:
        answer = _Whole()
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await self._application(self._scope(request), _Body(request.body), answer)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unreachable(
                f"no answer to {request.method} {request.path} in {timeout:g} seconds"
            ) from None
        if not answer.code:
            raise Unreachable(f"the application answered nothing to {request.method} {request.path}")
        return Reply(answer.code, answer.headers, b"".join(answer.parts))

    @asynccontextmanager
    async def stream(self, request: Request, *, silence: float) -> AsyncIterator[Stream]:
        answer, body = _Parts(), _Body(request.body)
        work = asyncio.ensure_future(self._run(request, body, answer))
        chunks = _chunks(answer.queue, silence)
        try:
            if await anext(chunks, None) is None:  # comes when the head of the answer is known
                raise Unreachable(f"the application answered nothing to {request.method} {request.path}")
            yield Stream(answer.code, answer.headers, chunks)
        finally:
            await chunks.aclose()
            body.gone.set()
            work.cancel()
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # the reader has been told, or has left and does not mind

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def _run(self, request: Request, body: _Body, answer: _Parts) -> None:
        try:
            await self._application(self._scope(request), body, answer)
        except Exception as broken:
            await answer.queue.put(broken)
            raise
        await answer.queue.put(None)

    def _scope(self, request: Request) -> MutableMapping[str, Any]:
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


class _Body:
    """What the application receives: the body, and later that the reader has gone."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.gone = asyncio.Event()

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}


class _Head:
    """What every answer begins with."""

    def __init__(self) -> None:
        self.code = 0
        self.headers: dict[str, str] = {}

    def read(self, message: Message) -> None:
        self.code = message["status"]
        for name, value in message.get("headers", ()):
            text, more = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[text] = f"{self.headers[text]}, {more}" if text in self.headers else more


class _Whole(_Head):
    """Takes an answer as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.read(message)
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))


class _Parts(_Head):
    """Takes an answer part by part; the empty first part says that the head is known."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: Queue = asyncio.Queue(WAITING_PARTS)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.read(message)
            await self.queue.put(b"")
        elif message["type"] == "http.response.body" and message.get("body"):
            await self.queue.put(message["body"])


async def _chunks(queue: Queue, silence: float) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await queue.get()
        except TimeoutError:
            raise Unreachable(f"the stream said nothing for {silence:g} seconds") from None
        if chunk is None:
            return
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk
