"""A transport that tests intercept: responses and events come late, in any order, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    Transport,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from tests.support.no_transactions import answer_not_served, is_transaction

Meddling = Callable[[TransportRequest], Awaitable[None]]


async def leave_alone(_request: TransportRequest) -> None:
    return None


class InterceptedTransport:
    """A transport that asks first: before a request goes out, before its answer comes in, before an event.

    Transactions are refused, so that every write is a request of its own, unless a test is about them.
    """

    def __init__(self, inner: Transport, *, transactions: bool = False) -> None:
        self._inner = inner
        self.transactions = transactions
        self.before: Meddling = leave_alone
        self.after: Meddling = leave_alone
        self.event: Meddling = leave_alone
        self.asked: list[TransportRequest] = []

    @property
    def address(self) -> str:
        return self._inner.address

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        if is_transaction(request) and not self.transactions:
            return answer_not_served()
        self.asked.append(request)
        await self.before(request)
        reply = await self._inner.request(request, timeout=timeout)
        await self.after(request)
        return reply

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        async with self._inner.stream(request, idle_timeout=idle_timeout) as stream:
            yield TransportStream(stream.code, stream.headers, self._late(request, stream.chunks))

    async def _late(self, request: TransportRequest, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await self.event(request)
            yield chunk

    async def close(self) -> None:
        await self._inner.close()

    def count(self, method: str, *parts: str) -> int:
        """How many requests of a method had all these parts in their path."""
        return sum(1 for each in self.asked if each.method == method and all(p in each.path for p in parts))


class RequestGate:
    """Stops the requests it is asked about until it is opened; tells when the first has come."""

    def __init__(self, method: str, *parts: str, body: bytes = b"", most: int = 1_000_000) -> None:
        self._method, self._parts, self._body, self._left = method, parts, body, most
        self._open = asyncio.Event()
        self.reached = asyncio.Event()
        self.waiting = 0

    async def __call__(self, request: TransportRequest) -> None:
        if request.method != self._method or not all(part in request.path for part in self._parts):
            return
        if self._left <= 0 or self._body not in request.body:
            return
        self._left -= 1
        self.waiting += 1
        self.reached.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()
