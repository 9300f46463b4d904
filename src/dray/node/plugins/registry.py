"""Which drivers are on this node: they register by a socket in a directory, and go when it goes.

Theory of operation: the directory is looked at again and again. A socket that appears is an instance that
wants to register: it is asked who it is, judged, told what became of it, and from then on it is a line. What
fails is tried again after a wait that grows. A socket file belongs to one listener for good, so when nobody
listens at one for the grace time, it is left alone until the file is another.

Two instances of one driver may be there at once, as in a rolling update. The newest that can be reached
answers, the older ones stand by until their sockets go. When the last one is away for the grace time, the
driver has gone, and its slices are withdrawn; whoever comes back earlier is as if it had never been away.

Rules for this file: what a registration must say is judged in `offers`, and calls for claims go over `lines`.
Each socket has a task of its own, so that a driver that does not answer keeps nobody waiting but itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from dray.client.errors import ClientError
from dray.client.timing import Backoff, TimeSource
from dray.node import agent_metrics
from dray.node.plugins import driver_client, registration_validation
from dray.node.plugins.driver_client import DriverCallOptions, PluginRegistration
from dray.node.plugins.driver_interface import DriverClient
from dray.node.plugins.driver_replies import describe_error
from dray.node.plugins.registration_validation import RegistrationRefusal
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.wire import unix_sockets
from dray.wire.grpc_services import REGISTRATION, GrpcStub, UnreadableReplyError

READY: Final = grpc.ChannelConnectivity.READY
TRANSIENT_FAILURE: Final = grpc.ChannelConnectivity.TRANSIENT_FAILURE

Listener = Callable[[str], None]


async def _withdraw_nothing(_driver: str) -> None:
    """Withdraw nothing."""


@dataclass(frozen=True, slots=True)
class PluginRegistryOptions:
    """Where drivers register, and how patient we are with them."""

    directory: Path
    endpoint_directories: tuple[Path, ...] = ()
    """Directories in which a driver may answer; anywhere when empty."""
    poll_seconds: float = 0.5
    grace: float = 30.0
    """Seconds that a driver may be away before its slices are withdrawn."""
    timeout: float = 5.0
    """Seconds in which a driver must say who it is."""
    retry: tuple[float, float] = (0.5, 60.0)
    """The first and the longest wait between two attempts to register."""


class _SocketIdentity(NamedTuple):
    """What makes a socket file the same one."""

    device: int
    inode: int
    modified: int


@dataclass(slots=True)
class _PluginInstance:
    """A driver that is registered, by one of its sockets."""

    registration: PluginRegistration
    channel: Any
    client: DriverClient
    order: int
    unreachable_since: float | None = None


@dataclass(slots=True)
class _PluginSocket:
    """A socket in the directory: the task that registers it, and what became of it."""

    path: Path
    file: _SocketIdentity
    task: asyncio.Task[None] | None = None
    instance: _PluginInstance | None = None
    attempted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it was tried once."""
    last_logged: str = ""
    """What the log was told last about it."""


