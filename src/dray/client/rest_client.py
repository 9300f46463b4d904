"""One call to the server, repeated when that is safe, and no faster than allowed.

What is repeated, by what happened:

    nobody took the call             everything; it cannot have happened
    the connection broke             reads only; a write may have happened
    429, with a time to wait         everything; the server did not begin
    503, with a time to wait         what may happen twice: GET, PUT, DELETE
    everything else                  nothing

A wait is at least what the server asked for; when it asks for too much, the failure is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from dray.client.config.client_config import AccessError
from dray.client.errors import ApiError, ClientError, Unreachable, failure_in
from dray.client.timing import Backoff, Limiter, Tempo
from dray.client.transport import LONGEST_CALL, Reply, Request, Stream, Transport
from dray.errors import DecodeError

TROUBLE: Final = (ClientError, AccessError, DecodeError)
"""Whatever may keep a call from succeeding: the server, the way to it, our credentials, a useless answer."""

LONGEST_PATIENCE: Final = 60.0
"""Nobody waits longer than this many seconds because a server asked for it."""

_AGAIN: Final = {
    429: frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"}),
    503: frozenset({"GET", "PUT", "DELETE"}),
}
_WARNING = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client behaves: its name, its pace, its patience."""

    manager: str = "dray"
    attempts: int = 5
    qps: float = 0.0
    burst: int = 0
    tempo: Tempo = field(default_factory=Tempo)
    on_warning: Callable[[str], None] | None = None


class Caller:
    """Calls one server."""

    def __init__(self, transport: Transport, habits: Habits) -> None:
        self.transport = transport
        self.habits = habits
        self._agent = {"User-Agent": habits.manager}
        self._limiter = (
            Limiter(habits.qps, habits.burst or max(1, int(habits.qps * 2)), habits.tempo)
            if habits.qps
            else None
        )

    async def call(
        self, request: Request, *, timeout: float = LONGEST_CALL, attempts: int | None = None
    ) -> Reply:
        """The answer; a failure is raised."""
        request = self._signed(request)
        backoff: Backoff | None = None
        left = self.habits.attempts if attempts is None else attempts
        while True:
            left -= 1
            try:
                return await self._once(request, timeout)
            except (ApiError, Unreachable) as failed:
                if left <= 0 or not _worth_repeating(request, failed):
                    raise
                asked = failed.retry_after if isinstance(failed, ApiError) else None
            backoff = backoff or Backoff(self.habits.tempo, first=0.2, longest=5.0)
            await backoff.wait(asked or 0.0)

    @asynccontextmanager
    async def open(self, request: Request, *, silence: float) -> AsyncIterator[Stream]:
        """An answer in parts; a failure is raised. Nothing is repeated here."""
        if self._limiter is not None:
            await self._limiter.turn()
        async with self.transport.stream(self._signed(request), silence=silence) as stream:
            if stream.code >= 400:
                body = b"".join([chunk async for chunk in stream.chunks])
                raise failure_in(Reply(stream.code, stream.headers, body))
            self._tell_warnings(stream.headers.get("warning", ""))
            yield stream

    async def _once(self, request: Request, timeout: float) -> Reply:
        if self._limiter is not None:
            await self._limiter.turn()
        reply = await self.transport.request(request, timeout=timeout)
        if reply.code >= 300:
            raise failure_in(reply)
        self._tell_warnings(reply.headers.get("warning", ""))
        return reply

    def _signed(self, request: Request) -> Request:
        headers = {**self._agent, **request.headers} if request.headers else self._agent
        return replace(request, headers=headers)

    def _tell_warnings(self, header: str) -> None:
        if header and self.habits.on_warning is not None:
            for text in _WARNING.findall(header):
                self.habits.on_warning(re.sub(r"\\(.)", r"\1", text))


def _worth_repeating(request: Request, failed: ApiError | Unreachable) -> bool:
    if isinstance(failed, Unreachable):
        return not failed.sent or request.method == "GET"
    if failed.retry_after is None or failed.retry_after > LONGEST_PATIENCE:
        return False
    return request.method in _AGAIN.get(failed.code, ())
