"""The sockets of a driver's process: one process per path, and a socket that disappears is made again.

Theory of operation: a process locks a file beside its endpoint before it touches a socket, and the kernel
releases the lock when the process ends. So a second copy of a driver that would use the same paths waits for
a while, because the first may be about to end, and then refuses to start. Instances of a rolling update have
paths and locks of their own.

A gRPC server removes the path that it has bound when it stops, whatever is there by then. So a server binds
a hidden name in the same directory and the socket is then renamed: it appears only when it can be connected
to, with its final mode, and this module alone decides whether to remove it. A socket is this process's own as
long as its inode is the one that was bound. A socket that was removed is served again by a new server, and
the one that lost its path ends its calls and stops.

Rules for this file: only paths, locks and servers; `grpc_servers` has the messages.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dray.driver.service.grpc_servers import DriverSockets, RegistrationServer
from dray.durable import FileLock
from dray.errors import InputError
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger
from dray.wire.unix_sockets import format_grpc_target, remove_stale_socket, secure_socket_directory

SHUTDOWN_GRACE_SECONDS: Final = 5.0
"""For how long calls in progress may go on when the driver ends."""
TAKE_OVER_SECONDS: Final = 20.0
"""For how long a process waits for another one at its sockets to end. One that was told to may take its grace
period three times: for each socket, and for claims it works on.
"""
_POLL_SECONDS: Final = 0.1
_SERVER_OPTIONS: Final = (("grpc.so_reuseport", 0),)
_REGISTRATION_THREADS: Final = 2
"""One for a caller that sends its request slowly, one for the next."""


def _build_loop_server() -> Any:
    """Build a gRPC server that runs in the event loop."""
    return grpc.aio.server(options=_SERVER_OPTIONS)


class _ThreadedServer:
    """A gRPC server with threads of its own, in the form of one of the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_REGISTRATION_THREADS, thread_name_prefix="registration-")
        self._server = grpc.server(self._threads, options=_SERVER_OPTIONS)
        self.add_generic_rpc_handlers = self._server.add_generic_rpc_handlers
        self.add_insecure_port = self._server.add_insecure_port

    async def start(self) -> None:
        self._server.start()

    async def stop(self, grace: float) -> None:
        await asyncio.to_thread(self._server.stop(grace).wait)
        self._threads.shutdown(wait=False)


class ServedSocket:
    """A socket that a gRPC server of this process listens on."""

    def __init__(self, path: Path, rpc_handlers: Iterable[Any], build_server: Callable[[], Any]) -> None:
        self.path = path
        self._build_server = build_server
        self._rpc_handlers = tuple(rpc_handlers)
        self._server: Any = None
        self._inode = (0, 0)
        self._stopping: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; raises `InputError` when that is not possible. A server that lost the path is stopped."""
        secure_socket_directory(self.path.parent)
        remove_stale_socket(self.path)
        server = self._build_server()
        server.add_generic_rpc_handlers(self._rpc_handlers)
        # Not longer than the shortest name of a socket, so that it fits wherever that does.
        hidden = self.path.with_name(f".{secrets.token_hex(3)}")
        try:
            server.add_insecure_port(format_grpc_target(hidden))
        except RuntimeError as refused:
            raise InputError(
                f"cannot listen on the socket `{self.path}`: {_explain_bind_failure(self.path, refused)}"
            ) from None
        await server.start()
        hidden.chmod(0o600)
        self._inode = _read_inode(hidden)
        hidden.replace(self.path)
        lost, self._server = self._server, server
        if lost is not None:
            task = asyncio.create_task(lost.stop(SHUTDOWN_GRACE_SECONDS))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def is_own(self) -> bool:
        """Whether the path still leads to this process."""
        try:
            return _read_inode(self.path) == self._inode
        except OSError:
            return False

    async def close(self) -> None:
        """Stop, and remove the socket if it is this process's own."""
        if self.is_own():
            self.path.unlink(missing_ok=True)
        if self._server is not None:
            await self._server.stop(SHUTDOWN_GRACE_SECONDS)
        if self._stopping:
            await asyncio.wait(self._stopping)


