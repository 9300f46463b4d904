"""A transport that sends writes only while somebody is in office.

Theory of operation: a leader that was suspended wakes up with work half done. Its term is over by then, but
whoever does the work learns of it only when it is cancelled, some writes later. So the question is asked
again at the last moment before each write; a transport that has to open a connection first asks once more
when it has one. And a write that was sent arrives, whether or not anybody still
waits for it: whoever is cancelled waits a little for the answer, so that a lease is given back only when
nothing is on the way any more.
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
"""What to ask before a write leaves, when much may have happened since it was begun; None is always yes."""
CANCEL_WAIT_SECONDS: Final = 5.0
"""Seconds that somebody who was told to stop waits for the answer to its last write."""


class LeaderGuardTransport:
    """Lets reads through always, and writes while they are allowed."""

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
                sending.exception()  # nobody is left who would mind
            raise

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        return self._transport.stream(request, idle_timeout=idle_timeout)

    async def close(self) -> None:
        await self._transport.close()
