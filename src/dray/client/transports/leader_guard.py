"""A transport that sends writes only while the process leads.

Theory of operation: a leader that was suspended resumes with work half done. Its lease has expired by then,
but its tasks learn of it only when they are cancelled, some writes later. So the guard checks leadership at
the last moment before each write; a transport that has to open a connection first checks once more when it
has one. And a write that was sent arrives, whether or not its task is cancelled: a cancelled task waits a
little for the response, so that the lease is released only when nothing is in flight any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Final

from dray.client.errors import NotLeaderError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    Transport,
    TransportRequest,
    TransportResponse,
    TransportStream,
)

NOT_SENT_MESSAGE: Final = "was not sent: another may lead now"
WRITE_CHECK: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("still_allowed", default=None)
"""The check before a write is sent, when time may have passed since it was started; None allows it."""
CANCEL_WAIT_SECONDS: Final = 5.0
"""Seconds that a cancelled task waits for the response to its last write."""


class LeaderGuardTransport:
    """Passes reads always, and writes while the process leads."""

    def __init__(self, transport: Transport, is_leader: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_leader = is_leader

    @property
    def address(self) -> str:
        return self._transport.address

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        if request.method != "GET" and not self._is_leader():
            raise NotLeaderError(f"{request.method} {request.path} {NOT_SENT_MESSAGE}")
        if request.method == "GET":
            return await self._transport.request(request, timeout=timeout)
        before = WRITE_CHECK.set(self._is_leader)
        sending = asyncio.ensure_future(self._transport.request(request, timeout=timeout))
        WRITE_CHECK.reset(before)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait([sending], timeout=CANCEL_WAIT_SECONDS)
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()  # the caller is cancelled; mark the error as retrieved
            raise

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        return self._transport.stream(request, idle_timeout=idle_timeout)

    async def close(self) -> None:
        await self._transport.close()
