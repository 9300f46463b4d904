"""The transport protocol: how a request reaches a server and how its response comes back.

Theory of operation: a transport knows addresses, connections and credentials; it does not know objects.
`transports.http` talks to any Kubernetes API server, `transports.framed` to the one that started this
process, and `dray.cluster.local.transport` calls the API server in the same process. Everything above is
written against the protocol and behaves the same on all.

Rules for this file: structs, as some are made for every call. A response of the server is a
`TransportResponse`, whatever its code; no response is a `ServerUnreachableError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

JSON = "application/json"

DEFAULT_TIMEOUT_SECONDS = 60.0
"""Seconds after which a request without a response fails."""

_EMPTY_MAPPING: Mapping[str, str] = MappingProxyType({})


class TransportRequest(msgspec.Struct, frozen=True):
    """A request to a server. The path is quoted already, the query is not."""

    method: str
    path: str
    query: Mapping[str, str] = _EMPTY_MAPPING
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = _EMPTY_MAPPING


class TransportResponse(msgspec.Struct, frozen=True):
    """A response of the server; names of headers are in lower case.

    `get_view` returns the object of the body as the struct of its kind in the internal version, where the
    transport has it without decoding the body. `parts` are the responses inside that to a transaction, where
    the transport has them without decoding it.
    """

    code: int
    headers: Mapping[str, str]
    body: bytes = b""
    get_view: Callable[[], Any] | None = None
    parts: tuple[TransportResponse, ...] = ()


class TransportStream(msgspec.Struct, frozen=True):
    """A response that comes in chunks; `code` and `headers` are known before the first one."""

    code: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """A connection to one server. Raises `ServerUnreachableError` when no response comes."""

    @property
    def address(self) -> str:
        """The address of the server, for messages."""
        ...

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        """Send a request and wait for the whole response, at most `timeout` seconds."""
        ...

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        """Send a request and yield the response as it comes; `ServerUnreachableError` after so many idle
        seconds.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
