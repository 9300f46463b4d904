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
from dray.node.containers.runtime.base import (
    UNKNOWN,
    ContainerExit,
    ContainerId,
    ContainerLaunch,
    ContainerNotStarted,
    ContainerStarted,
    FoundContainer,
)
from dray.node.containers.runtime.shim import files, processes
from dray.node.containers.runtime.shim.program import END_SIGNAL
from dray.node.containers.runtime.shim_spawner import ShimSpawner
from dray.wire.unix_sockets import make_private_directory, secure_socket_directory

LOG_LIMIT: Final = 10 * 1024 * 1024
LOG_KEEP: Final = 2
_METADATA_FILE: Final = "container.json"
_CONFIG_DRAFT: Final = ".orders"
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""Without `_`, which stands between the parts of an id."""
_KILL_TIMEOUT: Final = processes.KILL_TIMEOUT + 5.0
_MAX_FINISH_ATTEMPTS: Final = 20
_POLL_SECONDS: Final = 0.1


class ContainerMetadata(msgspec.Struct, frozen=True):
    """What a keeper need not know about its container."""

    pod_name: str = ""
    namespace: str = ""


class _LiveShim(NamedTuple):
    """A keeper that lives: its process, when that started, and when the container did."""

    pid: int
    start: int
    started_at: datetime


def build_command(
    argv: Sequence[str], *, timeout: float | None = None, error_file: str = "errand.log"
) -> dict[str, Any]:
    """A program for a keeper to run."""
    env = {"PATH": os.defpath}
    return {"path": argv[0], "args": list(argv), "env": env, "timeout": timeout, "told": error_file}


class ContainerShims:
    """The keepers of a node's containers."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        secure_socket_directory(directory)
        self._directory = directory
        self._clock = clock or SystemClock()
        self._starting: set[ContainerId] = set()
        self._spawner = ShimSpawner()
        self._boot_id = files.read_boot_id().split()
        self._metadata: dict[ContainerId, ContainerMetadata] = {}
        self._exits: dict[ContainerId, ContainerExit] = {}

    def get_directory(self, container: ContainerId) -> Path:
        """The directory of a container."""
        return self._directory / str(container)

    async def start(
        self, launch: ContainerLaunch, config: Mapping[str, Any]
    ) -> ContainerStarted | ContainerNotStarted:
        """Start a container whose directory was prepared with `create_directory`."""
        container, home = launch.id, self.get_directory(launch.id)
        about = ContainerMetadata(pod_name=launch.pod_name, namespace=launch.namespace)
        self._starting.add(container)
        try:
            make_private_directory(launch.log.parent)
            _write_private(home / _METADATA_FILE, msgspec.json.encode(about))
            _write_private(
                home / _CONFIG_DRAFT, marshal.dumps({**_DEFAULT_CONFIG, **config, "log": str(launch.log)})
            )
            os.replace(home / _CONFIG_DRAFT, home / files.CONFIG)
            said = await _read_pipe(self._spawner.spawn("keep", home))
        except OSError as failed:
            shutil.rmtree(home, ignore_errors=True)
            return ContainerNotStarted(
                "CreateContainerError", f"cannot start the keeper of `{launch.name}`: {failed}"
            )
        finally:
            self._starting.discard(container)
        if said or self._read_exit(container) is not None:
            return ContainerStarted(container)
        last = _read_last_line(home / files.NOTES)
        await self.remove(container)
        return ContainerNotStarted(
            "CreateContainerError", f"the keeper of `{launch.name}` ended at once: {last}"
        )

    def create_directory(self, launch: ContainerLaunch) -> Path | ContainerStarted | ContainerNotStarted:
        """Make the directory of a container that is not there yet."""
        for what, name, form in (("uid", launch.pod_uid, _UID), ("container", launch.name, _NAME)):
            if not form.fullmatch(name) or len(name) > 100:
                message = f"{what} `{name}`: expected letters, digits, `-` and `.`, not more than 100"
                return ContainerNotStarted("CreateContainerConfigError", message)
        home = self.get_directory(launch.id)
        try:
            home.mkdir(mode=0o700)
        except FileExistsError:
            return ContainerStarted(launch.id)
        except OSError as failed:
            return ContainerNotStarted(
                "CreateContainerError", f"cannot make a directory for the container: {failed}"
            )
        return home

    async def wait(self, container: ContainerId) -> ContainerExit:
        """How a container ended, as soon as it did."""
        while self.get_directory(container).is_dir():
            line = self._find_shim(container)
            if line is not None:
                await _wait_for_exit(line)
            elif container in self._starting:
                await asyncio.sleep(_POLL_SECONDS / 10)
            found = self._read_exit(container)
            if found is not None:
                return found
            if not await self._ensure_shim_or_exit(container):
                return self._build_unknown_exit("nobody could write down how the container ended")
        return self._build_unknown_exit("there is no such container on this node")

    def _build_unknown_exit(self, why: str) -> ContainerExit:
        now = self._clock.now()
        return ContainerExit(137, 0, UNKNOWN, now, now, why)

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """End a container, by force after a time."""
        while container in self._starting and self._find_shim(container) is None:
            await asyncio.sleep(_POLL_SECONDS / 10)
        # Its keeper may be on the way, asked for by a start that was given up or an agent that was killed.
        await self._ensure_shim_or_exit(container)
        for number, seconds in (
            (signal.SIGTERM, grace_seconds),
            (END_SIGNAL, _KILL_TIMEOUT),
            (signal.SIGKILL, _KILL_TIMEOUT),
        ):
            line = self._find_shim(container)
            if line is None:
                break
            if seconds > 0 and _send_signal(line, number):
                _send_signal(line, signal.SIGCONT)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await _wait_for_exit(line)
        await self._ensure_shim_or_exit(container)

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """All containers that are there."""
        found = [
            container for name in os.listdir(self._directory) if (container := _parse_container_id(name))
        ]
        answers = await asyncio.gather(*map(self._find_container, sorted(found)))
        return tuple(each for each in answers if each is not None)

    async def remove(self, container: ContainerId) -> None:
        """End a container and take its directory away."""
        home = self.get_directory(container)
        self._metadata.pop(container, None)
        self._exits.pop(container, None)
        if home.is_dir():
            await self.stop(container, 0)
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    def find_problem(self) -> str:
        """What keeps keepers from being started."""
        if not os.access(self._directory, os.W_OK | os.X_OK):
            return f"`{self._directory}`, where containers are kept, cannot be written"
        if not os.access(sys.executable, os.X_OK):
            return f"`{sys.executable}`, by which containers are kept, cannot be executed"
        return ""

    def close(self) -> None:
        """Let go of what this agent holds; keepers and their containers stay."""
        self._spawner.close()

    async def _find_container(self, container: ContainerId) -> FoundContainer | None:
        ended = self._exits.get(container)
        line = self._find_shim(container) if ended is None else None
        if ended is None:
            settled = (
                line is not None or container in self._starting or await self._ensure_shim_or_exit(container)
            )
            if not self.get_directory(container).is_dir():
                return None
            line, ended = line or self._find_shim(container), self._read_exit(container)
            if ended is None and not settled:
                ended = self._build_unknown_exit("nobody could write down how the container ended")
            if ended is not None:
                self._exits[container] = ended
        about = self._read_metadata(container)
        # With neither it is only starting, or ends just now.
        started = ended.started_at if ended else line.started_at if line else self._clock.now()
        return FoundContainer(container, about.pod_name, about.namespace, started, ended)

    def _read_metadata(self, container: ContainerId) -> ContainerMetadata:
        if container not in self._metadata:
            try:
                content = (self.get_directory(container) / _METADATA_FILE).read_bytes()
                self._metadata[container] = msgspec.json.decode(content, type=ContainerMetadata)
            except (OSError, msgspec.DecodeError):
                return ContainerMetadata()
        return self._metadata[container]

    async def _ensure_shim_or_exit(self, container: ContainerId) -> bool:
        """See to it that a container runs with its keeper or has an exit; False when that cannot be."""
        home = self.get_directory(container)
        for _ in range(_MAX_FINISH_ATTEMPTS):
            if container in self._starting or self._find_shim(container) or not home.is_dir():
                return True
            if (home / files.EXIT).exists():
                return True
            if not (home / files.CONFIG).exists():
                # The agent was killed before it had written them: there never was a container.
                shutil.rmtree(home, ignore_errors=True)
                return True
            await _read_pipe(self._spawner.spawn("finish", home))
            if not (home / files.EXIT).exists():
                # Somebody else is at it, or is only starting.
                await asyncio.sleep(_POLL_SECONDS)
        with contextlib.suppress(OSError):
            _write_private(home / files.EXIT, b"")
        return (home / files.EXIT).exists()

    def _find_shim(self, container: ContainerId) -> _LiveShim | None:
        state, _ = files.read_fields(str(self.get_directory(container) / files.STATE))
        try:
            pid, start = (int(word) for word in state["keeper"])
            started_at = _parse_time(state["started"])
            same_boot = state["boot"] == self._boot_id
        except (KeyError, ValueError, IndexError):
            return None
        found = processes.find_process(pid) if same_boot else None
        return _LiveShim(pid, start, started_at) if found is not None and found[2] == start else None

    def _read_exit(self, container: ContainerId) -> ContainerExit | None:
        path = self.get_directory(container) / files.EXIT
        if not path.exists():
            return None
        words, message = files.read_fields(str(path))
        try:
            code, number = int(words["code"][0]), int(words["signal"][0])
            started, finished = _parse_time(words["started"]), _parse_time(words["finished"])
            return ContainerExit(code, number, words["reason"][0], started, finished, message)
        except (KeyError, ValueError, IndexError):
            return self._build_unknown_exit(f"`{path}` does not say how the container ended")


