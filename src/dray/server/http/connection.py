"""Connection limits: the number of connections, the size of request heads, and timeouts, on top of uvicorn.

Theory of operation: uvicorn parses HTTP and starts the application once the head of a request is complete;
what happens before that, and after a response was written to the socket, only the connection sees. Three
timers may run: until a request begins, until it has arrived, and until the client has read its response.
When a timer expires or a head is too large, the connection answers with a `Status`, if no response has
started, and closes.

Rules for this file: it does not interpret the contents of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dray.server.http.errors import ApiStatusError, new_service_unavailable
from dray.server.http.limits import ServerLimits
from dray.server.http.request_cycle import RequestCycle

WRITE_BUFFER_BYTES = 64 * 1024
"""Bytes that are buffered for a client that does not read; TLS alone would buffer eight times as much."""

_ASGI = {"version": "3.0", "spec_version": "2.4"}

RefusalCallback = Callable[[str], None]
"""Called with the name of a limit whenever it ends a connection."""


def _ignore_refusal(limit: str) -> None:
    """Do nothing: the default of a connection class without limits of its own."""


class LimitedConnection(HttpToolsProtocol):
    """The HTTP protocol of uvicorn, within limits."""

    limits: ServerLimits = ServerLimits()
    on_refused: RefusalCallback = staticmethod(_ignore_refusal)

    cycle: RequestCycle | None = None  # type: ignore[assignment]
    extensions: Mapping[str, Any] = MappingProxyType({})
    """The ASGI extensions of every scope of this connection: the certificate of the client."""

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
            # Most requests arrive in one piece and need no timer.
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
        cycle = RequestCycle(self._build_scope(), self)
        cycle.keep_alive = self.parser.should_keep_alive()
        cycle.expects_continue = self._expects_continue
        previous, self.cycle = self.cycle, cycle
        if previous is None or previous.response_complete:
            self._start_asgi_task(cycle, self.app)  # type: ignore[arg-type]
        else:  # a pipelined request
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type]

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
        cycle = self.cycle
        if self._closing or cycle is None or cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > WRITE_BUFFER_BYTES:
            self.flow.pause_reading()
        cycle.set()

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
        """Close an idle connection; the timer is not reset by every request, but checks when the last was."""
        busy = self._arriving or (self.cycle is not None and not self.cycle.response_complete)
        now, timeout = self.loop.time(), self.limits.idle_seconds
        remaining = timeout if busy else self._last_active + timeout - now
        if remaining > 0:
            self._idle_timer = self.loop.call_later(remaining, self._check_idle)
            return
        if self.cycle is None:
            self.on_refused("idle_seconds")
        self._closing = True
        self.transport.close()

    def _close_on_timeout(self) -> None:
        text = f"a request must arrive within {self.limits.request_seconds:g} seconds"
        self._refuse("request_seconds", ApiStatusError(408, "Timeout", text))

    def _close_stalled(self) -> None:
        self.on_refused("stalled_seconds")
        self._closing = True
        self.transport.abort()

    def _refuse_head(self, limit: str, text: str) -> None:
        self._refuse(limit, ApiStatusError(431, "RequestHeaderFieldsTooLarge", f"{text} are not read"))

    def _refuse(self, limit: str, error: ApiStatusError) -> None:
        """Answer with an error, unless a response has started, and close."""
        self.on_refused(limit)
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
    body = error.encode()
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[error.code] + head + body


def build_connection_class(
    base: type[LimitedConnection], limits: ServerLimits, on_refused: RefusalCallback
) -> type[LimitedConnection]:
    """A subclass of connections with these limits; uvicorn makes the instances."""
    return type(base.__name__, (base,), {"limits": limits, "on_refused": staticmethod(on_refused)})
