"""The request/response cycle: the ASGI `receive` and `send` of one request on a connection.

Theory of operation: this class replaces uvicorn's own cycle and does less. The protocol of uvicorn feeds a
request in (`body`, `more_body`, `set` when something changed) and starts `run_asgi`. The head and body of a
response are written at once, because each write is a TLS record and wakes the client. A stream is chunked,
and `send` waits while the client does not read.

Rules for this file: headers come from the application in lower case; a line break in one is a fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

Message = MutableMapping[str, Any]
Headers = Sequence[tuple[bytes, bytes]]
Application = Callable[..., Awaitable[None]]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_BODILESS_CODES = frozenset({204, 304})


class RequestCycle:
    """One request and its response."""

    __slots__ = (
        "_bytes_left",
        "_chunked",
        "_connection",
        "_delivered",
        "_headers",
        "_started",
        "_status",
        "_waiter",
        "body",
        "disconnected",
        "expects_continue",
        "flow",
        "keep_alive",
        "more_body",
        "on_response",
        "response_complete",
        "response_started",
        "scope",
        "transport",
    )

    def __init__(self, scope: Message, connection: HttpToolsProtocol) -> None:
        self.scope, self._connection = scope, connection
        self.transport, self.flow = connection.transport, connection.flow
        self.on_response: Callable[[], None] = connection.on_response_complete
        self.keep_alive, self.expects_continue, self.disconnected = True, False, False
        self.body, self.more_body = b"", True
        self.response_started = self.response_complete = False
        self._delivered = self._chunked = self._started = False
        self._waiter: asyncio.Future[None] | None = None
        self._status, self._bytes_left = 500, 0
        self._headers: Headers = ()

    @property
    def message_event(self) -> RequestCycle:
        """The event that the protocol sets when something changed: the cycle itself."""
        return self

    def set(self) -> None:
        """Wake `receive`: more of the body has arrived, or the client has disconnected."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def run_asgi(self, app: Application) -> None:
        """Run the application; an incomplete response ends the connection."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as fault:
            self._connection.logger.error("the application failed", exc_info=fault)
            if not self.response_started:
                await self._fail()
        if not self.response_complete and not self.disconnected:
            self.transport.close()
        self.on_response = _ignore_response

    async def receive(self) -> Message:
        """The next part of the body, or `http.disconnect`."""
        if self.expects_continue and not self.transport.is_closing():
            self.transport.write(_CONTINUE)
        self.expects_continue = False
        while not self._has_message():
            self.flow.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        self._delivered = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _has_message(self) -> bool:
        if self.disconnected or self.response_complete:
            return True
        return not self._delivered and (not self.more_body or bool(self.body))

    async def send(self, message: Message) -> None:
        """Send a part of the response; waits while the client does not read."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
            self._started = True
            return
        if not self._started or self.response_complete:
            raise RuntimeError("a response has one head and one end, in this order")
        self._write(message.get("body", b""), more=message.get("more_body", False))

    def _write(self, body: bytes, *, more: bool) -> None:
        head = b""
        if not self.response_started:
            head = self._build_head()
            self.response_started = True
        if self.scope["method"] == "HEAD":
            body, self._bytes_left = b"", 0
        elif self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            body = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        else:
            self._bytes_left -= len(body)
        if head or body:
            self.transport.write(head + body)
        if not more:
            self._finish()

    def _finish(self) -> None:
        if self._bytes_left and not self._chunked:
            raise RuntimeError("the response is shorter or longer than its content-length")
        self.response_complete = True
        self.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _build_head(self) -> bytes:
        parts = [STATUS_LINE[self._status]]
        length: int | None = None
        for name, value in (*self._connection.server_state.default_headers, *self._headers):
            if b"\n" in value or b"\r" in value or b"\0" in value:
                raise RuntimeError(f"a line break in the header {name!r}")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            parts.append(b"%b: %b\r\n" % (name, value))
        if length is None and self._status not in _BODILESS_CODES:
            self._chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
        self._bytes_left = length or 0
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    async def _fail(self) -> None:
        self._started = True
        self._status, self._headers = 500, ((b"content-length", b"0"), (b"connection", b"close"))
        await self.send({"type": "http.response.body"})


def _ignore_response() -> None:
    """Do nothing: the connection no longer waits for this response."""
