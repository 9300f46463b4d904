"""How runtimes use keepers: start one per container, find them again, and learn how containers ended.

Theory of operation: everything about a container is in one directory named after it, so nothing has to be
remembered. A keeper lives when the process that `state` names started when `state` says, in this boot; its
end is awaited on the process itself, whoever started it. When it has ended without an `exit`, a second keeper
is sent to finish what the first could not.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dray.clock import Clock, SystemClock
from dray.node.containers.runtime.base import UNKNOWN, ContainerId, Exit, Found, Launch, NotStarted, Started
from dray.node.containers.runtime.shim import files, processes
from dray.node.containers.runtime.shim.program import END
from dray.node.containers.runtime.shim_spawner import Cradle
from dray.wire.unix_sockets import claim_directory, make_private

LOG_LIMIT: Final = 10 * 1024 * 1024
LOG_KEEP: Final = 2
_ABOUT: Final = "container.json"
_DRAFT: Final = ".orders"
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""Without `_`, which stands between the parts of an id."""
_ENDS_IN: Final = processes.ENDS_IN + 5.0
_FINISHES: Final = 20
_PAUSE: Final = 0.1


class About(msgspec.Struct, frozen=True):
    """What a keeper need not know about its container."""

    pod_name: str = ""
    namespace: str = ""


class _Line(NamedTuple):
    """A keeper that lives: its process, when that started, and when the container did."""

    pid: int
    start: int
    started_at: datetime


def errand(argv: Sequence[str], *, timeout: float | None = None, told: str = "errand.log") -> dict[str, Any]:
    """A program for a keeper to run."""
    env = {"PATH": os.defpath}
    return {"path": argv[0], "args": list(argv), "env": env, "timeout": timeout, "told": told}


