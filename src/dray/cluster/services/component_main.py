"""The main program of a component process: scheduler, controllers, or both, beside the server's process.

Theory of operation: the process inherits a control socket, whose descriptor is its only argument, and one
connected socket for each component. It reads its first message, builds the components as `dray up` builds
them in one process, and supervises them. It stops in good order when the control socket ends, whether the
server's process stops or was killed, and fails when a connection to the server breaks, to be started anew.

Rules for this file: it loads nothing of the server.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

from dray.client.client import Client
from dray.client.informers.shared_reflectors import SharedReflectors, SharingClient
from dray.client.rest_client import ClientOptions
from dray.client.transports.framed import FramedTransport
from dray.clock import SystemClock
from dray.cluster.services.component_messages import (
    MAX_MESSAGE_BYTES,
    ComponentMessage,
    ComponentSettings,
    ControlMessage,
    LogMessage,
    MetricsMessage,
    MetricsRequest,
    ReadyMessage,
    StartMessage,
    decode_options,
    encode_metrics,
)
from dray.cluster.services.components import COMPONENTS
from dray.cluster.services.process_setup import build_runner, freeze_garbage_collector
from dray.cluster.services.supervisor import SupervisedService
from dray.errors import DrayError
from dray.tasks import wait_for_first
from dray.telemetry.logs import LogLevel, StructuredLogger, redirect_library_logs
from dray.wire.frames import FrameDecoder, encode_frame

MAX_BUFFERED_LOG_BYTES: Final = 1 << 20
"""Log lines beyond this size that the server's process does not read are dropped."""


class ConnectionBrokenError(DrayError):
    """A component has lost its connection to the server."""


class _ControlConnection(asyncio.Protocol):
    """The process's end of the control socket."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.start: asyncio.Future[StartMessage] = asyncio.get_running_loop().create_future()
        self.services: Sequence[SupervisedService] = ()
        self._decoder: FrameDecoder[ControlMessage] = FrameDecoder(ControlMessage, MAX_MESSAGE_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if isinstance(message, MetricsRequest):
                collected = itertools.chain.from_iterable(each.collect() for each in self.services)
                self.send(MetricsMessage(encode_metrics(collected)))
            else:
                self.start.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed.set()

    def send(self, message: ComponentMessage) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(message))

    def write_log_line(self, line: bytes) -> bool:
        """Send a log line; False when too many wait."""
        if self._transport is None or self._transport.get_write_buffer_size() > MAX_BUFFERED_LOG_BYTES:
            return False
        self.send(LogMessage(line))
        return True


async def run_components(control: socket.socket) -> None:
    """Run the components that the control socket names, until it ends."""
    connection = _ControlConnection()
    await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=control)
    if await wait_for_first(connection.closed.wait(), asyncio.shield(connection.start)) == 0:
        return
    start = connection.start.result()
    log = StructuredLogger(
        connection.write_log_line, SystemClock(), level=LogLevel(start.log_level), json=True
    )
    redirect_library_logs(log, "asyncio")
    transports = [FramedTransport(socket.socket(fileno=each.descriptor)) for each in start.components]
    reflectors = None
    if start.informers_user:
        transports.append(FramedTransport(socket.socket(fileno=start.informers_descriptor)))
        reflectors = _build_reflectors(start.informers_user, transports[-1])
    services = [
        _build_service(settings, transport, reflectors, log)
        for settings, transport in zip(start.components, transports, strict=False)
    ]
    connection.services = services
    ends = [_fail_when_closed(transport) for transport in transports]
    try:
        await wait_for_first(connection.closed.wait(), *ends, _supervise(services, connection))
    except ConnectionBrokenError as broken:
        if not connection.closed.is_set():  # otherwise the server's process has ended
            log.error("a component lost its connection to the server", error=broken)
            raise
    finally:
        for transport in transports:
            await transport.close()


def _build_reflectors(user: str, transport: FramedTransport) -> SharedReflectors:
    # A process with one component does not need it.
    from dray.cluster.services.shared_kinds import build_shared_reflectors

    return build_shared_reflectors(Client(transport, _build_client_options(user)))


def _build_client_options(user: str) -> ClientOptions:
    return ClientOptions(field_manager=user.replace(":", "-"))


def _build_service(
    settings: ComponentSettings,
    transport: FramedTransport,
    reflectors: SharedReflectors | None,
    log: StructuredLogger,
) -> SupervisedService:
    client_options = _build_client_options(settings.user)
    client = (
        Client(transport, client_options)
        if reflectors is None
        else SharingClient(transport, reflectors, client_options)
    )
    options = decode_options(settings.options, log)
    build = COMPONENTS[settings.name]
    return SupervisedService(settings.name, lambda: build(client, options), log)


async def _supervise(services: Sequence[SupervisedService], connection: _ControlConnection) -> None:
    async with asyncio.TaskGroup() as tasks:
        for service in services:
            tasks.create_task(service.run())
        for service in services:
            await service.ready.wait()
        freeze_garbage_collector()
        connection.send(ReadyMessage())


async def _fail_when_closed(transport: FramedTransport) -> None:
    why = await transport.wait_closed()
    raise ConnectionBrokenError(why or "the server closed it")


def main() -> int:
    """Run until the control socket ends."""
    # Whoever interrupts only this process does not want a traceback; it is started again.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with build_runner() as runner:
            runner.run(run_components(socket.socket(fileno=int(sys.argv[1]))))
    except ConnectionBrokenError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
