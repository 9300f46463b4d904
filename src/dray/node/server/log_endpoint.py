"""Where an agent answers for what its containers said: HTTPS, for the API server and nobody else.

Theory of operation: the path and the parameters are those of the kubelet. Who asks is known by a certificate
of the cluster's authority (`identity`); whether the person behind it may read logs was settled by the server.
What cannot be answered is a line of text that the server hands on to whoever asked. A log that is followed
ends when its container does, or when nobody listens any more.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from aiohttp import web

from dray.client.client import Client
from dray.errors import InputError
from dray.node.containers.log_files import ContainerLogFiles
from dray.node.containers.log_reader import LogReadOptions, follow_log, read_log
from dray.node.pods.pod_worker import PodWorker
from dray.node.pods.restart_policy import ContainerRunning, ContainerWaiting, TrackedContainer
from dray.node.pods.supervisor import PodSupervisor
from dray.node.server.authentication import PeerAuthorizer, build_tls_context, load_or_create_certificate
from dray.telemetry.endpoint import explain_bind_error
from dray.telemetry.logs import StructuredLogger

LOGS_PATH: Final = "/containerLogs/{namespace}/{pod}/{container}"
_CHUNK: Final = 65536
_DISCONNECT_POLL_SECONDS: Final = 1.0
"""How often a follower is looked after that has nothing to read."""


class LogEndpoint:
    """Answers for the logs of one node."""

    def __init__(
        self, client: Client, node: str, log_files: ContainerLogFiles, log: StructuredLogger
    ) -> None:
        self._authorizer = PeerAuthorizer(client, node)
        self._clock = client.options.time_source.clock
        self._node = node
        self._log_files = log_files
        self._log = log
        self.pods: PodSupervisor | None = None
        """Set when there are any."""

    @asynccontextmanager
    async def serve(
        self, host: str, port: int, certificate: Path, client_ca: bytes
    ) -> AsyncIterator[tuple[int, str]]:
        """Answer while the block lasts; the real port, and the fingerprint of the certificate shown."""
        shown = await asyncio.to_thread(
            load_or_create_certificate, self._node, certificate, self._clock.now()
        )
        application = web.Application()
        application.router.add_get(LOGS_PATH, self._serve_request)
        application.router.add_get("/healthz", _serve_health)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port, ssl_context=build_tls_context(shown, client_ca)).start()
            except OSError as refused:
                option = "--port" if refused.errno == errno.EADDRINUSE else "--address"
                why = f"{explain_bind_error(refused)}; choose another {option}"
                raise InputError(f"cannot listen on {host}:{port}: {why}") from None
            yield int(runner.addresses[0][1]), shown.fingerprint
        finally:
            await runner.cleanup()

    async def _serve_request(self, request: web.Request) -> web.StreamResponse:
        certificate = None if request.transport is None else request.transport.get_extra_info("peercert")
        admitted = await self._authorizer.is_allowed(certificate)
        if admitted is None:
            return _build_error(401, "show a certificate of the cluster's authority")
        if not admitted:
            return _build_error(403, f"not allowed: `get nodes/proxy` on node {self._node} is needed")
        named = request.match_info
        life = (
            None
            if self.pods is None
            else self.pods.find_worker(named["namespace"], named["pod"], request.query.get("uid", ""))
        )
        if life is None:
            return _build_error(404, f'pod "{named["pod"]}" is not on node {self._node}')
        return await self._serve_log(request, life, named["container"])

    async def _serve_log(self, request: web.Request, worker: PodWorker, container: str) -> web.StreamResponse:
        tale = next((one for one in worker.containers.tracked if one.name == container), None)
        if tale is None:
            return _build_error(404, f'container "{container}" is not in pod "{worker.key.name}"')
        previous = request.query.get("previous") == "true"
        attempt = self._find_attempt(worker, container, previous)
        if attempt is None:
            return _build_error(400, _explain_missing_log(worker, tale, previous))
        try:
            wanted = _parse_log_options(request, self._clock.now())
        except ValueError as wrong:
            return _build_error(400, str(wrong))
        except OverflowError:
            return _build_error(400, "sinceSeconds is longer than there are dates")
        path = self._log_files.get_path(worker.pod, container, attempt)
        follow = request.query.get("follow") == "true" and not previous

        def ended() -> bool:
            now = next(one for one in worker.containers.tracked if one.name == container)
            return now.restart_count != attempt or not isinstance(now.state, ContainerRunning)

        parts = follow_log(path, wanted, ended) if follow else _read_in_chunks(path, wanted)
        return await self._stream_response(request, parts)

    def _find_attempt(self, worker: PodWorker, container: str, previous: bool) -> int | None:
        attempts = self._log_files.list_attempts(worker.pod, container)
        wanted = 2 if previous else 1
        return attempts[-wanted] if len(attempts) >= wanted else None

    async def _stream_response(self, request: web.Request, parts: AsyncIterator[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        sending = asyncio.create_task(_write_parts(response, parts))
        try:
            while not sending.done():
                await asyncio.wait({sending}, timeout=_DISCONNECT_POLL_SECONDS)
                if request.transport is None or request.transport.is_closing():
                    return response
            await sending
        except (ConnectionError, OSError) as left:
            self._log.debug("a reader of a log has left, or the log has gone", error=left)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return response


async def _write_parts(response: web.StreamResponse, parts: AsyncIterator[bytes]) -> None:
    async with aclosing(parts) as texts:  # type: ignore[type-var]
        async for text in texts:
            await response.write(text)
    await response.write_eof()


async def _read_in_chunks(path: Path, options: LogReadOptions) -> AsyncIterator[bytes]:
    """What is there now, in portions that are worth sending."""
    portion = bytearray()
    for text in read_log(path, options):
        portion += text
        if len(portion) >= _CHUNK:
            yield bytes(portion)
            portion.clear()
    if portion:
        yield bytes(portion)


def _parse_log_options(request: web.Request, now: datetime) -> LogReadOptions:
    """What is asked for; a `ValueError` says what is wrong with it."""
    query = request.query
    numbers: dict[str, int | None] = {}
    for name in ("tailLines", "limitBytes", "sinceSeconds"):
        text = query.get(name)
        if text is not None and not text.isdecimal():
            raise ValueError(f"{name} must be a whole number, not `{text}`")
        numbers[name] = None if text is None else int(text)
    since = None
    if (seconds := numbers["sinceSeconds"]) is not None:
        since = now - timedelta(seconds=seconds)
    elif moment := query.get("sinceTime"):
        since = datetime.fromisoformat(moment)
        since = since if since.tzinfo else since.replace(tzinfo=UTC)
    return LogReadOptions(
        tail=numbers["tailLines"],
        since=since,
        limit_bytes=numbers["limitBytes"],
        timestamps=query.get("timestamps") == "true",
    )


def _explain_missing_log(worker: PodWorker, container: TrackedContainer, previous: bool) -> str:
    pod = worker.key.name
    if previous:
        return f'previous terminated container "{container.name}" in pod "{pod}" not found'
    if isinstance(container.state, ContainerWaiting):
        why = container.state.reason if worker.blocker is None else worker.blocker.reason
        return f'container "{container.name}" in pod "{pod}" is waiting to start: {why}'
    return f'the log of container "{container.name}" in pod "{pod}" is not there any more'


def _build_error(code: int, text: str) -> web.Response:
    return web.Response(status=code, text=text + "\n")


async def _serve_health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")