class Keepers:
    """The keepers of a node's containers."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        claim_directory(directory)
        self._directory = directory
        self._clock = clock or SystemClock()
        self._starting: set[ContainerId] = set()
        self._cradle = Cradle()
        self._boot = files.boot_id().split()
        self._abouts: dict[ContainerId, About] = {}
        self._ended: dict[ContainerId, Exit] = {}

    def home(self, container: ContainerId) -> Path:
        """The directory of a container."""
        return self._directory / str(container)

    async def start(self, launch: Launch, orders: Mapping[str, Any]) -> Started | NotStarted:
        """Start a container whose directory was prepared with `prepare`."""
        container, home = launch.id, self.home(launch.id)
        about = About(pod_name=launch.pod_name, namespace=launch.namespace)
        self._starting.add(container)
        try:
            make_private(launch.log.parent)
            _private(home / _ABOUT, msgspec.json.encode(about))
            _private(home / _DRAFT, marshal.dumps({**_NOTHING, **orders, "log": str(launch.log)}))
            os.replace(home / _DRAFT, home / files.ORDERS)
            said = await _read(self._cradle.ask("keep", home))
        except OSError as failed:
            shutil.rmtree(home, ignore_errors=True)
            return NotStarted("CreateContainerError", f"cannot start the keeper of `{launch.name}`: {failed}")
        finally:
            self._starting.discard(container)
        if said or self._exit(container) is not None:
            return Started(container)
        last = _last_line(home / files.NOTES)
        await self.remove(container)
        return NotStarted("CreateContainerError", f"the keeper of `{launch.name}` ended at once: {last}")

    def prepare(self, launch: Launch) -> Path | Started | NotStarted:
        """Make the directory of a container that is not there yet."""
        for what, name, form in (("uid", launch.pod_uid, _UID), ("container", launch.name, _NAME)):
            if not form.fullmatch(name) or len(name) > 100:
                message = f"{what} `{name}`: expected letters, digits, `-` and `.`, not more than 100"
                return NotStarted("CreateContainerConfigError", message)
        home = self.home(launch.id)
        try:
            home.mkdir(mode=0o700)
        except FileExistsError:
            return Started(launch.id)
        except OSError as failed:
            return NotStarted("CreateContainerError", f"cannot make a directory for the container: {failed}")
        return home

    async def wait(self, container: ContainerId) -> Exit:
        """How a container ended, as soon as it did."""
        while self.home(container).is_dir():
            line = self._line(container)
            if line is not None:
                await _ended(line)
            elif container in self._starting:
                await asyncio.sleep(_PAUSE / 10)
            found = self._exit(container)
            if found is not None:
                return found
            if not await self._settle(container):
                return self._unknown("nobody could write down how the container ended")
        return self._unknown("there is no such container on this node")

    def _unknown(self, why: str) -> Exit:
        now = self._clock.now()
        return Exit(137, 0, UNKNOWN, now, now, why)

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """End a container, by force after a time."""
        while container in self._starting and self._line(container) is None:
            await asyncio.sleep(_PAUSE / 10)
        # Its keeper may be on the way, asked for by a start that was given up or an agent that was killed.
        await self._settle(container)
        for number, seconds in ((signal.SIGTERM, grace_seconds), (END, _ENDS_IN), (signal.SIGKILL, _ENDS_IN)):
            line = self._line(container)
            if line is None:
                break
            if seconds > 0 and _tell(line, number):
                _tell(line, signal.SIGCONT)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await _ended(line)
        await self._settle(container)

    async def running(self) -> tuple[Found, ...]:
        """All containers that are there."""
        found = [container for name in os.listdir(self._directory) if (container := _named(name))]
        answers = await asyncio.gather(*map(self._found, sorted(found)))
        return tuple(each for each in answers if each is not None)

    async def remove(self, container: ContainerId) -> None:
        """End a container and take its directory away."""
        home = self.home(container)
        self._abouts.pop(container, None)
        self._ended.pop(container, None)
        if home.is_dir():
            await self.stop(container, 0)
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    def trouble(self) -> str:
        """What keeps keepers from being started."""
        if not os.access(self._directory, os.W_OK | os.X_OK):
            return f"`{self._directory}`, where containers are kept, cannot be written"
        if not os.access(sys.executable, os.X_OK):
            return f"`{sys.executable}`, by which containers are kept, cannot be executed"
        return ""

    def close(self) -> None:
        """Let go of what this agent holds; keepers and their containers stay."""
        self._cradle.close()

    async def _found(self, container: ContainerId) -> Found | None:
        ended = self._ended.get(container)
        line = self._line(container) if ended is None else None
        if ended is None:
            settled = line is not None or container in self._starting or await self._settle(container)
            if not self.home(container).is_dir():
                return None
            line, ended = line or self._line(container), self._exit(container)
            if ended is None and not settled:
                ended = self._unknown("nobody could write down how the container ended")
            if ended is not None:
                self._ended[container] = ended
        about = self._about(container)
        # With neither it is only starting, or ends just now.
        started = ended.started_at if ended else line.started_at if line else self._clock.now()
        return Found(container, about.pod_name, about.namespace, started, ended)

    def _about(self, container: ContainerId) -> About:
        if container not in self._abouts:
            try:
                content = (self.home(container) / _ABOUT).read_bytes()
                self._abouts[container] = msgspec.json.decode(content, type=About)
            except (OSError, msgspec.DecodeError):
                return About()
        return self._abouts[container]

    async def _settle(self, container: ContainerId) -> bool:
        """See to it that a container runs with its keeper or has an exit; False when that cannot be."""
        home = self.home(container)
        for _ in range(_FINISHES):
            if container in self._starting or self._line(container) or not home.is_dir():
                return True
            if (home / files.EXIT).exists():
                return True
            if not (home / files.ORDERS).exists():
                # The agent was killed before it had written them: there never was a container.
                shutil.rmtree(home, ignore_errors=True)
                return True
            await _read(self._cradle.ask("finish", home))
            if not (home / files.EXIT).exists():
                # Somebody else is at it, or is only starting.
                await asyncio.sleep(_PAUSE)
        with contextlib.suppress(OSError):
            _private(home / files.EXIT, b"")
        return (home / files.EXIT).exists()

    def _line(self, container: ContainerId) -> _Line | None:
        state, _ = files.read_words(str(self.home(container) / files.STATE))
        try:
            pid, start = (int(word) for word in state["keeper"])
            started_at = _moment(state["started"])
            same_boot = state["boot"] == self._boot
        except (KeyError, ValueError, IndexError):
            return None
        found = processes.find(pid) if same_boot else None
        return _Line(pid, start, started_at) if found is not None and found[2] == start else None

    def _exit(self, container: ContainerId) -> Exit | None:
        path = self.home(container) / files.EXIT
        if not path.exists():
            return None
        words, message = files.read_words(str(path))
        try:
            code, number = int(words["code"][0]), int(words["signal"][0])
            started, finished = _moment(words["started"]), _moment(words["finished"])
            return Exit(code, number, words["reason"][0], started, finished, message)
        except (KeyError, ValueError, IndexError):
            return self._unknown(f"`{path}` does not say how the container ended")


_NOTHING: Final[dict[str, Any]] = {
    "argv": [],
    "env": {},
    "cwd": "/",
    "user": None,
    "group": None,
    "groups": None,
    "hooks": [],
    "hook_state": "{",
    "before": [],
    "create": None,
    "start": None,
    "pid_file": "",
    "after": [],
    "mark": "",
    "log_limit": LOG_LIMIT,
    "log_keep": LOG_KEEP,
}


class KeptContainers:
    """What every runtime does alike whose containers have a keeper: all but to start them."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._keepers = Keepers(directory, clock)

    async def wait(self, container: ContainerId) -> Exit:
        """How a container ended, as soon as it did."""
        return await self._keepers.wait(container)

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Ask a container's first process to end, and end all of it after a time."""
        await self._keepers.stop(container, grace_seconds)

    async def running(self) -> tuple[Found, ...]:
        """Every container that was started and not removed."""
        return await self._keepers.running()

    async def remove(self, container: ContainerId) -> None:
        """Forget a container."""
        await self._keepers.remove(container)

    async def trouble(self) -> str:
        """What keeps any container from being started."""
        return self._keepers.trouble()

    async def close(self) -> None:
        """Let go of what this agent holds; containers go on."""
        self._keepers.close()


