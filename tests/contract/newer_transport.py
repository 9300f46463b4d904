"""A transport whose server seems newer than we are: some of what it sends has a field that we do not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    Transport,
    TransportRequest,
    TransportResponse,
    TransportStream,
)

ADDITIONS = (
    (b'{"name":"newer"', b'{"name":"newer","tomorrow":{}'),
    (b'{"expression":"true"', b'{"expression":"true","tomorrow":{}'),
)
"""Whatever is named `newer`, and a selector that is `true`, has another field."""


def add_fields(text: bytes) -> bytes:
    for old, new in ADDITIONS:
        text = text.replace(old, new)
    return text


class NewerTransport:
    """Adds fields to what a server sends."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    @property
    def address(self) -> str:
        return self._inner.address

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        reply = await self._inner.request(request, timeout=timeout)
        return replace(reply, body=add_fields(reply.body), get_view=None, parts=())

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        async with self._inner.stream(request, idle_timeout=idle_timeout) as stream:
            yield TransportStream(stream.code, stream.headers, _add_to_lines(stream.chunks))

    async def close(self) -> None:
        await self._inner.close()


async def _add_to_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield add_fields(line) + b"\n"
