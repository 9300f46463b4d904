"""Transports that misbehave: watches that fall behind, responses that get lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dray.client.errors import ServerUnreachableError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    Transport,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from tests.support.no_transactions import answer_not_served, is_transaction


class Lagging:
    """A transport whose watches of some resources stand still while `held`, and that may lose answers.

    Transactions are refused unless a test is about them.
    """

    def __init__(self, inner: Transport, resource: str = "", *, transactions: bool = False) -> None:
        self.transactions = transactions
        self._inner = inner
        self._resource = resource
        self._flows = asyncio.Event()
        self._flows.set()
        self.lose: Callable[[TransportRequest], bool] = lambda request: False
        """Which requests happen without their answer getting through."""
        self.asked: list[TransportRequest] = []

    @property
    def address(self) -> str:
        return self._inner.address

    def hold(self) -> None:
        self._flows.clear()

    def let(self) -> None:
        self._flows.set()

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        if is_transaction(request) and not self.transactions:
            return answer_not_served()
        self.asked.append(request)
        reply = await self._inner.request(request, timeout=timeout)
        if self.lose(request):
            raise ServerUnreachableError("the connection broke before the answer came")
        return reply

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        async with self._inner.stream(request, idle_timeout=idle_timeout) as stream:
            if request.path.endswith(f"/{self._resource}"):
                yield TransportStream(stream.code, stream.headers, self._held_back(stream.chunks))
            else:
                yield stream

    async def _held_back(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await self._flows.wait()
            yield chunk

    async def close(self) -> None:
        await self._inner.close()

    def count(self, method: str, ending: str) -> int:
        return sum(1 for each in self.asked if each.method == method and each.path.endswith(ending))