def _private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _last_line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip().rpartition("\n")[2]
    except OSError as failed:
        return str(failed)


def _named(name: str) -> ContainerId | None:
    rest, _, attempt = name.rpartition("_")
    uid, _, container = rest.rpartition("_")
    return ContainerId(uid, container, int(attempt)) if uid and container and attempt.isdecimal() else None


def _moment(words: Sequence[str]) -> datetime:
    return datetime.fromtimestamp(float(words[0]), UTC)


def _tell(line: _Line, number: int) -> bool:
    """Send a signal to a keeper, and to nobody who got its pid since; False when it is gone."""
    try:
        descriptor = os.pidfd_open(line.pid)
    except ProcessLookupError:
        return False
    except OSError:
        descriptor = -1
    try:
        if not _lives(line):
            return False
        if descriptor < 0:
            os.kill(line.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True


async def _ended(line: _Line) -> None:
    """Wait until a keeper has ended."""
    try:
        descriptor = os.pidfd_open(line.pid)
    except ProcessLookupError:
        return
    except OSError:
        # A kernel that cannot tell; it has to be asked again and again.
        while _lives(line):
            await asyncio.sleep(_PAUSE)
        return
    try:
        if _lives(line):
            await _readable(descriptor)
    finally:
        os.close(descriptor)


def _lives(line: _Line) -> bool:
    found = processes.find(line.pid)
    return found is not None and found[2] == line.start


async def _readable(descriptor: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)


async def _read(descriptor: int) -> bytes:
    """The first that comes through a pipe, and its end."""
    try:
        await _readable(descriptor)
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)
