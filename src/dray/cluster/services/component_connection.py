"""The server's end of the socket of a component process.

Theory of operation: each request frame becomes a request of the application as a component in this process
would make it: the same authorization, flow control, admission, audit and metrics. The user belongs to the
socket; its other end was given to the one process that runs as this user. A request that has arrived is
carried out even when the connection ends; streams end with it. The server stops reading while it carries out
`MAX_REQUESTS` requests or while the component does not read its responses, and disconnects a component that
reads nothing for as long as any other client may.

Rules for this file: nothing in a frame changes the user.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from dray.server.http.application import ApiApplication, InProcessRequest
from dray.server.http.asgi_messages import STREAM_SEND_SECONDS
from dray.server.http.errors import new_internal_error
from dray.server.http.requests import JSON, ApiResponse, RequestUser
from dray.tasks import cancel_and_wait
from dray.wire.frames import (
    STREAM_CREDIT,
    CancelFrame,
    ClosingFrame,
    ComponentFrame,
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

MAX_REQUESTS: Final = 512
"""Requests of one component that are carried out before more are read."""
HEAD_BYTES: Final = 1 << 20
"""The longest head of a request."""


class ComponentConnection(asyncio.Protocol):
    """Serves the requests that come over one socket, as one user."""

    def __init__(self, app: ApiApplication, user: RequestUser) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        """What the component did wrong; empty while that is nothing."""
        self._app, self._user = app, user
        # Twice the limit, so that the server itself refuses a body that is somewhat too large.
        longest = 2 * app.max_body_bytes + HEAD_BYTES
        self._decoder: FrameDecoder[ComponentFrame] = FrameDecoder(ComponentFrame, longest)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._stall_timer: asyncio.TimerHandle | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._streams: dict[int, _ServedStream] = {}
        self._last_number = 0

    # --- the socket ---

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except FrameError as broken:
            self._refuse(str(broken))

    def eof_received(self) -> None:
        if not self._decoder.is_empty:
            self._refuse("the connection ended within a frame")

    def pause_writing(self) -> None:
        self._writable.clear()
        self._update_reading()
        loop = asyncio.get_running_loop()
        self._stall_timer = loop.call_later(
            STREAM_SEND_SECONDS, self._refuse, f"nothing was read for {STREAM_SEND_SECONDS:g} seconds"
        )

    def resume_writing(self) -> None:
        self._writable.set()
        self._update_reading()
        self._cancel_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._cancel_stall_timer()
        for stream in self._streams.values():
            stream.task.cancel()
        self.closed.set()

    async def close(self) -> None:
        """Close the socket, end the streams, and wait until the requests that have arrived are done."""
        if self._transport is not None:
            self._transport.abort()
            await self.closed.wait()
        await cancel_and_wait(*(stream.task for stream in self._streams.values()))
        if self._requests:
            await asyncio.wait(self._requests)

    def _refuse(self, problem: str) -> None:
        """Tell the component what is wrong, and close the connection."""
        self.problem = self.problem or problem
        self._send(ClosingFrame(problem))
        if self._transport is not None:
            # What the component does not read must not keep the socket open.
            end = self._transport.close if self._writable.is_set() else self._transport.abort
            end()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _update_reading(self) -> None:
        """Read only while responses are accepted and there are not too many requests."""
        if self._transport is None or not self._is_open:
            return
        if self._writable.is_set() and len(self._requests) < MAX_REQUESTS:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _send(self, frame: ServerFrame) -> None:
        if self._transport is not None and self._is_open:
            self._transport.write(encode_frame(frame))

    # --- frames ---

    def _take(self, frame: ComponentFrame) -> None:
        if isinstance(frame, RequestFrame):
            if frame.number <= self._last_number:
                raise FrameError(f"request {frame.number} came after request {self._last_number}")
            self._last_number = frame.number
            self._start(frame)
        elif frame.number > self._last_number:
            raise FrameError(f"stream {frame.number} was not asked for")
        elif (stream := self._streams.get(frame.number)) is None:
            pass  # it has ended meanwhile
        elif isinstance(frame, CreditFrame):
            stream.add_credit(frame.size)
        else:
            assert isinstance(frame, CancelFrame)
            stream.task.cancel()

    def _start(self, frame: RequestFrame) -> None:
        stream = _ServedStream()
        stream.task = asyncio.create_task(self._serve(frame, stream))
        if frame.is_stream:
            self._streams[frame.number] = stream
            stream.task.add_done_callback(lambda _: self._streams.pop(frame.number, None))
            return
        self._requests.add(stream.task)
        stream.task.add_done_callback(self._end_request)
        if len(self._requests) >= MAX_REQUESTS:
            self._update_reading()

    def _end_request(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if len(self._requests) == MAX_REQUESTS - 1:
            self._update_reading()

    async def _serve(self, frame: RequestFrame, stream: _ServedStream) -> None:
        number = frame.number
        response = await self._answer(frame)
        headers = merge_headers(response)
        if isinstance(response.body, bytes):
            self._send(ResponseFrame(number, response.code, headers, response.body))
            return
        self._streams[number] = stream
        self._send(StreamFrame(number, response.code, headers))
        try:
            self._send(EndFrame(number, await self._send_parts(number, response.body, stream)))
        finally:
            self._streams.pop(number, None)

    async def _answer(self, frame: RequestFrame) -> ApiResponse:
        request = InProcessRequest(frame.method, frame.path, frame.query, frame.headers, frame.body)
        try:
            return await self._app.serve_in_process(request, self._user)
        except Exception as fault:
            details = {"message": "a request of a component failed", "exception": fault}
            asyncio.get_running_loop().call_exception_handler(details)
            error = new_internal_error("a fault of dray itself")
            return ApiResponse(error.code, error.encode(), JSON)

    async def _send_parts(self, number: int, body: AsyncIterator[bytes], stream: _ServedStream) -> str:
        """Send parts while they come and are wanted; return why there are no more, empty at their end."""
        async with aclosing(body) as parts:  # type: ignore[type-var]
            try:
                async for part in parts:
                    if stream.credit <= 0:
                        async with asyncio.timeout(STREAM_SEND_SECONDS):
                            await stream.wait_for_credit()
                    await self._writable.wait()
                    stream.credit -= len(part)
                    self._send(PartFrame(number, bytes(part)))  # a batch is a subclass of bytes
            except TimeoutError:
                return f"nothing was read for {STREAM_SEND_SECONDS:g} seconds"
            except Exception as fault:
                details = {"message": "a stream for a component failed", "exception": fault}
                asyncio.get_running_loop().call_exception_handler(details)
                return "a fault of dray itself"
        return ""


class _ServedStream:
    """The credit of a stream, and the task that sends it."""

    __slots__ = ("_waiter", "credit", "task")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.credit = STREAM_CREDIT
        self._waiter: asyncio.Future[None] | None = None

    def add_credit(self, size: int) -> None:
        if not 0 < size <= STREAM_CREDIT - self.credit:
            raise FrameError(f"credit for {size} bytes, of which not so many were sent")
        self.credit += size
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait_for_credit(self) -> None:
        while self.credit <= 0:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


def merge_headers(answer: ApiResponse) -> dict[str, str]:
    """Merge the headers of a response: names in lower case, values joined by commas."""
    headers = {"content-type": answer.content_type}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def connect_component(
    sock: socket.socket, app: ApiApplication, user: RequestUser
) -> ComponentConnection:
    """Serve a component at the other end of a connected socket, as a user."""
    connection = ComponentConnection(app, user)
    await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=sock)
    return connection