_DEFAULT_CONFIG: Final[dict[str, Any]] = {
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


class ShimRuntime:
    """What every runtime does alike whose containers have a keeper: all but to start them."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._shims = ContainerShims(directory, clock)

    async def wait(self, container: ContainerId) -> ContainerExit:
        """How a container ended, as soon as it did."""
        return await self._shims.wait(container)

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Ask a container's first process to end, and end all of it after a time."""
        await self._shims.stop(container, grace_seconds)

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """Every container that was started and not removed."""
        return await self._shims.list_containers()

    async def remove(self, container: ContainerId) -> None:
        """Forget a container."""
        await self._shims.remove(container)

    async def find_problem(self) -> str:
        """What keeps any container from being started."""
        return self._shims.find_problem()

    async def close(self) -> None:
        """Let go of what this agent holds; containers go on."""
        self._shims.close()


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _read_last_line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip().rpartition("\n")[2]
    except OSError as failed:
        return str(failed)


def _parse_container_id(name: str) -> ContainerId | None:
    rest, _, attempt = name.rpartition("_")
    uid, _, container = rest.rpartition("_")
    return ContainerId(uid, container, int(attempt)) if uid and container and attempt.isdecimal() else None


def _parse_time(words: Sequence[str]) -> datetime:
    return datetime.fromtimestamp(float(words[0]), UTC)


def _send_signal(shim: _LiveShim, number: int) -> bool:
    """Send a signal to a keeper, and to nobody who got its pid since; False when it is gone."""
    try:
        descriptor = os.pidfd_open(shim.pid)
    except ProcessLookupError:
        return False
    except OSError:
        descriptor = -1
    try:
        if not _is_alive(shim):
            return False
        if descriptor < 0:
            os.kill(shim.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True


async def _wait_for_exit(shim: _LiveShim) -> None:
    """Wait until a keeper has ended."""
    try:
        descriptor = os.pidfd_open(shim.pid)
    except ProcessLookupError:
        return
    except OSError:
        # A kernel that cannot tell; it has to be asked again and again.
        while _is_alive(shim):
            await asyncio.sleep(_POLL_SECONDS)
        return
    try:
        if _is_alive(shim):
            await _wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(shim: _LiveShim) -> bool:
    found = processes.find_process(shim.pid)
    return found is not None and found[2] == shim.start


async def _wait_readable(descriptor: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)


async def _read_pipe(descriptor: int) -> bytes:
    """The first that comes through a pipe, and its end."""
    try:
        await _wait_readable(descriptor)
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)
