"""A connection that keeps within limits: how many there are, what heads they send, how long they take.

Theory of operation: uvicorn parses HTTP and hands whole requests to the application; what happens before a
request is whole, or after an answer was handed to the socket, only the connection sees. Three clocks may
run: until a request begins, until it has arrived, and until the client has read what waits for it. Whoever
lets one run out, or sends more head than anybody needs, is told in a `Status` when there still is a way to
tell, and the connection is closed.

Rules for this file: nothing here looks at what a request says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dray.api.json_text import write_json
from dray.server.http.errors import ApiStatusError, new_service_unavailable
from dray.server.http.limits import ServerLimits
from dray.server.http.request_cycle import RequestCycle

WRITE_BUFFER_BYTES = 64 * 1024
"""More is not written to a client that does not read; TLS alone would let eight times as much wait."""

_ASGI = {"version": "3.0", "spec_version": "2.4"}

RefusalCallback = Callable[[str], None]
"""Told the name of a limit whenever it ends a connection."""


def _ignore_refusal(limit: str) -> None:
    """Nobody counts."""


class LimitedConnection(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, within limits."""

    limits: ServerLimits = ServerLimits()
    refused: RefusalCallback = staticmethod(_ignore_refusal)

    cycle: RequestCycle | None = None  # type: ignore[assignment]
    extensions: Mapping[str, Any] = MappingProxyType({})
    """What every scope tells of this connection: the certificate the client showed."""

    _closing = _in_head = _arriving = _expects_continue = False
    _head_bytes = _header_bytes = 0
    _last_active = 0.0
    _request_timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.extensions = {"tls": {"client_cert": certificate}}
        if len(self.connections) > self.limits.max_connections:
            text = f"{self.limits.max_connections} connections are open, no more are served"
            self._refuse("max_connections", new_service_unavailable(text))
            return
        self._last_active = self.loop.time()
        self._idle_timer = self.loop.call_later(self.limits.idle_seconds, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_request_timer()
        self._cancel_stall_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limits.max_header_bytes + self.limits.max_url_bytes:
            self._refuse_head("max_header_bytes", f"more than {self.limits.max_header_bytes} bytes of head")
        elif self._arriving and self._request_timer is None and not self._closing:
            # Most requests come whole, in one piece, and need no clock.
            self._request_timer = self.loop.call_later(self.limits.request_seconds, self._close_on_timeout)

    def on_message_begin(self) -> None:
        self.url, self.headers = b"", []
        self._in_head = self._arriving = True
        self._expects_continue = False
        self._head_bytes = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        if self._closing:
            return
        self.url += url
        if len(self.url) > self.limits.max_url_bytes:
            text = f"the address of a request has at most {self.limits.max_url_bytes} bytes"
            self._refuse("max_url_bytes", ApiStatusError(414, "RequestURITooLong", text))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        name = name.lower()
        self.headers.append((name, value))
        if name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        limits = self.limits
        if self._header_bytes > limits.max_header_bytes and not self._closing:
            self._refuse_head("max_header_bytes", f"more than {limits.max_header_bytes} bytes of headers")
        elif len(self.headers) > limits.max_headers and not self._closing:
            self._refuse_head("max_headers", f"more than {limits.max_headers} headers")

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._closing:
            return
        exchange = RequestCycle(self._build_scope(), self)
        exchange.keep_alive = self.parser.should_keep_alive()
        exchange.expects = self._expects_continue
        before, self.cycle = self.cycle, exchange
        if before is None or before.response_complete:
            self._start_asgi_task(exchange, self.app)  # type: ignore[arg-type]
        else:  # a request that did not wait for the answer to the one before
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _build_scope(self) -> MutableMapping[str, Any]:
        path, _, query = self.url.partition(b"?")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": self.parser.get_http_version(),
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "extensions": self.extensions,
        }

    def on_body(self, body: bytes) -> None:
        exchange = self.cycle
        if self._closing or exchange is None or exchange.response_complete:
            return
        exchange.body += body
        if len(exchange.body) > WRITE_BUFFER_BYTES:
            self.flow.pause_reading()
        exchange.set()

    def on_message_complete(self) -> None:
        self._arriving = False
        self._cancel_request_timer()
        if not self._closing and self.cycle is not None and not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.set()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._last_active = self.loop.time()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.limits.stalled_seconds, self._close_stalled)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall_timer()

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _check_idle(self) -> None:
        """Close a connection on which nothing happens; looked at now and then, not with every request."""
        busy = self._arriving or (self.cycle is not None and not self.cycle.response_complete)
        now, most = self.loop.time(), self.limits.idle_seconds
        left = most if busy else self._last_active + most - now
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._check_idle)
            return
        if self.cycle is None:
            self.refused("idle_seconds")
        self._closing = True
        self.transport.close()

    def _close_on_timeout(self) -> None:
        text = f"a request must arrive within {self.limits.request_seconds:g} seconds"
        self._refuse("request_seconds", ApiStatusError(408, "Timeout", text))

    def _close_stalled(self) -> None:
        self.refused("stalled_seconds")
        self._closing = True
        self.transport.abort()

    def _refuse_head(self, limit: str, text: str) -> None:
        self._refuse(limit, ApiStatusError(431, "RequestHeaderFieldsTooLarge", f"{text} are not read"))

    def _refuse(self, limit: str, error: ApiStatusError) -> None:
        """Tell the client, unless an answer is already on its way to it, and close."""
        self.refused(limit)
        self._closing = True
        self._cancel_request_timer()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.set()
            if cycle.response_started:
                self.transport.abort()
                return
        self.transport.write(_encode_error(error))
        self.transport.close()


def _encode_error(error: ApiStatusError) -> bytes:
    body = write_json(error.to_status())
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[error.code] + head + body


def build_connection_class(
    base: type[LimitedConnection], limits: ServerLimits, refused: RefusalCallback
) -> type[LimitedConnection]:
    """The class of connections with these limits."""
    return type(base.__name__, (base,), {"limits": limits, "refused": staticmethod(refused)})
