"""The plugin registry of a node: drivers register through sockets in a directory.

Theory of operation: the registry polls the directory. A new socket is an instance that wants to register: the
registry performs the handshake and from then on has a client for it. Failed attempts are repeated after
growing delays. A socket file belongs to one listener, so one at which no process listens for the grace period
is ignored until the file is replaced.

Two instances of one driver may be registered at once, as in a rolling update. The newest reachable one is
called, the older ones stand by until their sockets are removed. When the last one is away for the grace
period, the driver is removed and its slices are withdrawn; one that returns earlier has lost nothing.

Rules for this file: `handshake` and `registration_validation` decide on a registration, and `driver_client`
makes the calls for claims. Each socket has its own task, so that a hanging driver delays only itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from dray.client.errors import ClientError
from dray.client.timing import Backoff, TimeSource
from dray.node import agent_metrics
from dray.node.plugins.driver_client import DriverCallOptions
from dray.node.plugins.driver_interface import DriverClient
from dray.node.plugins.handshake import PluginHandshake, PluginInstance, SocketIdentity
from dray.node.plugins.registration_validation import RegistrationRefusal
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.wire import unix_sockets

READY: Final = grpc.ChannelConnectivity.READY
TRANSIENT_FAILURE: Final = grpc.ChannelConnectivity.TRANSIENT_FAILURE

Listener = Callable[[str], None]


async def _withdraw_nothing(_driver: str) -> None:
    """Withdraw nothing."""


@dataclass(frozen=True, slots=True)
class PluginRegistryOptions:
    """Where drivers register, and how long the registry waits for them."""

    directory: Path
    endpoint_directories: tuple[Path, ...] = ()
    """Directories in which a driver's endpoint may lie; any when empty."""
    poll_seconds: float = 0.5
    grace: float = 30.0
    """Seconds that a driver may be away before its slices are withdrawn."""
    timeout: float = 5.0
    """Time limit of each call in a handshake, in seconds."""
    retry: tuple[float, float] = (0.5, 60.0)
    """The first and the longest delay between two attempts to register."""


