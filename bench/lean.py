"""A minimal HTTP client: prepared requests over open connections, responses parsed from the stream.

Rules for this file: it trusts the server it measures; of HTTP it knows lengths and chunks, nothing more.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, the TLS context for it, and the lines that each request carries."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str = ""
    """The name in the server's certificate; without it, the host."""
    headers: str = field(default="", repr=False)
    """Header lines, each with its line end, such as `authorization`."""

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Address:
        """The address in a kubeconfig with embedded certificates, or with a token that requests carry."""
        config = yaml.safe_load(path.read_text("utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urlsplit(cluster["server"])
        assert url.hostname is not None
        assert url.port is not None
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        if "token" in user:
            return cls(url.hostname, url.port, tls)
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder) / "client.pem"
            parts = (user["client-certificate-data"], user["client-key-data"])
            pem.write_bytes(b"\n".join(map(base64.b64decode, parts)))
            tls.load_cert_chain(pem)
        return cls(url.hostname, url.port, tls)


def packed(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    """A request as bytes."""
    head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\nuser-agent: bench/1\r\naccept: application/json\r\n"
    head += headers
    if not body:
        return f"{head}\r\n".encode()
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class ChunkDecoder:
    """Takes the chunks of a response apart, whatever the pieces in which they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._missing = 0
        self.is_finished = False

    def feed(self, data: bytes) -> bytes:
        """Return the content of what has arrived."""
        self._buffer += data
        content = bytearray()
        while self._buffer and not self.is_finished:
            if self._missing > 2:
                taken = self._buffer[: self._missing - 2]
                content += taken
            elif self._missing:
                taken = self._buffer[: self._missing]  # the line end after a chunk
            else:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    break
                size = int(bytes(self._buffer[:end]).split(b";", 1)[0], 16)
                del self._buffer[: end + 2]
                self._missing = size + 2
                self.is_finished = size == 0
                continue
            self._missing -= len(taken)
            del self._buffer[: len(taken)]
        return bytes(content)


class Wire(asyncio.Protocol):
    """One connection: a request at a time, or a stream of lines for ever."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._stream: Callable[[bytes], None] | None = None
        self.transport: Any = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream(data)
            return
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._waiting is None:
            return
        head = bytes(self._buffer[:end]).lower()
        body = self._find_body(head, end + 4)
        if body is None:
            return
        waiting, self._waiting = self._waiting, None
        if not waiting.done():
            waiting.set_result((int(head[9:12]), body))

    def _find_body(self, head: bytes, begin: int) -> bytes | None:
        """Remove a whole response from the buffer and return its body; None while a part is missing."""
        start = head.find(b"content-length:")
        if start < 0:
            if b"transfer-encoding: chunked" not in head:
                raise ValueError("an answer without a length; streams are read with `stream`")
            if not self._buffer.endswith(b"0\r\n\r\n"):
                return None
            decoder = ChunkDecoder()
            body = decoder.feed(bytes(self._buffer[begin:]))
            if not decoder.is_finished:
                return None
            self._buffer.clear()
            return body
        length = int(head[start + 15 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < begin + length:
            return None
        body = bytes(self._buffer[begin : begin + length])
        del self._buffer[: begin + length]
        return body

    async def call(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; the code and the body of its answer."""
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiting

    def stream(self, request: bytes, take: Callable[[bytes], None]) -> None:
        """Send a request whose answer never ends; `take` gets whatever comes."""
        self._stream = take
        self.transport.write(request)


async def connect(address: Address) -> Wire:
    """A connection to the server."""
    loop = asyncio.get_running_loop()
    name = None if address.tls is None else address.server_name or address.host
    _, wire = await loop.create_connection(
        Wire, address.host, address.port, ssl=address.tls, server_hostname=name
    )
    return wire
