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
from dray.client.timing import Backoff, Tempo
from dray.node import agent_metrics
from dray.node.plugins import driver_client, registration_validation
from dray.node.plugins.driver_client import Habits, Offer
from dray.node.plugins.driver_interface import DriverLine
from dray.node.plugins.driver_replies import cause
from dray.node.plugins.registration_validation import Refused
from dray.telemetry.logs import Log, silent
from dray.wire import unix_sockets
from dray.wire.grpc_services import REGISTRATION, Stub, Unreadable

READY: Final = grpc.ChannelConnectivity.READY
FAILING: Final = grpc.ChannelConnectivity.TRANSIENT_FAILURE

Listener = Callable[[str], None]


async def _stay(_driver: str) -> None:
    """Withdraw nothing."""


@dataclass(frozen=True, slots=True)
class Doorway:
    """Where drivers register, and how patient we are with them."""

    directory: Path
    endpoints: tuple[Path, ...] = ()
    """Directories in which a driver may answer; anywhere when empty."""
    poll: float = 0.5
    grace: float = 30.0
    """Seconds that a driver may be away before its slices are withdrawn."""
    patience: float = 5.0
    """Seconds in which a driver must say who it is."""
    retry: tuple[float, float] = (0.5, 60.0)
    """The first and the longest wait between two attempts to register."""


class _File(NamedTuple):
    """What makes a socket file the same one."""

    device: int
    inode: int
    made: int


@dataclass(slots=True)
class _Instance:
    """A driver that is registered, by one of its sockets."""

    offer: Offer
    channel: Any
    line: DriverLine
    order: int
    away_since: float | None = None


