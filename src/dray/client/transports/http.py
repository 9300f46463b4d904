"""The transport over HTTP/1.1 and TLS, to any Kubernetes API server.

Theory of operation: one pool of connections that stay open; a stream holds one of its own. Each request shows
the proof of the moment. When the server answers 401 the credentials are asked for a newer proof, once, and
the request is sent again. A connection belongs to the certificate it was opened with, because the pool tells
TLS contexts apart.

Rules for this file: no proxies from the environment, no redirects: a token goes to the server it is for.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from dray.client.config.client_config import Access, AccessError, Proof
from dray.client.errors import OutOfOffice, Unreachable
from dray.client.transport import LONGEST_CALL, Reply, Request, Stream
from dray.client.transports.leader_guard import NOT_SENT, STILL_ALLOWED

CONNECTIONS: Final = 512
IDLE_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 20.0
READ_BUFFER: Final = 256 * 1024
LONGEST_HEADER: Final = 64 * 1024
_ALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A server whose machine is gone says nothing; the kernel notices after half a minute (where it can)."""


class _Connector(aiohttp.TCPConnector):
    """Connections that take nothing that is not allowed any more: to open one takes time."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        allowed = STILL_ALLOWED.get()
        if allowed is not None and not allowed():
            connection.release()
            raise OutOfOffice(f"{req.method} {req.url.path} {NOT_SENT}")
        return connection


class Http:
    """A way to a server over HTTP."""

    def __init__(self, access: Access, *, connections: int = CONNECTIONS) -> None:
        self._access = access
        self._base = access.server.rstrip("/")
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._context: tuple[tuple[bytes, bytes], ssl.SSLContext] | None = None

    @property
    def address(self) -> str:
        return self._base

    async def request(self, request: Request, *, timeout: float = LONGEST_CALL) -> Reply:
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        try:
            async with self._answered(request, limit) as response:
                return Reply(response.status, _headers(response), await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._unreachable(request, broken, timeout) from broken

    @asynccontextmanager
    async def stream(self, request: Request, *, silence: float) -> AsyncIterator[Stream]:
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        opened = self._answered(request, limit)
        try:
            response = await opened.__aenter__()
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._unreachable(request, broken, silence) from broken
        chunks = self._chunks(request, response, silence)
        try:
            yield Stream(response.status, _headers(response), chunks)
        finally:
            await chunks.aclose()
            _abort(response)  # unread parts make a connection useless for others
            await opened.__aexit__(None, None, None)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _chunks(
        self, request: Request, response: aiohttp.ClientResponse, silence: float
    ) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._unreachable(request, broken, silence) from broken

    @asynccontextmanager
    async def _answered(
        self, request: Request, limit: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        proof = await self._access.credentials.proof()
        response = await self._send(request, limit, proof)
        if response.status == 401:
            newer = await self._access.credentials.renewed(proof)
            if newer != proof:
                await response.read()
                response.release()
                response = await self._send(request, limit, newer)
        try:
            yield response
        finally:
            response.release()

    async def _send(
        self, request: Request, limit: aiohttp.ClientTimeout, proof: Proof
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept, **self._access.headers, **request.headers}
        if request.body:
            headers["Content-Type"] = request.content_type
        if proof.token:
            headers["Authorization"] = f"Bearer {proof.token}"
        query = f"?{urlencode(request.query)}" if request.query else ""
        return await self._opened().request(
            request.method,
            URL(f"{self._base}{request.path}{query}", encoded=True),
            data=request.body or None,
            headers=headers,
            timeout=limit,
            allow_redirects=False,
            ssl=self._trust(proof),
            server_hostname=self._access.server_name or None,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=self._connections, keepalive_timeout=IDLE_SECONDS, socket_factory=opened_socket
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                read_bufsize=READ_BUFFER,
                max_line_size=LONGEST_HEADER,
                max_field_size=LONGEST_HEADER,
            )
        return self._session

    def _trust(self, proof: Proof) -> ssl.SSLContext | bool:
        if not self._base.startswith("https:"):
            return True
        shown = (proof.certificate, proof.key)
        if self._context is None or self._context[0] != shown:
            self._context = (shown, tls_context(self._access, proof))
        return self._context[1]

    def _unreachable(self, request: Request, broken: BaseException, seconds: float) -> Unreachable:
        sent = not isinstance(broken, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        what = f"{request.method} {self._base}{request.path}"
        if isinstance(broken, aiohttp.ClientConnectorCertificateError):
            why = f"{broken.certificate_error}; the certificate authority comes from {self._source}"
        elif isinstance(broken, TimeoutError) or not str(broken):
            why = f"nothing came for {seconds:g} seconds" if sent else "the server does not take the call"
        elif isinstance(broken, aiohttp.ClientConnectorError) and broken.os_error.errno:
            why = _system(broken.os_error)
        else:
            why = str(broken)
        return Unreachable(f"no answer to {what}: {why}", sent=sent)

    @property
    def _source(self) -> str:
        return f"`{self._access.source}`" if self._access.source else "the code that made this client"


def _system(refused: OSError) -> str:
    """Why there is no connection, as the system words it, without the insides of Python."""
    number = refused.errno or 0
    # Names that cannot be looked up have numbers of their own, below zero, and bring their words.
    return (os.strerror(number) if number > 0 else refused.strerror or str(refused)).lower()


def opened_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that finds out when nobody is at the other end any more."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    made.setblocking(False)
    return made


def tls_context(access: Access, proof: Proof) -> ssl.SSLContext:
    """What to trust and what to show, as Python's TLS wants it."""
    try:
        context = ssl.create_default_context(cadata=access.ca.decode() if access.ca else None)
    except (ssl.SSLError, ValueError) as broken:
        raise AccessError(
            f"the certificate authority of `{access.server}` is no PEM certificate: {broken}"
        ) from None
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if proof.certificate:
        _show(context, access, proof)
    return context


def _show(context: ssl.SSLContext, access: Access, proof: Proof) -> None:
    # Python reads certificates only from files; this one is readable by nobody else and gone at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write(proof.certificate.rstrip() + b"\n" + proof.key)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=_no_password)
        except (ssl.SSLError, OSError) as broken:
            raise AccessError(
                f"the client certificate and key for `{access.server}` cannot be used: {broken}"
            ) from None


def _no_password() -> str:
    return ""


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of a response at once.

    TLS would first take leave of the server. Nobody waits for that, so the socket stayed open when the loop
    ended before the server answered.
    """
    connection = response.connection
    transport = connection.transport if connection is not None else None
    response.close()
    if transport is not None:
        transport.abort()


def _headers(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in response.headers.items():
        text = name.lower()
        found[text] = f"{found[text]}, {value}" if text in found else value
    return found
