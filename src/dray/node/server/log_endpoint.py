"""The HTTPS endpoint of an agent for container logs, which only the API server uses.

Theory of operation: path and parameters are those of the kubelet. The client authenticates by a certificate
of the cluster's CA (`authorization`); the server has already decided whether its user may read logs. An error
is a line of text that the server passes on to the user. A followed log ends with its container, or when the
client disconnects.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
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
from dray.node.server.authorization import PeerAuthorizer
from dray.telemetry.endpoint import explain_bind_error
from dray.telemetry.logs import StructuredLogger

LOGS_PATH: Final = "/containerLogs/{namespace}/{pod}/{container}"
_CHUNK: Final = 65536
_DISCONNECT_POLL_SECONDS: Final = 1.0
"""How often to check whether a client has disconnected while there is nothing to send."""


class LogEndpoint:
    """Serves the container logs of one node."""

    def __init__(
        self, client: Client, node: str, log_files: ContainerLogFiles, log: StructuredLogger
    ) -> None:
        self._authorizer = PeerAuthorizer(client, node)
        self._clock = client.options.time_source.clock
        self._node = node
        self._log_files = log_files
        self._log = log
        self.pods: PodSupervisor | None = None
        """Set by the agent once it runs pods."""

    @asynccontextmanager
    async def serve(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve inside the block; yield the actual port."""
        application = web.Application()
        application.router.add_get(LOGS_PATH, self._serve_request)
        application.router.add_get("/healthz", _serve_health)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port, ssl_context=context).start()
            except OSError as error:
                option = "--port" if error.errno == errno.EADDRINUSE else "--address"
                why = f"{explain_bind_error(error)}; choose another {option}"
                raise InputError(f"cannot listen on {host}:{port}: {why}") from None
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def _serve_request(self, request: web.Request) -> web.StreamResponse:
        certificate = None if request.transport is None else request.transport.get_extra_info("peercert")
        allowed = await self._authorizer.is_allowed(certificate)
        if allowed is None:
            return _build_error(401, "present a client certificate of the cluster's CA")
        if not allowed:
            return _build_error(403, f"not allowed: `get nodes/proxy` on node {self._node} is needed")
        path = request.match_info
        worker = (
            None
            if self.pods is None
            else self.pods.find_worker(path["namespace"], path["pod"], request.query.get("uid", ""))
        )
        if worker is None:
            return _build_error(404, f'pod "{path["pod"]}" is not on node {self._node}')
        return await self._serve_log(request, worker, path["container"])

    async def _serve_log(self, request: web.Request, worker: PodWorker, container: str) -> web.StreamResponse:
        tracked = next((one for one in worker.containers.tracked if one.name == container), None)
        if tracked is None:
            return _build_error(404, f'container "{container}" is not in pod "{worker.key.name}"')
        previous = request.query.get("previous") == "true"
        attempt = self._find_attempt(worker, container, previous)
        if attempt is None:
            return _build_error(400, _explain_missing_log(worker, tracked, previous))
        try:
            options = _parse_log_options(request, self._clock.now())
        except ValueError as error:
            return _build_error(400, str(error))
        except OverflowError:
            return _build_error(400, "sinceSeconds is longer than there are dates")
        path = self._log_files.get_path(worker.pod, container, attempt)
        follow = request.query.get("follow") == "true" and not previous

        def has_ended() -> bool:
            current = next(one for one in worker.containers.tracked if one.name == container)
            return current.restart_count != attempt or not isinstance(current.state, ContainerRunning)

        parts = follow_log(path, options, has_ended) if follow else _read_in_chunks(path, options)
        return await self._stream_response(request, parts)

    def _find_attempt(self, worker: PodWorker, container: str, previous: bool) -> int | None:
        attempts = self._log_files.list_attempts(worker.pod, container)
        offset = 2 if previous else 1
        return attempts[-offset] if len(attempts) >= offset else None

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
        except (ConnectionError, OSError) as error:
            self._log.debug("a log stream ended early", error=error)
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
    """Read the current content of a log in chunks."""
    chunk = bytearray()
    for text in read_log(path, options):
        chunk += text
        if len(chunk) >= _CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _parse_log_options(request: web.Request, now: datetime) -> LogReadOptions:
    """Parse the parameters of a request; raises `ValueError` for an invalid one."""
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
    return f'the log of container "{container.name}" in pod "{pod}" was deleted'


def _build_error(code: int, text: str) -> web.Response:
    return web.Response(status=code, text=text + "\n")


async def _serve_health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")