@dataclass(slots=True)
class _PluginSocket:
    """A socket in the directory, the task that registers it, and its instance."""

    path: Path
    identity: SocketIdentity
    task: asyncio.Task[None] | None = None
    instance: PluginInstance | None = None
    attempted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first attempt to register."""
    last_logged: str = ""
    """The last log message about it."""


class PluginRegistry:
    """The registered drivers of this node."""

    def __init__(
        self,
        options: PluginRegistryOptions,
        call_options: DriverCallOptions | None = None,
        *,
        log: StructuredLogger | None = None,
        withdraw: Callable[[str], Awaitable[None]] = _withdraw_nothing,
    ) -> None:
        self._options = options
        self._call_options = call_options or DriverCallOptions()
        self._time_source: TimeSource = self._call_options.time_source
        self._metrics = self._call_options.metrics
        self._log = log or build_silent_logger()
        self._withdraw = withdraw
        self._sockets: dict[Path, _PluginSocket] = {}
        self._expiry_times: dict[str, float] = {}
        """When drivers without an instance are removed."""
        self._listeners: list[tuple[Listener | None, Listener | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshake = PluginHandshake(options.timeout, options.endpoint_directories, self._call_options)
        self.ready = asyncio.Event()
        """Set after the first attempt to register each socket found at the start."""
        self._metrics.add_callback(agent_metrics.DRIVERS, lambda: [((), len(self.list_drivers()))])

    # --- registered drivers ---

    def list_drivers(self) -> Mapping[str, DriverClient]:
        """Return the client of each driver by name."""
        chosen = {
            each.registration.name: each.client for each in sorted(self._list_instances(), key=_rank_instance)
        }
        return dict(sorted(chosen.items()))

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None:
        """Return the client of a driver; None when it is not registered. `classic` selects a protocol."""
        found = [each for each in self._list_instances() if each.registration.name == name]
        if classic is not None:
            found = [each for each in found if each.registration.classic == classic]
        return max(found, key=_rank_instance).client if found else None

    def add_listener(self, on_registered: Listener | None = None, on_removed: Listener | None = None) -> None:
        """Call back with a driver's name when it has registered, and when it is removed."""
        self._listeners.append((on_registered, on_removed))

    def expect_drivers(self, names: Iterable[str]) -> None:
        """Expect drivers that have slices; those that do not register in the grace period are removed."""
        registered = {each.registration.name for each in self._list_instances()}
        for name in set(names) - registered:
            self._expiry_times.setdefault(name, self._get_time() + self._options.grace)

    def _list_instances(self) -> list[PluginInstance]:
        return [each.instance for each in self._sockets.values() if each.instance is not None]

    def _get_time(self) -> float:
        return self._time_source.clock.monotonic()

    # --- the directory ---

    async def run(self) -> None:
        """Poll the directory until cancelled."""
        unix_sockets.secure_socket_directory(self._options.directory)
        try:
            self.sync()
            for plugin_socket in tuple(self._sockets.values()):
                await plugin_socket.attempted.wait()
            self.ready.set()
            while True:
                await self._time_source.sleep(self._options.poll_seconds)
                self.sync()
        finally:
            await self.close()

    def sync(self) -> None:
        """Scan once for new, removed and unreachable sockets."""
        found = self._scan_directory()
        for path, plugin_socket in list(self._sockets.items()):
            if found.get(path) != plugin_socket.identity:
                del self._sockets[path]
                self._remove_socket(plugin_socket)
        for path, identity in found.items():
            if path not in self._sockets:
                plugin_socket = self._sockets[path] = _PluginSocket(path, identity)
                plugin_socket.task = self._start_task(self._register(plugin_socket))
        for plugin_socket in self._sockets.values():
            self._check_connection(plugin_socket)
        self._expire_drivers()

    def _scan_directory(self) -> dict[Path, SocketIdentity]:
        """Return the files in the directory that could be sockets of drivers, oldest first."""
        found: list[tuple[Path, SocketIdentity]] = []
        try:
            with os.scandir(self._options.directory) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        stat = entry.stat(follow_symlinks=False)
                        identity = SocketIdentity(stat.st_dev, stat.st_ino, stat.st_mtime_ns)
                        found.append((Path(entry.path), identity))
        except OSError as error:
            self._log.warning("the directory of registrations cannot be read", error=error)
            return {path: each.identity for path, each in self._sockets.items()}
        return dict(sorted(found, key=lambda each: (each[1].modified, each[0])))

    def _check_connection(self, plugin_socket: _PluginSocket) -> None:
        """Note when an instance becomes unreachable, and unregister it after the grace period."""
        instance = plugin_socket.instance
        if instance is None:
            return
        # This also reconnects an idle channel.
        state = instance.channel.get_state(try_to_connect=True)
        if state == READY:
            instance.unreachable_since = None
        elif state == TRANSIENT_FAILURE and instance.unreachable_since is None:
            instance.unreachable_since = self._get_time()
        if (
            instance.unreachable_since is None
            or self._get_time() - instance.unreachable_since < self._options.grace
        ):
            return
        self._log_once(
            plugin_socket, "a driver cannot be reached and is unregistered", driver=instance.registration.name
        )
        self._unregister(plugin_socket, self._get_time())
        plugin_socket.task = self._start_task(self._register(plugin_socket))

    def _remove_socket(self, plugin_socket: _PluginSocket) -> None:
        """Unregister the instance of a socket that was removed or replaced."""
        if plugin_socket.task is not None:
            plugin_socket.task.cancel()
        if plugin_socket.instance is not None:
            self._log.info("a driver has unregistered", driver=plugin_socket.instance.registration.name)
            self._unregister(plugin_socket, self._get_time() + self._options.grace)

    def _unregister(self, plugin_socket: _PluginSocket, expires_at: float) -> None:
        instance, plugin_socket.instance = plugin_socket.instance, None
        assert instance is not None
        # Calls in progress may finish; each has its own time limit.
        self._start_task(instance.channel.close(self._call_options.timeout))
        if all(each.registration.name != instance.registration.name for each in self._list_instances()):
            self._expiry_times[instance.registration.name] = expires_at

    def _expire_drivers(self) -> None:
        """Remove the drivers that have been away for the grace period."""
        for name in [name for name, gone_at in self._expiry_times.items() if gone_at <= self._get_time()]:
            del self._expiry_times[name]
            self._log.warning("a driver has gone; its slices are withdrawn", driver=name)
            self._metrics.count(agent_metrics.WITHDRAWALS)
            self._start_task(self._withdraw_slices(name))
            for _, on_removed in self._listeners:
                if on_removed is not None:
                    on_removed(name)

    async def _withdraw_slices(self, name: str) -> None:
        """Withdraw the slices of a driver, unless it returns meanwhile."""
        backoff = Backoff(self._time_source, initial=self._options.retry[0], maximum=self._options.retry[1])
        withdrawn = False
        while not withdrawn and self.find_driver(name) is None:
            try:
                await self._withdraw(name)
                withdrawn = True
            except ClientError as error:
                self._log.warning("slices could not be withdrawn yet", driver=name, error=error)
                await backoff.wait()

    # --- registration ---

    async def _register(self, plugin_socket: _PluginSocket) -> None:
        """Try to register the plugin at a socket until that succeeds or no process listens there."""
        started = self._get_time()
        backoff = Backoff(self._time_source, initial=self._options.retry[0], maximum=self._options.retry[1])
        try:
            async with unix_sockets.open_channel(plugin_socket.path) as channel:
                while not await self._try_register(plugin_socket, channel):
                    plugin_socket.attempted.set()
                    if channel.get_state() != READY and self._get_time() - started >= self._options.grace:
                        self._log_once(
                            plugin_socket,
                            "no process listens at a socket; it is ignored until it is replaced",
                        )
                        return
                    await backoff.wait()
        finally:
            plugin_socket.attempted.set()

    async def _try_register(self, plugin_socket: _PluginSocket, channel: Any) -> bool:
        """Perform one handshake; return whether the plugin is registered."""
        outcome = await self._handshake.register(plugin_socket.path, plugin_socket.identity, channel)
        if isinstance(outcome, PluginInstance):
            self._accept(plugin_socket, outcome)
            return True
        refused = isinstance(outcome, RegistrationRefusal)
        reason = outcome.text if isinstance(outcome, RegistrationRefusal) else outcome
        self._log_once(plugin_socket, "a driver could not register", reason=reason)
        self._metrics.count_registration("refused" if refused else "failed")
        return False

    def _accept(self, plugin_socket: _PluginSocket, instance: PluginInstance) -> None:
        name = instance.registration.name
        plugin_socket.instance, plugin_socket.last_logged = instance, ""
        self._expiry_times.pop(name, None)
        self._metrics.count_registration("registered")
        services = ", ".join(service.name for service in instance.registration.services)
        self._log.info(
            "a driver has registered", driver=name, socket=plugin_socket.path.name, services=services
        )
        for on_registered, _ in self._listeners:
            if on_registered is not None:
                on_registered(name)

    def _log_once(self, plugin_socket: _PluginSocket, message: str, **fields: Any) -> None:
        """Log a message about a socket, once until it changes."""
        line = f"{message} {fields}"
        if line != plugin_socket.last_logged:
            plugin_socket.last_logged = line
            self._log.warning(message, socket=str(plugin_socket.path), **fields)

    # --- tasks ---

    def _start_task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)
        return task

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("a task of the plugin registry failed", error=error)

    async def close(self) -> None:
        """Close all connections; calls in progress end without a reply. No slices are withdrawn."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for plugin_socket in self._sockets.values():
            if plugin_socket.instance is not None:
                await plugin_socket.instance.channel.close()
        self._sockets.clear()


def _rank_instance(instance: PluginInstance) -> tuple[bool, int]:
    """Rank instances of one driver: reachable ones first, then the newest."""
    return (instance.unreachable_since is None, instance.order)
