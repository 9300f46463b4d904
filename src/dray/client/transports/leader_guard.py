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

from dray.client.errors import OutOfOffice
from dray.client.transport import LONGEST_CALL, Reply, Request, Stream, Transport

NOT_SENT: Final = "was not sent: another may lead now"
STILL_ALLOWED: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("still_allowed", default=None)
"""What to ask before a write leaves, when much may have happened since it was begun; None is always yes."""
LAST_WAIT: Final = 5.0
"""Seconds that somebody who was told to stop waits for the answer to its last write."""


class Fence:
    """Lets reads through always, and writes while they are allowed."""

    def __init__(self, transport: Transport, allowed: Callable[[], bool]) -> None:
        self._transport = transport
        self._allowed = allowed

    @property
    def address(self) -> str:
        return self._transport.address

    async def request(self, request: Request, *, timeout: float = LONGEST_CALL) -> Reply:
        if request.method != "GET" and not self._allowed():
            raise OutOfOffice(f"{request.method} {request.path} {NOT_SENT}")
        if request.method == "GET":
            return await self._transport.request(request, timeout=timeout)
        before = STILL_ALLOWED.set(self._allowed)
        sending = asyncio.ensure_future(self._transport.request(request, timeout=timeout))
        STILL_ALLOWED.reset(before)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait([sending], timeout=LAST_WAIT)
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()  # nobody is left who would mind
            raise

    def stream(self, request: Request, *, silence: float) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request, silence=silence)

    async def close(self) -> None:
        await self._transport.close()
