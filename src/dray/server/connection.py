"""A connection that keeps within limits: how many there are, what heads they send, how long they take.

Theory of operation: uvicorn parses HTTP and hands whole requests to the application; what happens before a
request is whole, or after an answer was handed to the socket, only the connection sees. Four clocks may run:
until a request begins, until it has arrived, until the client has read what waits for it, and (uvicorn's own)
until the next request. Whoever lets one run out, or sends more head than anybody needs, is told in a `Status`
when there still is a way to tell, and the connection is closed.

Rules for this file: nothing here looks at what a request says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dray.api.jsontext import write_json
from dray.server.failures import Failure, unavailable
from dray.server.limits import Limits

WAITING_BYTES = 64 * 1024
"""More is not written to a client that does not read; TLS alone would let eight times as much wait."""

Refused = Callable[[str], None]
"""Told the name of a limit whenever it ends a connection."""


def _silent(limit: str) -> None:
    """Nobody counts."""


class Connection(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, within limits."""

    limits: Limits = Limits()
    refused: Refused = staticmethod(_silent)

    _over = _in_head = _arriving = False
    _head = _header_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WAITING_BYTES)
        if len(self.connections) > self.limits.max_connections:
            text = f"{self.limits.max_connections} connections are open, no more are served"
            self._refuse("max_connections", unavailable(text))
            return
        self._start(self.limits.idle_seconds, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._end_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > self.limits.max_header_bytes + self.limits.max_url_bytes:
            self._refuse_head("max_header_bytes", f"more than {self.limits.max_header_bytes} bytes of head")
        elif self._arriving and self._timer is None and not self._over:
            # Most requests come whole, in one piece, and need no clock.
            self._start(self.limits.request_seconds, self._close_late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._arriving = True
        self._head = self._header_bytes = 0
        self._stop()

    def on_url(self, url: bytes) -> None:
        if self._over:
            return
        super().on_url(url)
        if len(self.url) > self.limits.max_url_bytes:
            text = f"the address of a request has at most {self.limits.max_url_bytes} bytes"
            self._refuse("max_url_bytes", Failure(414, "RequestURITooLong", text))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._over:
            return
        self._header_bytes += len(name) + len(value)
        super().on_header(name, value)
        if self._header_bytes > self.limits.max_header_bytes:
            self._refuse_head(
                "max_header_bytes", f"more than {self.limits.max_header_bytes} bytes of headers"
            )
        elif len(self.headers) > self.limits.max_headers:
            self._refuse_head("max_headers", f"more than {self.limits.max_headers} headers")

    def on_headers_complete(self) -> None:
        self._in_head = False
        if not self._over:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._over:
            self._arriving = False
            self._stop()
            super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self.limits.stalled_seconds, self._close_stalled)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_stall()

    def _start(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, then)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _close_idle(self) -> None:
        self.refused("idle_seconds")
        self._over = True
        self.transport.close()

    def _close_late(self) -> None:
        text = f"a request must arrive within {self.limits.request_seconds:g} seconds"
        self._refuse("request_seconds", Failure(408, "Timeout", text))

    def _close_stalled(self) -> None:
        self.refused("stalled_seconds")
        self._over = True
        self.transport.abort()

    def _refuse_head(self, limit: str, text: str) -> None:
        self._refuse(limit, Failure(431, "RequestHeaderFieldsTooLarge", f"{text} are not read"))

    def _refuse(self, limit: str, failure: Failure) -> None:
        """Tell the client, unless an answer is already on its way to it, and close."""
        self.refused(limit)
        self._over = True
        self._stop()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        self.transport.write(_told(failure))
        self.transport.close()


def _told(failure: Failure) -> bytes:
    body = write_json(failure.document())
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[failure.code] + head + body


def bounded(base: type[Connection], limits: Limits, refused: Refused) -> type[Connection]:
    """The class of connections with these limits."""
    return type(base.__name__, (base,), {"limits": limits, "refused": staticmethod(refused)})
