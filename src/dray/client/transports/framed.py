"""The transport over a socket pair to the API server that started this process.

Theory of operation: one socket carries all requests and streams as frames (`dray.wire.frames`). The server
knows whose socket it is, so a request has no credential. The reader never waits: responses go to those who
wait for them, parts of streams into buffers that credit bounds. A writer waits while the socket does not
accept more. A request that its caller gives up is still carried out, as over HTTP; its response is dropped.
When the socket ends, everything fails that waits for it, and so does every later request: the process is
about to end, too.

Rules for this file: nothing in a request says who the user is.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from dray.client.errors import NotLeaderError, ServerUnreachableError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.client.transports.leader_guard import NOT_SENT_MESSAGE, WRITE_CHECK
from dray.wire.frames import (
    STREAM_CREDIT,
    CancelFrame,
    ClosingFrame,
    CreditFrame,
    EndFrame,
    FrameDecoder,
    FrameError,
    PartFrame,
    RequestFrame,
    ResponseFrame,
    ServerFrame,
    StreamFrame,
    encode_frame,
)

_CREDIT_STEP: Final = STREAM_CREDIT // 2
"""How many bytes are read of a stream before credit is given back."""
_LOST: Final = "the connection to the server has ended"


class FramedTransport:
    """A transport to the server at the other end of a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._connection = _FramedConnection()
        self._opening: asyncio.Task[Any] | None = None

    @property
    def address(self) -> str:
        return "the server of this cluster"

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._exchange(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _build_silence_error(request, timeout) from None

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        reply = await self._send(request, is_stream=True)
        try:
            try:
                async with asyncio.timeout(idle_timeout):
                    head = await reply.head
            except TimeoutError:
                raise _build_silence_error(request, idle_timeout) from None
            if isinstance(head, ResponseFrame):
                yield TransportStream(head.code, head.headers, _iterate_once(head.body))
                return
            async with aclosing(reply.iterate_parts(idle_timeout)) as parts:
                yield TransportStream(head.code, head.headers, parts)
        finally:
            self._connection.forget(reply)

    async def close(self) -> None:
        """Close the socket."""
        if self._opening is None:
            self._sock.close()
            return
        await asyncio.wait([self._opening])
        self._connection.abort()
        await self._connection.closed.wait()

    async def wait_closed(self) -> str:
        """Wait until the connection has ended, and return why; empty when the server just closed it."""
        await self._open()
        await self._connection.closed.wait()
        return self._connection.problem

    async def _exchange(self, request: TransportRequest) -> TransportResponse:
        reply = await self._send(request, is_stream=False)
        try:
            head = await reply.head
            if isinstance(head, ResponseFrame):
                return TransportResponse(head.code, head.headers, head.body)
            parts = [part async for part in reply.iterate_parts(None)]
            return TransportResponse(head.code, head.headers, b"".join(parts))
        finally:
            self._connection.forget(reply)

    async def _send(self, request: TransportRequest, *, is_stream: bool) -> _Reply:
        """Send a request, unless it must not be sent any more once the socket accepts it."""
        if not self._connection.is_writable:
            await self._open()
            await self._connection.wait_writable()
            allowed = WRITE_CHECK.get()
            if allowed is not None and not allowed():
                raise NotLeaderError(f"{request.method} {request.path} {NOT_SENT_MESSAGE}")
        return self._connection.send_request(request, is_stream)

    async def _open(self) -> None:
        if self._opening is None:
            loop = asyncio.get_running_loop()
            opened = loop.create_unix_connection(lambda: self._connection, sock=self._sock)
            self._opening = loop.create_task(opened)
        await asyncio.shield(self._opening)


class _Reply:
    """What comes for one request: its head, and the parts of a stream that nobody has read yet."""

    __slots__ = ("_connection", "_credit", "_parts", "_taken", "_waiter", "end", "head", "number", "what")

    def __init__(self, connection: _FramedConnection, number: int, what: str) -> None:
        self.number, self.what = number, what
        self.head: asyncio.Future[ResponseFrame | StreamFrame] = connection.loop.create_future()
        self.end: EndFrame | None = None
        self._connection = connection
        self._parts: deque[bytes] = deque()  # bounded by the credit of the stream
        self._credit, self._taken = STREAM_CREDIT, 0
        self._waiter: asyncio.Future[None] | None = None

    def add_part(self, part: bytes) -> None:
        if self._credit <= 0:
            raise FrameError(f"more came of stream {self.number} than was asked for")
        self._credit -= len(part)
        self._parts.append(part)
        self._wake()

    def set_end(self, end: EndFrame) -> None:
        self.end = end
        self._wake()

    def fail(self, error: ServerUnreachableError) -> None:
        """Fail what waits, and what is read after the parts that are here."""
        if not self.head.done():
            self.head.set_exception(error)
            self.head.exception()  # its waiter may be gone: mark it as retrieved
        self.set_end(EndFrame(self.number, str(error)))

    async def iterate_parts(self, idle_timeout: float | None) -> AsyncGenerator[bytes, None]:
        """Yield the parts as they come."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._give_back(len(part))
                yield part
            if self.end is not None:
                if self.end.problem:
                    raise ServerUnreachableError(f"no more of {self.what}: {self.end.problem}")
                return
            self._waiter = self._connection.loop.create_future()
            try:
                async with asyncio.timeout(idle_timeout):
                    await self._waiter
            except TimeoutError:
                raise ServerUnreachableError(
                    f"no answer to {self.what}: nothing came for {idle_timeout:g} seconds"
                ) from None

    def _give_back(self, size: int) -> None:
        self._taken += size
        if self._taken >= _CREDIT_STEP and self.end is None:
            self._credit += self._taken
            self._connection.send(CreditFrame(self.number, self._taken))
            self._taken = 0

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _FramedConnection(asyncio.Protocol):
    """The component's end of the socket."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self._decoder: FrameDecoder[ServerFrame] = FrameDecoder(ServerFrame)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._replies: dict[int, _Reply] = {}
        self._last_number = 0

    # --- the socket ---

    def connection_made(self, transport: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self._transport = transport
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except FrameError as broken:
            self.problem = self.problem or str(broken)
            self.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()  # whoever waits finds that the connection has ended
        self.closed.set()
        for reply in self._replies.values():
            reply.fail(ServerUnreachableError(f"no answer to {reply.what}: {self._describe_loss()}"))
        self._replies.clear()

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- requests ---

    @property
    def is_writable(self) -> bool:
        """Whether the socket is open and accepts more."""
        return self._transport is not None and self._writable.is_set()

    async def wait_writable(self) -> None:
        await self._writable.wait()

    def send_request(self, request: TransportRequest, is_stream: bool) -> _Reply:
        """Send a request, and return where its response comes."""
        what = f"{request.method} {request.path}"
        if self._transport is None or self._transport.is_closing():
            raise ServerUnreachableError(f"no answer to {what}: {self._describe_loss()}", sent=False)
        self._last_number += 1
        reply = self._replies[self._last_number] = _Reply(self, self._last_number, what)
        self.send(_build_request_frame(request, self._last_number, is_stream))
        return reply

    def send(self, frame: CancelFrame | CreditFrame | RequestFrame) -> None:
        """Send a frame, if the socket is open."""
        if self._transport is not None:
            self._transport.write(encode_frame(frame))

    def forget(self, reply: _Reply) -> None:
        """Drop what still comes for a request, and have the server end its stream."""
        if self._replies.pop(reply.number, None) is not None and reply.end is None:
            self.send(CancelFrame(reply.number))

    def _take(self, frame: ServerFrame) -> None:
        if isinstance(frame, ClosingFrame):
            self.problem = frame.problem
            return
        reply = self._replies.get(frame.number)
        if reply is None:
            if not 0 < frame.number <= self._last_number:
                raise FrameError(f"an answer to request {frame.number}, which was not sent")
            return  # nobody waits for it any more
        if isinstance(frame, ResponseFrame | StreamFrame):
            if reply.head.done() and not reply.head.cancelled():
                raise FrameError(f"a second answer to request {frame.number}")
            if isinstance(frame, ResponseFrame):
                del self._replies[frame.number]
            if not reply.head.done():
                reply.head.set_result(frame)
        elif not reply.head.done():
            raise FrameError(f"a part of stream {frame.number}, which has not begun")
        elif isinstance(frame, PartFrame):
            reply.add_part(frame.body)
        else:
            del self._replies[frame.number]
            reply.set_end(frame)

    def _describe_loss(self) -> str:
        return f"{_LOST}: {self.problem}" if self.problem else _LOST


def _build_request_frame(request: TransportRequest, number: int, is_stream: bool) -> RequestFrame:
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers["accept"] = request.accept
    if request.body:
        headers["content-type"] = request.content_type
    return RequestFrame(
        number, request.method, request.path, dict(request.query), headers, request.body, is_stream
    )


def _build_silence_error(request: TransportRequest, seconds: float) -> ServerUnreachableError:
    return ServerUnreachableError(f"no answer to {request.method} {request.path} in {seconds:g} seconds")


async def _iterate_once(body: bytes) -> AsyncIterator[bytes]:
    yield body
