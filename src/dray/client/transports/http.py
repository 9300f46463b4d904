"""The transport over HTTP/1.1 and TLS, to any Kubernetes API server.

Theory of operation: one pool of connections that stay open; a stream holds one of its own. Each request
presents the current credential. When the server responds 401 the credential provider is asked for a newer
one, once, and the request is sent again. A connection belongs to the certificate it was opened with, because
the pool keeps TLS contexts apart.

Rules for this file: no proxies from the environment, no redirects: a token goes to the server it is for.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from dray.client.config.client_config import ClientConfig, ClientConfigError, ClientCredential
from dray.client.errors import NotLeaderError, ServerUnreachableError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.client.transports.leader_guard import NOT_SENT_MESSAGE, WRITE_CHECK
from dray.private_files import open_memory_file

MAX_CONNECTIONS: Final = 512
IDLE_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 20.0
READ_BUFFER: Final = 256 * 1024
MAX_HEADER_BYTES: Final = 64 * 1024
_KEEPALIVE_OPTIONS: Final = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}
"""A server whose machine is gone sends nothing; the kernel notices after half a minute (where it can)."""


class _Connector(aiohttp.TCPConnector):
    """A connector that checks the write permission again once a connection is open: that takes time."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        allowed = WRITE_CHECK.get()
        if allowed is not None and not allowed():
            connection.release()
            raise NotLeaderError(f"{req.method} {req.url.path} {NOT_SENT_MESSAGE}")
        return connection


class HttpTransport:
    """A transport over HTTP."""

    def __init__(self, config: ClientConfig, *, max_connections: int = MAX_CONNECTIONS) -> None:
        self._config = config
        self._base = config.server.rstrip("/")
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None
        self._tls_context: tuple[tuple[bytes, bytes], ssl.SSLContext] | None = None

    @property
    def address(self) -> str:
        return self._base

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        try:
            async with self._open_response(request, limit) as response:
                return TransportResponse(response.status, _merge_headers(response), await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._build_unreachable_error(request, broken, timeout) from broken

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_timeout)
        opened = self._open_response(request, limit)
        try:
            response = await opened.__aenter__()
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._build_unreachable_error(request, broken, idle_timeout) from broken
        chunks = self._iterate_chunks(request, response, idle_timeout)
        try:
            yield TransportStream(response.status, _merge_headers(response), chunks)
        finally:
            await chunks.aclose()
            _abort(response)  # a connection with unread data cannot be reused
            await opened.__aexit__(None, None, None)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _iterate_chunks(
        self, request: TransportRequest, response: aiohttp.ClientResponse, idle_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._build_unreachable_error(request, broken, idle_timeout) from broken

    @asynccontextmanager
    async def _open_response(
        self, request: TransportRequest, limit: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credential = await self._config.credential_provider.get_credential()
        response = await self._send(request, limit, credential)
        if response.status == 401:
            newer = await self._config.credential_provider.renew_credential(credential)
            if newer != credential:
                await response.read()
                response.release()
                response = await self._send(request, limit, newer)
        try:
            yield response
        finally:
            response.release()

    async def _send(
        self, request: TransportRequest, limit: aiohttp.ClientTimeout, credential: ClientCredential
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept, **self._config.headers, **request.headers}
        if request.body:
            headers["Content-Type"] = request.content_type
        if credential.token:
            headers["Authorization"] = f"Bearer {credential.token}"
        query = f"?{urlencode(request.query)}" if request.query else ""
        return await self._get_session().request(
            request.method,
            URL(f"{self._base}{request.path}{query}", encoded=True),
            data=request.body or None,
            headers=headers,
            timeout=limit,
            allow_redirects=False,
            ssl=self._get_tls_context(credential),
            server_hostname=self._config.server_name or None,
        )

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=self._max_connections,
                    keepalive_timeout=IDLE_SECONDS,
                    socket_factory=open_keepalive_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                read_bufsize=READ_BUFFER,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
            )
        return self._session

    def _get_tls_context(self, credential: ClientCredential) -> ssl.SSLContext | bool:
        if not self._base.startswith("https:"):
            return True
        key_pair = (credential.certificate, credential.key)
        if self._tls_context is None or self._tls_context[0] != key_pair:
            self._tls_context = (key_pair, build_tls_context(self._config, credential))
        return self._tls_context[1]

    def _build_unreachable_error(
        self, request: TransportRequest, error: BaseException, seconds: float
    ) -> ServerUnreachableError:
        sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        what = f"{request.method} {self._base}{request.path}"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = (
                f"{_describe_certificate_error(error.certificate_error)}; "
                f"the certificate authority comes from {self._config_source}"
            )
        elif isinstance(error, TimeoutError) or not str(error):
            why = (
                f"nothing came for {seconds:g} seconds"
                if sent
                else "the server does not accept the connection"
            )
        elif isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
            why = _describe_os_error(error.os_error)
        else:
            why = str(error)
        return ServerUnreachableError(f"no answer to {what}: {why}", sent=sent)

    @property
    def _config_source(self) -> str:
        return f"`{self._config.source}`" if self._config.source else "the code that made this client"


def _describe_certificate_error(error: BaseException) -> str:
    """Describe why the certificate of a server is not accepted, in the words of the verification."""
    verdict = getattr(error, "verify_message", "")
    return f"the certificate of the server is not accepted: {verdict}" if verdict else str(error)


def _describe_os_error(error: OSError) -> str:
    """Describe why there is no connection in the words of the operating system."""
    number = error.errno or 0
    # Failed name lookups have negative numbers, and bring their own message.
    return (os.strerror(number) if number > 0 else error.strerror or str(error)).lower()


def open_keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Open a socket that notices when its peer is gone."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    opened.setblocking(False)
    return opened


def build_tls_context(config: ClientConfig, credential: ClientCredential) -> ssl.SSLContext:
    """Build the TLS context from the trusted authority and the client certificate."""
    try:
        context = ssl.create_default_context(cadata=config.ca.decode() if config.ca else None)
    except (ssl.SSLError, ValueError) as broken:
        raise ClientConfigError(
            f"the certificate authority of `{config.server}` is no PEM certificate: {broken}"
        ) from None
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        _load_client_certificate(context, config, credential)
    return context


def _load_client_certificate(
    context: ssl.SSLContext, config: ClientConfig, credential: ClientCredential
) -> None:
    with open_memory_file(credential.certificate.rstrip() + b"\n" + credential.key) as file:
        try:
            context.load_cert_chain(file, password=_get_empty_password)
        except (ssl.SSLError, OSError) as broken:
            raise ClientConfigError(
                f"the client certificate and key for `{config.server}` cannot be used: {broken}"
            ) from None


def _get_empty_password() -> str:
    return ""


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of a response at once.

    TLS would first wait for the server's close notification, so the socket stayed open when the event loop
    ended before that came.
    """
    connection = response.connection
    transport = connection.transport if connection is not None else None
    response.close()
    if transport is not None:
        transport.abort()


def _merge_headers(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in response.headers.items():
        text = name.lower()
        found[text] = f"{found[text]}, {value}" if text in found else value
    return found
