"""The protocol of transports: how a request reaches a server and how its answer comes back.

Theory of operation: a transport knows addresses, connections and who we are; it does not know objects. There
are two: `http` talks to any Kubernetes API server, `inprocess` calls an ASGI application in this process.
Everything above is written against the protocol and behaves the same on both.

Rules for this file: structs, as some are made for every call. An answer of the server is a
`TransportResponse`, whatever its code; no answer is an `Unreachable`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

JSON = "application/json"

DEFAULT_TIMEOUT_SECONDS = 60.0
"""Seconds after which a request without an answer is given up."""

_EMPTY_MAPPING: Mapping[str, str] = MappingProxyType({})


class TransportRequest(msgspec.Struct, frozen=True):
    """What is asked of a server. The path is quoted already, the query is not."""

    method: str
    path: str
    query: Mapping[str, str] = _EMPTY_MAPPING
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = _EMPTY_MAPPING


class TransportResponse(msgspec.Struct, frozen=True):
    """What the server answered; names of headers are in lower case.

    `get_view` gives the object of the body as the struct of its kind in the internal version, where the
    transport knows it without reading the body.
    """

    code: int
    headers: Mapping[str, str]
    body: bytes = b""
    get_view: Callable[[], Any] | None = None


class TransportStream(msgspec.Struct, frozen=True):
    """An answer that comes in parts; `code` and `headers` are known before the first one."""

    code: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """A way to one server. Raises `Unreachable` when no answer comes."""

    @property
    def address(self) -> str:
        """Where the server is, for people."""
        ...

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        """Ask, and wait for the whole answer, at most `timeout` seconds."""
        ...

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        """Ask, and hand out the answer as it comes; silence of so many seconds is `Unreachable`."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...
