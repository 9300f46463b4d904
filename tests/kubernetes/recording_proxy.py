"""A proxy that records what clients write: each request as its bytes, the object before, and the answer.

Theory of operation: clients connect with their own certificates. The proxy forwards each request as an
administrator who impersonates them, so that the server behind decides about the real user. Before a write to
an existing object it reads that object, so that the request can be repeated on one in the same state.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from dray.server.auth.authn.certificates import CertificateAuthority
from tests.contract.etcd_server import free_port
from tests.e2e.patience import until

WRITES = ("POST", "PUT", "PATCH", "DELETE")
_OWN_HEADERS = ("host", "connection", "content-length", "transfer-encoding", "keep-alive")
"""Headers of one connection, which are not passed on."""
_LARGEST = 8 * 2**20


@dataclass(frozen=True)
class Upstream:
    """The server behind the proxy, and the authority both trust."""

    url: str
    keys: CertificateAuthority
    masters: str = "system:masters"


class RecordingProxy:
    """Forwards requests to a server, and appends each write to a file as a line of JSON."""

    def __init__(self, upstream: Upstream, file: Path, folder: Path) -> None:
        self._upstream, self._file, self._folder = upstream, file, folder
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End the proxy, from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def serve(self, ready: threading.Event) -> None:
        """Serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        keys = self._upstream.keys
        inward = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys.ca_file))
        inward.load_cert_chain(keys.serving_file)
        inward.verify_mode = ssl.CERT_OPTIONAL
        application = web.Application(client_max_size=_LARGEST)
        application.router.add_route("*", "/{rest:.*}", self._forward)
        runner = web.AppRunner(application, access_log=None)
        connector = aiohttp.TCPConnector(ssl=self._build_outward(), limit=0)
        no_limit = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=no_limit, auto_decompress=False
        ) as session:
            self._session = session
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=inward, shutdown_timeout=1).start()
            ready.set()
            await self._stopped.wait()
            await runner.cleanup()

    def _build_outward(self) -> ssl.SSLContext:
        keys = self._upstream.keys
        made = keys.issue_client_certificate("recording-proxy", (self._upstream.masters,), days=2)
        files = (self._folder / "proxy.crt", self._folder / "proxy.key")
        for file, content in zip(files, (made.cert_pem, made.key_pem), strict=True):
            file.write_bytes(content)
        outward = ssl.create_default_context(cafile=str(keys.ca_file))
        outward.load_cert_chain(*files)
        return outward

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        body = await request.read()
        before = await self._read_before(request) if request.method in WRITES else None
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._upstream.url}{request.raw_path}", encoded=True),
                data=body or None,
                headers=_build_headers(request),
            ) as answer:
                if request.method in WRITES:
                    return await self._answer_write(request, body, before, answer)
                return await _stream(request, answer)
        except aiohttp.ClientConnectorError:
            return web.Response(status=503)

    async def _answer_write(
        self, request: web.Request, body: bytes, before: Any, answer: aiohttp.ClientResponse
    ) -> web.Response:
        content = await answer.read()
        line = {
            "agent": request.headers.get("user-agent", "").split(" ")[0],
            "user": _read_user(request)[0],
            "method": request.method,
            "path": request.path,
            "query": dict(request.query),
            "type": request.headers.get("content-type", ""),
            "body": base64.b64encode(body).decode(),
            "code": answer.status,
            "before": before,
            "answer": base64.b64encode(_unpack(answer.headers, content)).decode(),
            "answer_type": answer.headers.get("content-type", ""),
        }
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line, separators=(",", ":")) + "\n")
        return web.Response(status=answer.status, body=content, headers=_keep_headers(answer.headers))

    async def _read_before(self, request: web.Request) -> Any:
        """The object that a write names, or whose subresource it does; None when there is none."""
        path = find_object_path(request.path)
        if path is None:
            return None
        assert self._session is not None
        accept = {"accept": "application/json", "accept-encoding": "identity"}
        async with self._session.get(f"{self._upstream.url}{path}", headers=accept) as answer:
            return await answer.json() if answer.status == 200 else None


def find_object_path(path: str) -> str | None:
    """The path of the object in the path of a request, without a subresource; None for a collection."""
    parts = path.strip("/").split("/")
    start = 2 if parts[0] == "api" else 3
    within = parts[start + 2 :] if parts[start : start + 1] == ["namespaces"] else []
    if within and within[0] not in ("finalize", "status"):
        start += 2
    return "/" + "/".join(parts[: start + 2]) if len(parts) > start + 1 else None


def _read_user(request: web.Request) -> tuple[str, list[str]]:
    """Name and groups in the certificate of the client."""
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport else None
    pairs = [pair for entry in (certificate or {}).get("subject", ()) for pair in entry]
    names = [value for key, value in pairs if key == "commonName"]
    groups = [value for key, value in pairs if key == "organizationName"]
    return (names[0] if names else "", groups)


def _build_headers(request: web.Request) -> list[tuple[str, str]]:
    kept = [(name, value) for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS]
    user, groups = _read_user(request)
    if not user:
        return kept
    kept.append(("Impersonate-User", user))
    return [*kept, *(("Impersonate-Group", group) for group in (*groups, "system:authenticated"))]


def _keep_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in _OWN_HEADERS]


def _unpack(headers: Mapping[str, str], content: bytes) -> bytes:
    return gzip.decompress(content) if headers.get("content-encoding") == "gzip" else content


async def _stream(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=dict(_keep_headers(answer.headers)))
    await response.prepare(request)
    with suppress(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):  # one of both sides is gone
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    return response


@contextmanager
def record_writes(upstream: Upstream, file: Path, folder: Path) -> Iterator[str]:
    """Run a proxy in a thread of its own, and give its address."""
    proxy = RecordingProxy(upstream, file, folder)
    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve(ready)))
    thread.start()
    try:
        until(ready.is_set, lambda: "the proxy does not start")
        yield proxy.url
    finally:
        proxy.stop()
        thread.join()