class PluginRegistry:
    """The drivers of this node."""

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
        """When drivers that have no instance will have gone."""
        self._listeners: list[tuple[Listener | None, Listener | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._order = 0
        self.ready = asyncio.Event()
        """Set when everybody who was there at the start has been asked once."""
        self._metrics.add_callback(agent_metrics.DRIVERS, lambda: [((), len(self.list_drivers()))])

    # Who is there.

    def list_drivers(self) -> Mapping[str, DriverClient]:
        """The line of each driver by its name."""
        chosen = {
            each.registration.name: each.client for each in sorted(self._list_instances(), key=_rank_instance)
        }
        return dict(sorted(chosen.items()))

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None:
        """The line to a driver; None when it is not registered. `classic` asks for one of the protocols."""
        found = [each for each in self._list_instances() if each.registration.name == name]
        if classic is not None:
            found = [each for each in found if each.registration.classic == classic]
        return max(found, key=_rank_instance).client if found else None

    def add_listener(self, on_registered: Listener | None = None, on_removed: Listener | None = None) -> None:
        """Be told when a driver has registered, and when it has gone for good."""
        self._listeners.append((on_registered, on_removed))

    def expect_drivers(self, names: Iterable[str]) -> None:
        """Drivers that should be here, because they have slices; those that do not come have gone."""
        here = {each.registration.name for each in self._list_instances()}
        for name in set(names) - here:
            self._expiry_times.setdefault(name, self._get_time() + self._options.grace)

    def _list_instances(self) -> list[_PluginInstance]:
        return [each.instance for each in self._sockets.values() if each.instance is not None]

    def _get_time(self) -> float:
        return self._time_source.clock.monotonic()

    # Looking.

    async def run(self) -> None:
        """Look at the directory until cancelled."""
        unix_sockets.secure_socket_directory(self._options.directory)
        try:
            self.sync()
            for entrance in tuple(self._sockets.values()):
                await entrance.attempted.wait()
            self.ready.set()
            while True:
                await self._time_source.sleep(self._options.poll_seconds)
                self.sync()
        finally:
            await self.close()

    def sync(self) -> None:
        """Look once: who came, who went, who cannot be reached any more."""
        found = self._scan_directory()
        for path, entrance in list(self._sockets.items()):
            if found.get(path) != entrance.file:
                del self._sockets[path]
                self._remove_socket(entrance)
        for path, file in found.items():
            if path not in self._sockets:
                entrance = self._sockets[path] = _PluginSocket(path, file)
                entrance.task = self._start_task(self._register(entrance))
        for entrance in self._sockets.values():
            self._check_connection(entrance)
        self._expire_drivers()

    def _scan_directory(self) -> dict[Path, _SocketIdentity]:
        """The files in the directory that could be sockets of drivers, oldest first."""
        found: list[tuple[Path, _SocketIdentity]] = []
        try:
            with os.scandir(self._options.directory) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        seen = entry.stat(follow_symlinks=False)
                        file = _SocketIdentity(seen.st_dev, seen.st_ino, seen.st_mtime_ns)
                        found.append((Path(entry.path), file))
        except OSError as failed:
            self._log.warning("the directory of registrations cannot be read", error=failed)
            return {path: each.file for path, each in self._sockets.items()}
        return dict(sorted(found, key=lambda each: (each[1].modified, each[0])))

    def _check_connection(self, plugin_socket: _PluginSocket) -> None:
        """Notice when an instance cannot be reached any more, and let go of one that stays away."""
        instance = plugin_socket.instance
        if instance is None:
            return
        # Asking also wakes a connection that fell asleep.
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
            plugin_socket, "a driver cannot be reached and is let go", driver=instance.registration.name
        )
        self._unregister(plugin_socket, self._get_time())
        plugin_socket.task = self._start_task(self._register(plugin_socket))

    def _remove_socket(self, plugin_socket: _PluginSocket) -> None:
        """A socket has gone, or another one is in its place."""
        if plugin_socket.task is not None:
            plugin_socket.task.cancel()
        if plugin_socket.instance is not None:
            self._log.info("a driver has unregistered", driver=plugin_socket.instance.registration.name)
            self._unregister(plugin_socket, self._get_time() + self._options.grace)

    def _unregister(self, plugin_socket: _PluginSocket, expires_at: float) -> None:
        instance, plugin_socket.instance = plugin_socket.instance, None
        assert instance is not None
        # Calls that are under way may end; each has its own time.
        self._start_task(instance.channel.close(self._call_options.timeout))
        if all(each.registration.name != instance.registration.name for each in self._list_instances()):
            self._expiry_times[instance.registration.name] = expires_at

    def _expire_drivers(self) -> None:
        """Tell of the drivers that have been away for too long."""
        for name in [name for name, gone_at in self._expiry_times.items() if gone_at <= self._get_time()]:
            del self._expiry_times[name]
            self._log.warning("a driver has gone; its slices are withdrawn", driver=name)
            self._metrics.count(agent_metrics.WITHDRAWALS)
            self._start_task(self._withdraw_slices(name))
            for _, went in self._listeners:
                if went is not None:
                    went(name)

    async def _withdraw_slices(self, name: str) -> None:
        """Have the slices of a driver withdrawn, unless it comes back meanwhile."""
        backoff = Backoff(self._time_source, initial=self._options.retry[0], maximum=self._options.retry[1])
        withdrawn = False
        while not withdrawn and self.find_driver(name) is None:
            try:
                await self._withdraw(name)
                withdrawn = True
            except ClientError as failed:
                self._log.warning("slices could not be withdrawn; again later", driver=name, error=failed)
                await backoff.wait()

    # Registering.

    async def _register(self, plugin_socket: _PluginSocket) -> None:
        """Try to register whoever listens at a socket, until that works or nobody does."""
        began = self._get_time()
        backoff = Backoff(self._time_source, initial=self._options.retry[0], maximum=self._options.retry[1])
        try:
            async with unix_sockets.open_channel(plugin_socket.path) as channel:
                while await self._fails_to_register(plugin_socket, channel):
                    plugin_socket.attempted.set()
                    if channel.get_state() != READY and self._get_time() - began >= self._options.grace:
                        self._log_once(
                            plugin_socket, "nobody listens at a socket; it is left alone until it is replaced"
                        )
                        return
                    await backoff.wait()
        finally:
            plugin_socket.attempted.set()

    async def _fails_to_register(self, plugin_socket: _PluginSocket, channel: Any) -> bool:
        """Try once; whether it did not work."""
        wrong = registration_validation.check_socket(plugin_socket.path) or await self._handshake(
            plugin_socket, channel
        )
        if isinstance(wrong, _PluginInstance):
            self._accept(plugin_socket, wrong)
            return False
        text = wrong.text if isinstance(wrong, RegistrationRefusal) else wrong
        self._log_once(plugin_socket, "a driver could not register", reason=text)
        self._metrics.count_registration("refused" if isinstance(wrong, RegistrationRefusal) else "failed")
        return True

    async def _handshake(
        self, plugin_socket: _PluginSocket, channel: Any
    ) -> _PluginInstance | RegistrationRefusal | str:
        """Ask, judge and tell; or why that did not work."""
        stub = GrpcStub(channel, REGISTRATION)
        said = await self._call(stub, "GetInfo", REGISTRATION.get_message_class("InfoRequest")())
        if isinstance(said, str):
            return said
        if _identify_socket(plugin_socket.path) != plugin_socket.file:
            # Whoever answered sits at another socket; that one gets an entrance of its own.
            return "its socket was replaced"
        offer = registration_validation.validate_registration(
            said, plugin_socket.path, self._options.endpoint_directories
        )
        if isinstance(offer, RegistrationRefusal):
            await self._notify_status(stub, offer.text)
            return offer
        instance, welcome = self._connect(offer), False
        try:
            wrong = await self._check_reachable(instance)
            wrong = await self._notify_status(stub, wrong) or wrong
            welcome = not wrong
        finally:
            if not welcome:
                await instance.channel.close()
        return wrong or instance

    def _connect(self, registration: PluginRegistration) -> _PluginInstance:
        self._order += 1
        channel = unix_sockets.open_channel(registration.endpoint)
        return _PluginInstance(
            registration,
            channel,
            driver_client.build_driver_client(registration, channel, self._call_options),
            self._order,
        )

    async def _check_reachable(self, instance: _PluginInstance) -> str:
        try:
            async with asyncio.timeout(self._options.timeout):
                await instance.channel.channel_ready()
        except TimeoutError:
            return (
                f"driver `{instance.registration.name}` does not listen at its endpoint "
                f"`{instance.registration.endpoint}`"
            )
        return ""

    def _accept(self, plugin_socket: _PluginSocket, instance: _PluginInstance) -> None:
        name = instance.registration.name
        plugin_socket.instance, plugin_socket.last_logged = instance, ""
        self._expiry_times.pop(name, None)
        self._metrics.count_registration("registered")
        spoken = ", ".join(service.name for service in instance.registration.services)
        self._log.info("a driver has registered", driver=name, socket=plugin_socket.path.name, speaks=spoken)
        for came, _ in self._listeners:
            if came is not None:
                came(name)

    async def _notify_status(self, stub: GrpcStub, error: str) -> str:
        """Tell a driver what became of its registration; why that did not work, or nothing."""
        status = REGISTRATION.get_message_class("RegistrationStatus")(
            plugin_registered=not error, error=error
        )
        answer = await self._call(stub, "NotifyRegistrationStatus", status)
        return answer if isinstance(answer, str) else ""

    async def _call(self, stub: GrpcStub, method: str, request: Any) -> Any:
        """The answer, or why there is none."""
        try:
            return await stub.call(method, request, timeout=self._options.timeout)
        except grpc.aio.AioRpcError as failed:
            return f"{method}: {describe_error(failed.details() or '')} ({failed.code().name})"
        except UnreadableReplyError as nonsense:
            return str(nonsense)

    def _log_once(self, plugin_socket: _PluginSocket, message: str, **fields: Any) -> None:
        """Log something about a socket, once until it changes."""
        said = f"{message} {fields}"
        if said != plugin_socket.last_logged:
            plugin_socket.last_logged = said
            self._log.warning(message, socket=str(plugin_socket.path), **fields)

    # Ending.

    def _start_task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)
        return task

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (broken := task.exception()) is not None:
            self._log.error("work on drivers failed", error=broken)

    async def close(self) -> None:
        """Close all lines; calls that are under way end as unanswered. Nobody's slices are withdrawn."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for entrance in self._sockets.values():
            if entrance.instance is not None:
                await entrance.instance.channel.close()
        self._sockets.clear()


def _identify_socket(path: Path) -> _SocketIdentity | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return _SocketIdentity(seen.st_dev, seen.st_ino, seen.st_mtime_ns)


def _rank_instance(instance: _PluginInstance) -> tuple[bool, int]:
    """Who answers when several could: one that can be reached, and of those the newest."""
    return (instance.unreachable_since is None, instance.order)