class DriverSocketServer:
    """Serves the sockets of one process of a driver, and restores them."""

    def __init__(
        self,
        driver: str,
        paths: DriverSockets,
        registration: RegistrationServer,
        rpc_handlers: Iterable[Any],
        log: StructuredLogger,
    ) -> None:
        self._driver, self._registration, self._log = driver, registration, log
        self._endpoint = ServedSocket(paths.endpoint, rpc_handlers, _build_loop_server)
        self._registry_socket = ServedSocket(paths.registration, [registration.rpc_handler], _ThreadedServer)
        self.fault = ""
        """Why agents cannot reach this process; empty when they can."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve while the context is open: the services first, so that they answer once registered."""
        async with AsyncExitStack() as stack:
            for each in (self._endpoint, self._registry_socket):
                stack.push_async_callback(each.close)
                await each.open()
            yield

    async def check(self) -> None:
        """Serve sockets again that were removed, and note a fault when that is not possible."""
        faults = []
        for each in (self._endpoint, self._registry_socket):
            if each.is_own():
                continue
            if each is self._registry_socket:
                self._registration.accepted.clear()  # agents unregister a driver whose socket is gone
            faults.append(await self._restore(each))
        fault = "; ".join(filter(None, faults))
        if fault and fault != self.fault:
            self._log.error("agents cannot reach the driver", driver=self._driver, why=fault)
        self.fault = fault

    async def _restore(self, lost: ServedSocket) -> str:
        """Serve a socket again; returns why that is not possible, or nothing."""
        if has_listener(lost.path):
            return f"another process serves the socket `{lost.path}`"
        try:
            await lost.open()
        except (InputError, OSError) as refused:
            return f"the socket `{lost.path}` is gone: {refused}"
        self._log.warning("a socket was removed and is served again", driver=self._driver, socket=lost.path)
        return ""


@asynccontextmanager
async def own_socket_paths(driver: str, paths: DriverSockets, log: StructuredLogger) -> AsyncIterator[None]:
    """Let no other process use these paths while the context is open, and remove what dead ones left.

    Raises `InputError` when another process uses them and does not end soon.
    """
    for each in (paths.endpoint, paths.registration):
        secure_socket_directory(each.parent)
    file = paths.endpoint.with_name(f"{paths.endpoint.name}.lock")
    lock = await _acquire_lock(file, driver, paths, log)
    try:
        _remove_dead_sockets(driver, paths, log)
        yield
    finally:
        file.unlink(missing_ok=True)
        lock.release()


async def _acquire_lock(file: Path, driver: str, paths: DriverSockets, log: StructuredLogger) -> FileLock:
    loop = asyncio.get_running_loop()
    deadline, lock = loop.time() + TAKE_OVER_SECONDS, FileLock.try_acquire(file)
    change_log = ChangeLogger(log)
    # A process of an earlier version has no lock.
    while lock is None or has_listener(paths.endpoint) or has_listener(paths.registration):
        if loop.time() >= deadline:
            if lock is not None:
                lock.release()
            raise InputError(
                f"another process of driver `{driver}` serves the socket `{paths.endpoint}` already; stop it "
                "first, or give each of the two an `--instance` of its own"
            )
        message = "waiting for another process of the driver to end"
        change_log.report("lock", LogLevel.INFO, message, driver=driver, socket=paths.endpoint)
        await asyncio.sleep(_POLL_SECONDS)
        lock = lock or FileLock.try_acquire(file)
    return lock


def _remove_dead_sockets(driver: str, paths: DriverSockets, log: StructuredLogger) -> None:
    """Remove sockets of other instances that were killed; agents would try to register them for ever."""
    found = (*paths.endpoint.parent.glob("*.sock"), *paths.registration.parent.glob(f"{driver}-*reg.sock"))
    for path in found:
        if path.is_socket() and path not in (paths.endpoint, paths.registration) and not has_listener(path):
            path.unlink(missing_ok=True)
            log.info("removed a socket without a process", driver=driver, socket=path)


def has_listener(path: Path) -> bool:
    """Whether a process listens on the socket at a path; True when that cannot be told."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _read_inode(path: Path) -> tuple[int, int]:
    seen = path.lstat()
    return seen.st_dev, seen.st_ino


def _explain_bind_failure(path: Path, refused: RuntimeError) -> str:
    try:
        writable = os.access(path.parent, os.W_OK)
    except OSError:
        writable = False
    return str(refused) if writable else f"its directory `{path.parent}` cannot be written to"
