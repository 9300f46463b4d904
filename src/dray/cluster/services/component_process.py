"""Runs components in a process of their own, and serves their requests: the server's side of it.

Theory of operation: the sockets of a component process are pairs, made before it starts; it inherits the
other ends and nobody else can reach them: they have no name, and the process needs no credential. Each
component has a socket of its own, on which the server knows it as one user with the permissions of its role.
The process is a service like others: its supervisor logs its end and starts it again. It ends with its
control socket, so it does not outlive a server's process that is killed, and it is killed when it does not
stop in time. Before it is started again, everything that came from the one before has been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import Metric

from dray.api.json_text import read_json
from dray.cluster.services.component_connection import ComponentConnection, connect_component
from dray.cluster.services.component_messages import (
    MAX_MESSAGE_BYTES,
    ComponentMessage,
    ComponentSettings,
    LogMessage,
    MetricsMessage,
    MetricsRequest,
    StartMessage,
    decode_metrics,
    encode_options,
)
from dray.cluster.services.components import INFORMERS_USER, ComponentOptions
from dray.errors import DrayError
from dray.server.http.application import ApiApplication
from dray.server.http.requests import AUTHENTICATED, RequestUser
from dray.tasks import wait_for_first
from dray.telemetry.logs import LogLevel, StructuredLogger
from dray.telemetry.metrics import MetricsRegistry
from dray.wire.frames import FrameDecoder, FrameError, encode_frame

STOP_SECONDS: Final = 10.0
"""How long a component process may take to stop before it is killed."""
METRICS_SECONDS: Final = 2.0
"""How long a scrape waits for the metrics of a component process."""
_PROGRAM: Final = "dray.cluster.services.component_main"


class ComponentProcessError(DrayError):
    """A component process ended, or broke its connection, without being asked to."""


@dataclass(frozen=True)
class ProcessComponent:
    """A component to run in a process of its own."""

    name: str
    user: str
    options: ComponentOptions


class ComponentProcess:
    """A process with components, as a service."""

    def __init__(
        self, app: ApiApplication, components: Sequence[ProcessComponent], log: StructuredLogger
    ) -> None:
        self._app, self._components, self._log = app, components, log
        self._metrics = RemoteMetrics()
        self.ready = asyncio.Event()
        self.pid = 0
        """The process, once it runs."""

    @property
    def metrics(self) -> MetricsRegistry:
        """The metrics of its components."""
        return self._metrics

    async def run(self) -> None:
        """Run the process until cancelled; raises when it ends."""
        async with AsyncExitStack() as stack:
            ends: list[socket.socket] = []
            connections: list[ComponentConnection] = []
            for name in self._list_users():
                ours, theirs = _open_pair(stack)
                ends.append(theirs)
                user = RequestUser(name, (AUTHENTICATED,))
                connection = await connect_component(ours, self._app, user)
                stack.push_async_callback(connection.close)
                connections.append(connection)
            ours, control_end = _open_pair(stack)
            control = _ControlConnection(self._log, self.ready, self._metrics)
            process = await stack.enter_async_context(_run_process(control, ours, [control_end, *ends]))
            self.pid = process.pid
            names = " ".join(each.name for each in self._components)
            self._log.info("a component process was started", pid=self.pid, components=names)
            control.send(self._build_start(ends))
            for end in (control_end, *ends):
                end.close()
            waits = [connection.closed.wait() for connection in connections]
            await wait_for_first(process.wait(), control.closed.wait(), *waits)
            problems = (control.problem, *(connection.problem for connection in connections))
            raise ComponentProcessError(await _describe_end(process, problems))

    def _list_users(self) -> list[str]:
        """The users of the connections: one for each component, and one for what several of them share."""
        users = [each.user for each in self._components]
        return [*users, INFORMERS_USER] if len(users) > 1 else users

    def _build_start(self, ends: Sequence[socket.socket]) -> StartMessage:
        components = tuple(
            ComponentSettings(each.name, each.user, end.fileno(), encode_options(each.options))
            for each, end in zip(self._components, ends, strict=False)
        )
        if len(ends) == len(components):
            return StartMessage(components, self._log.level)
        return StartMessage(components, self._log.level, INFORMERS_USER, ends[-1].fileno())


def _open_pair(stack: AsyncExitStack) -> tuple[socket.socket, socket.socket]:
    """Open two connected sockets, which are closed with the stack."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for each in pair:
        stack.callback(each.close)
        each.setblocking(False)
    return pair


@asynccontextmanager
async def _run_process(
    control: _ControlConnection, sock: socket.socket, inherited: Sequence[socket.socket]
) -> AsyncIterator[Process]:
    """Run the program while the block lasts; then ask it to stop, and kill it when it does not."""
    await asyncio.get_running_loop().create_unix_connection(lambda: control, sock=sock)
    try:
        descriptors = [each.fileno() for each in inherited]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _PROGRAM, str(descriptors[0])),
            pass_fds=descriptors,
            stdin=DEVNULL,
            stdout=DEVNULL,
            # A terminal interrupts its foreground processes; this one is stopped by the server's process.
            start_new_session=True,
        )
        try:
            yield process
        finally:
            control.close()
            await _wait_or_kill(process)
    finally:
        control.abort()
        await control.closed.wait()


async def _wait_or_kill(process: Process) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
            return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _describe_end(process: Process, problems: Sequence[str]) -> str:
    problem = next(filter(None, problems), "")
    if problem:
        return f"process {process.pid} was disconnected: {problem}"
    # Its sockets end a moment before the process does.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await process.wait()
    code = process.returncode
    if code is None:
        return f"process {process.pid} closed its connection"
    return f"process {process.pid} " + (
        f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    )


class _ControlConnection(asyncio.Protocol):
    """The server's end of the control socket."""

    def __init__(self, log: StructuredLogger, ready: asyncio.Event, metrics: RemoteMetrics) -> None:
        self.closed = asyncio.Event()
        self.problem = ""
        self._log, self._ready, self._metrics = log, ready, metrics
        self._decoder: FrameDecoder[ComponentMessage] = FrameDecoder(ComponentMessage, MAX_MESSAGE_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._metrics.control = self

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._take(message)
        except FrameError as broken:
            self.problem = str(broken)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._metrics.control = None
        self._metrics.received.set()
        self.closed.set()

    def send(self, message: StartMessage | MetricsRequest) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(message))

    def close(self) -> None:
        """Ask the process to stop."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, message: ComponentMessage) -> None:
        if isinstance(message, MetricsMessage):
            self._metrics.families = decode_metrics(message.families)
            self._metrics.received.set()
        elif isinstance(message, LogMessage):
            _log_line(self._log, message.line)
        else:
            self._ready.set()


def _log_line(log: StructuredLogger, line: bytes) -> None:
    """Log a line of a component process; repeats were counted there."""
    fields = read_json(line)
    del fields["time"]
    level = LogLevel[fields.pop("level").upper()]
    log.log(level, fields.pop("message"), fields, always=True)


class RemoteMetrics(MetricsRegistry):
    """The metrics of a component process, as of the last time they were asked for."""

    def __init__(self) -> None:
        super().__init__({})
        self.control: _ControlConnection | None = None
        self.families: list[Metric] = []
        self.received = asyncio.Event()

    async def refresh(self) -> None:
        """Ask the process for its metrics; keep the last ones when it does not answer."""
        if self.control is not None:
            self.received.clear()
            self.control.send(MetricsRequest())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(METRICS_SECONDS):
                    await self.received.wait()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self.families
