"""The REST client: one call to the server, retried when that is safe, and rate-limited.

What is retried, by failure:

    connection refused               everything; it cannot have happened
    connection broken                reads only; a write may have happened
    429 with `Retry-After`           everything; the server did not start
    503 with `Retry-After`           what may happen twice: GET, PUT, DELETE
    everything else                  nothing

A wait is at least what the server asked for; when it asks for too much, the call fails.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from dray.client.config.client_config import ClientConfigError
from dray.client.errors import ApiError, ClientError, ServerUnreachableError, parse_api_error
from dray.client.timing import Backoff, RateLimiter, TimeSource
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    Transport,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.errors import DecodeError

CALL_ERRORS: Final = (ClientError, ClientConfigError, DecodeError)
"""Whatever may make a call fail: the server, the connection, the credentials, an invalid response."""

MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""The longest wait that a server may ask for, in seconds."""

_RETRYABLE_METHODS: Final = {
    429: frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"}),
    503: frozenset({"GET", "PUT", "DELETE"}),
}
_WARNING_PATTERN = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The name, rate limit and retries of a client."""

    field_manager: str = "dray"
    max_attempts: int = 5
    qps: float = 0.0
    burst: int = 0
    time_source: TimeSource = field(default_factory=TimeSource)
    on_warning: Callable[[str], None] | None = None


class RestClient:
    """Calls one server."""

    def __init__(self, transport: Transport, options: ClientOptions) -> None:
        self.transport = transport
        self.options = options
        self._default_headers = {"User-Agent": options.field_manager}
        self._limiter = (
            RateLimiter(options.qps, options.burst or max(1, int(options.qps * 2)), options.time_source)
            if options.qps
            else None
        )

    async def call(
        self,
        request: TransportRequest,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_attempts: int | None = None,
    ) -> TransportResponse:
        """Return the response; raise a failure."""
        request = self._add_default_headers(request)
        backoff: Backoff | None = None
        left = self.options.max_attempts if max_attempts is None else max_attempts
        while True:
            left -= 1
            try:
                return await self._send_once(request, timeout)
            except (ApiError, ServerUnreachableError) as failed:
                if left <= 0 or not _is_retryable(request, failed):
                    raise
                retry_after = failed.retry_after if isinstance(failed, ApiError) else None
            backoff = backoff or Backoff(self.options.time_source, initial=0.2, maximum=5.0)
            await backoff.wait(retry_after or 0.0)

    @asynccontextmanager
    async def open_stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        """Yield a response in chunks; raise a failure. Nothing is retried here."""
        if self._limiter is not None:
            await self._limiter.acquire()
        async with self.transport.stream(
            self._add_default_headers(request), idle_timeout=idle_timeout
        ) as stream:
            if stream.code >= 400:
                body = b"".join([chunk async for chunk in stream.chunks])
                raise parse_api_error(TransportResponse(stream.code, stream.headers, body))
            self._report_warnings(stream.headers.get("warning", ""))
            yield stream

    async def _send_once(self, request: TransportRequest, timeout: float) -> TransportResponse:
        if self._limiter is not None:
            await self._limiter.acquire()
        reply = await self.transport.request(request, timeout=timeout)
        if reply.code >= 300:
            raise parse_api_error(reply)
        self._report_warnings(reply.headers.get("warning", ""))
        return reply

    def _add_default_headers(self, request: TransportRequest) -> TransportRequest:
        headers = {**self._default_headers, **request.headers} if request.headers else self._default_headers
        return replace(request, headers=headers)

    def _report_warnings(self, header: str) -> None:
        if header and self.options.on_warning is not None:
            for text in _WARNING_PATTERN.findall(header):
                self.options.on_warning(re.sub(r"\\(.)", r"\1", text))


def _is_retryable(request: TransportRequest, error: ApiError | ServerUnreachableError) -> bool:
    if isinstance(error, ServerUnreachableError):
        return not error.sent or request.method == "GET"
    if error.retry_after is None or error.retry_after > MAX_RETRY_AFTER_SECONDS:
        return False
    return request.method in _RETRYABLE_METHODS.get(error.code, ())