@dataclass(slots=True)
class _Entrance:
    """A socket in the directory: the task that registers it, and what became of it."""

    path: Path
    file: _File
    task: asyncio.Task[None] | None = None
    instance: _Instance | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it was tried once."""
    said: str = ""
    """What the log was told last about it."""


class Registry:
    """The drivers of this node."""

    def __init__(
        self,
        doorway: Doorway,
        habits: Habits | None = None,
        *,
        log: Log | None = None,
        withdraw: Callable[[str], Awaitable[None]] = _stay,
    ) -> None:
        self._doorway = doorway
        self._habits = habits or Habits()
        self._tempo: Tempo = self._habits.tempo
        self._metrics = self._habits.metrics
        self._log = log or silent()
        self._withdraw = withdraw
        self._entrances: dict[Path, _Entrance] = {}
        self._away: dict[str, float] = {}
        """When drivers that have no instance will have gone."""
        self._listeners: list[tuple[Listener | None, Listener | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._order = 0
        self.ready = asyncio.Event()
        """Set when everybody who was there at the start has been asked once."""
        self._metrics.ask(agent_metrics.DRIVERS, lambda: [((), len(self.drivers()))])

    # Who is there.

    def drivers(self) -> Mapping[str, DriverLine]:
        """The line of each driver by its name."""
        chosen = {each.offer.name: each.line for each in sorted(self._instances(), key=_standing)}
        return dict(sorted(chosen.items()))

    def line(self, name: str, *, classic: bool | None = None) -> DriverLine | None:
        """The line to a driver; None when it is not registered. `classic` asks for one of the protocols."""
        found = [each for each in self._instances() if each.offer.name == name]
        if classic is not None:
            found = [each for each in found if each.offer.classic == classic]
        return max(found, key=_standing).line if found else None

    def listen(self, came: Listener | None = None, went: Listener | None = None) -> None:
        """Be told when a driver has registered, and when it has gone for good."""
        self._listeners.append((came, went))

    def expect(self, names: Iterable[str]) -> None:
        """Drivers that should be here, because they have slices; those that do not come have gone."""
        here = {each.offer.name for each in self._instances()}
        for name in set(names) - here:
            self._away.setdefault(name, self._now() + self._doorway.grace)

    def _instances(self) -> list[_Instance]:
        return [each.instance for each in self._entrances.values() if each.instance is not None]

    def _now(self) -> float:
        return self._tempo.clock.monotonic()

    # Looking.

    async def run(self) -> None:
        """Look at the directory until cancelled."""
        unix_sockets.claim_directory(self._doorway.directory)
        try:
            self.look()
            for entrance in tuple(self._entrances.values()):
                await entrance.asked.wait()
            self.ready.set()
            while True:
                await self._tempo.sleep(self._doorway.poll)
                self.look()
        finally:
            await self.close()

    def look(self) -> None:
        """Look once: who came, who went, who cannot be reached any more."""
        found = self._found()
        for path, entrance in list(self._entrances.items()):
            if found.get(path) != entrance.file:
                del self._entrances[path]
                self._leave(entrance)
        for path, file in found.items():
            if path not in self._entrances:
                entrance = self._entrances[path] = _Entrance(path, file)
                entrance.task = self._start(self._register(entrance))
        for entrance in self._entrances.values():
            self._check(entrance)
        self._bid_farewell()

    def _found(self) -> dict[Path, _File]:
        """The files in the directory that could be sockets of drivers, oldest first."""
        found: list[tuple[Path, _File]] = []
        try:
            with os.scandir(self._doorway.directory) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        seen = entry.stat(follow_symlinks=False)
                        file = _File(seen.st_dev, seen.st_ino, seen.st_mtime_ns)
                        found.append((Path(entry.path), file))
        except OSError as failed:
            self._log.warning("the directory of registrations cannot be read", error=failed)
            return {path: each.file for path, each in self._entrances.items()}
        return dict(sorted(found, key=lambda each: (each[1].made, each[0])))

    def _check(self, entrance: _Entrance) -> None:
        """Notice when an instance cannot be reached any more, and let go of one that stays away."""
        instance = entrance.instance
        if instance is None:
            return
        # Asking also wakes a connection that fell asleep.
        state = instance.channel.get_state(try_to_connect=True)
        if state == READY:
            instance.away_since = None
        elif state == FAILING and instance.away_since is None:
            instance.away_since = self._now()
        if instance.away_since is None or self._now() - instance.away_since < self._doorway.grace:
            return
        self._say(entrance, "a driver cannot be reached and is let go", driver=instance.offer.name)
        self._dismiss(entrance, self._now())
        entrance.task = self._start(self._register(entrance))

    def _leave(self, entrance: _Entrance) -> None:
        """A socket has gone, or another one is in its place."""
        if entrance.task is not None:
            entrance.task.cancel()
        if entrance.instance is not None:
            self._log.info("a driver has unregistered", driver=entrance.instance.offer.name)
            self._dismiss(entrance, self._now() + self._doorway.grace)

    def _dismiss(self, entrance: _Entrance, gone_at: float) -> None:
        instance, entrance.instance = entrance.instance, None
        assert instance is not None
        # Calls that are under way may end; each has its own time.
        self._start(instance.channel.close(self._habits.timeout))
        if all(each.offer.name != instance.offer.name for each in self._instances()):
            self._away[instance.offer.name] = gone_at

    def _bid_farewell(self) -> None:
        """Tell of the drivers that have been away for too long."""
        for name in [name for name, gone_at in self._away.items() if gone_at <= self._now()]:
            del self._away[name]
            self._log.warning("a driver has gone; its slices are withdrawn", driver=name)
            self._metrics.count(agent_metrics.WITHDRAWALS)
            self._start(self._withdrawn(name))
            for _, went in self._listeners:
                if went is not None:
                    went(name)

    async def _withdrawn(self, name: str) -> None:
        """Have the slices of a driver withdrawn, unless it comes back meanwhile."""
        backoff = Backoff(self._tempo, first=self._doorway.retry[0], longest=self._doorway.retry[1])
        withdrawn = False
        while not withdrawn and self.line(name) is None:
            try:
                await self._withdraw(name)
                withdrawn = True
            except ClientError as failed:
                self._log.warning("slices could not be withdrawn; again later", driver=name, error=failed)
                await backoff.wait()

    # Registering.

    async def _register(self, entrance: _Entrance) -> None:
        """Try to register whoever listens at a socket, until that works or nobody does."""
        began = self._now()
        backoff = Backoff(self._tempo, first=self._doorway.retry[0], longest=self._doorway.retry[1])
        try:
            async with unix_sockets.channel(entrance.path) as channel:
                while await self._refused(entrance, channel):
                    entrance.asked.set()
                    if channel.get_state() != READY and self._now() - began >= self._doorway.grace:
                        self._say(
                            entrance, "nobody listens at a socket; it is left alone until it is replaced"
                        )
                        return
                    await backoff.wait()
        finally:
            entrance.asked.set()

    async def _refused(self, entrance: _Entrance, channel: Any) -> bool:
        """Try once; whether it did not work."""
        wrong = registration_validation.unfit(entrance.path) or await self._attempt(entrance, channel)
        if isinstance(wrong, _Instance):
            self._welcome(entrance, wrong)
            return False
        text = wrong.text if isinstance(wrong, Refused) else wrong
        self._say(entrance, "a driver could not register", reason=text)
        self._metrics.registered("refused" if isinstance(wrong, Refused) else "failed")
        return True

    async def _attempt(self, entrance: _Entrance, channel: Any) -> _Instance | Refused | str:
        """Ask, judge and tell; or why that did not work."""
        stub = Stub(channel, REGISTRATION)
        said = await self._call(stub, "GetInfo", REGISTRATION.message("InfoRequest")())
        if isinstance(said, str):
            return said
        if _file(entrance.path) != entrance.file:
            # Whoever answered sits at another socket; that one gets an entrance of its own.
            return "its socket was replaced"
        offer = registration_validation.judged(said, entrance.path, self._doorway.endpoints)
        if isinstance(offer, Refused):
            await self._tell(stub, offer.text)
            return offer
        instance, welcome = self._met(offer), False
        try:
            wrong = await self._unreachable(instance)
            wrong = await self._tell(stub, wrong) or wrong
            welcome = not wrong
        finally:
            if not welcome:
                await instance.channel.close()
        return wrong or instance

    def _met(self, offer: Offer) -> _Instance:
        self._order += 1
        channel = unix_sockets.channel(offer.endpoint)
        return _Instance(offer, channel, driver_client.line(offer, channel, self._habits), self._order)

    async def _unreachable(self, instance: _Instance) -> str:
        try:
            async with asyncio.timeout(self._doorway.patience):
                await instance.channel.channel_ready()
        except TimeoutError:
            return (
                f"driver `{instance.offer.name}` does not listen at its endpoint `{instance.offer.endpoint}`"
            )
        return ""

    def _welcome(self, entrance: _Entrance, instance: _Instance) -> None:
        name = instance.offer.name
        entrance.instance, entrance.said = instance, ""
        self._away.pop(name, None)
        self._metrics.registered("registered")
        spoken = ", ".join(service.name for service in instance.offer.services)
        self._log.info("a driver has registered", driver=name, socket=entrance.path.name, speaks=spoken)
        for came, _ in self._listeners:
            if came is not None:
                came(name)

    async def _tell(self, stub: Stub, wrong: str) -> str:
        """Tell a driver what became of its registration; why that did not work, or nothing."""
        status = REGISTRATION.message("RegistrationStatus")(plugin_registered=not wrong, error=wrong)
        answer = await self._call(stub, "NotifyRegistrationStatus", status)
        return answer if isinstance(answer, str) else ""

    async def _call(self, stub: Stub, method: str, request: Any) -> Any:
        """The answer, or why there is none."""
        try:
            return await stub.call(method, request, timeout=self._doorway.patience)
        except grpc.aio.AioRpcError as failed:
            return f"{method}: {cause(failed.details() or '')} ({failed.code().name})"
        except Unreadable as nonsense:
            return str(nonsense)

    def _say(self, entrance: _Entrance, what: str, **fields: Any) -> None:
        """Log something about a socket, once until it changes."""
        said = f"{what} {fields}"
        if said != entrance.said:
            entrance.said = said
            self._log.warning(what, socket=str(entrance.path), **fields)

    # Ending.

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (broken := task.exception()) is not None:
            self._log.error("work on drivers failed", error=broken)

    async def close(self) -> None:
        """Close all lines; calls that are under way end as unanswered. Nobody's slices are withdrawn."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for entrance in self._entrances.values():
            if entrance.instance is not None:
                await entrance.instance.channel.close()
        self._entrances.clear()


def _file(path: Path) -> _File | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return _File(seen.st_dev, seen.st_ino, seen.st_mtime_ns)


def _standing(instance: _Instance) -> tuple[bool, int]:
    """Who answers when several could: one that can be reached, and of those the newest."""
    return (instance.away_since is None, instance.order)
