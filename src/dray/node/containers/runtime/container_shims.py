"""The shims of a node's containers: started one per container, found again, and waited for.

Theory of operation: everything about a container is in one directory named after it, so the agent has to
remember nothing. A shim is alive when the process named in `state` has the start time given there, in this
boot; the agent waits for that process, whoever started it. When it has ended without an `exit` file, a second
shim finishes what the first could not.
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
from typing import Any, Final

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
from dray.node.containers.runtime.shim_process import LiveShim, read_pipe, send_signal, wait_for_exit
from dray.node.containers.runtime.shim_spawner import ShimSpawner
from dray.wire.unix_sockets import make_private_directory, secure_socket_directory

LOG_LIMIT: Final = 10 * 1024 * 1024
LOG_KEEP: Final = 2
SCRATCH_LINK: Final = "tmp"
"""The name, in a container's directory, of its directory for temporary files or of a link to it."""
_METADATA_FILE: Final = "container.json"
_CONFIG_DRAFT: Final = ".orders"
_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""Without `_`, which separates the parts of an id."""
_KILL_TIMEOUT: Final = processes.KILL_TIMEOUT + 5.0
_MAX_FINISH_ATTEMPTS: Final = 20
_POLL_SECONDS: Final = 0.1
_EXIT_NOT_WRITTEN: Final = "the exit of the container could not be written"


class ContainerMetadata(msgspec.Struct, frozen=True):
    """Data about a container that its shim does not need."""

    pod_name: str = ""
    namespace: str = ""


def build_command(
    argv: Sequence[str], *, timeout: float | None = None, error_file: str = "command.log"
) -> dict[str, Any]:
    """Build a command for a shim to run."""
    env = {"PATH": os.defpath}
    return {"path": argv[0], "args": list(argv), "env": env, "timeout": timeout, "told": error_file}


class ContainerShims:
    """The shims of a node's containers."""

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
        """Return the directory of a container."""
        return self._directory / str(container)

    async def start(
        self, launch: ContainerLaunch, config: Mapping[str, Any]
    ) -> ContainerStarted | ContainerNotStarted:
        """Start a container whose directory was made with `create_directory`."""
        container, directory = launch.id, self.get_directory(launch.id)
        metadata = ContainerMetadata(pod_name=launch.pod_name, namespace=launch.namespace)
        self._starting.add(container)
        try:
            make_private_directory(launch.log.parent)
            _write_private(directory / _METADATA_FILE, msgspec.json.encode(metadata))
            _write_private(
                directory / _CONFIG_DRAFT,
                marshal.dumps({**_DEFAULT_CONFIG, **config, "log": str(launch.log)}),
            )
            os.replace(directory / _CONFIG_DRAFT, directory / files.CONFIG)
            ready = await read_pipe(self._spawner.spawn("keep", directory))
        except OSError as error:
            delete_container_files(directory)
            return ContainerNotStarted(
                "CreateContainerError", f"cannot start the shim of `{launch.name}`: {error}"
            )
        finally:
            self._starting.discard(container)
        if ready or self._read_exit(container) is not None:
            return ContainerStarted(container)
        last = _read_last_line(directory / files.NOTES)
        await self.remove(container)
        return ContainerNotStarted(
            "CreateContainerError", f"the shim of `{launch.name}` ended at once: {last}"
        )

    def create_directory(self, launch: ContainerLaunch) -> Path | ContainerStarted | ContainerNotStarted:
        """Make the directory of a container that does not exist yet."""
        for what, name, form in (("uid", launch.pod_uid, _UID), ("container", launch.name, _NAME)):
            if not form.fullmatch(name) or len(name) > 100:
                message = f"{what} `{name}`: expected letters, digits, `-` and `.`, not more than 100"
                return ContainerNotStarted("CreateContainerConfigError", message)
        directory = self.get_directory(launch.id)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            return ContainerStarted(launch.id)
        except OSError as error:
            return ContainerNotStarted(
                "CreateContainerError", f"cannot make a directory for the container: {error}"
            )
        return directory

    async def wait(self, container: ContainerId) -> ContainerExit:
        """Wait until a container has ended, and return its exit."""
        while self.get_directory(container).is_dir():
            shim = self._find_shim(container)
            if shim is not None:
                await wait_for_exit(shim)
            elif container in self._starting:
                await asyncio.sleep(_POLL_SECONDS / 10)
            found = self._read_exit(container)
            if found is not None:
                return found
            if not await self._ensure_shim_or_exit(container):
                return self._build_unknown_exit(_EXIT_NOT_WRITTEN)
        return self._build_unknown_exit("there is no such container on this node")

    def _build_unknown_exit(self, why: str) -> ContainerExit:
        now = self._clock.now()
        return ContainerExit(137, 0, UNKNOWN, now, now, why)

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Terminate a container, by force after the grace period."""
        while container in self._starting and self._find_shim(container) is None:
            await asyncio.sleep(_POLL_SECONDS / 10)
        # Its shim may be starting, requested by a cancelled start or by an agent that was killed.
        await self._ensure_shim_or_exit(container)
        for number, seconds in (
            (signal.SIGTERM, grace_seconds),
            (END_SIGNAL, _KILL_TIMEOUT),
            (signal.SIGKILL, _KILL_TIMEOUT),
        ):
            shim = self._find_shim(container)
            if shim is None:
                break
            if seconds > 0 and send_signal(shim, number):
                send_signal(shim, signal.SIGCONT)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await wait_for_exit(shim)
        await self._ensure_shim_or_exit(container)

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """List all containers of the directory."""
        ids = [container for name in os.listdir(self._directory) if (container := _parse_container_id(name))]
        found = await asyncio.gather(*map(self._find_container, sorted(ids)))
        return tuple(each for each in found if each is not None)

    async def remove(self, container: ContainerId) -> None:
        """Terminate a container and delete its directory."""
        directory = self.get_directory(container)
        self._metadata.pop(container, None)
        self._exits.pop(container, None)
        if directory.is_dir():
            await self.stop(container, 0)
            await asyncio.to_thread(delete_container_files, directory)

    def find_problem(self) -> str:
        """Return what keeps shims from being started; empty when nothing does."""
        if not os.access(self._directory, os.W_OK | os.X_OK):
            return f"`{self._directory}`, the directory of containers, cannot be written"
        if not os.access(sys.executable, os.X_OK):
            return f"`{sys.executable}`, which runs the shims of containers, cannot be executed"
        return ""

    def close(self) -> None:
        """Stop the fork server; shims and their containers continue."""
        self._spawner.close()

    async def _find_container(self, container: ContainerId) -> FoundContainer | None:
        exit = self._exits.get(container)
        shim = self._find_shim(container) if exit is None else None
        if exit is None:
            settled = (
                shim is not None or container in self._starting or await self._ensure_shim_or_exit(container)
            )
            if not self.get_directory(container).is_dir():
                return None
            shim, exit = shim or self._find_shim(container), self._read_exit(container)
            if exit is None and not settled:
                exit = self._build_unknown_exit(_EXIT_NOT_WRITTEN)
            if exit is not None:
                self._exits[container] = exit
        metadata = self._read_metadata(container)
        # With neither shim nor exit it is starting or just ending.
        started = exit.started_at if exit else shim.started_at if shim else self._clock.now()
        return FoundContainer(container, metadata.pod_name, metadata.namespace, started, exit)

    def _read_metadata(self, container: ContainerId) -> ContainerMetadata:
        if container not in self._metadata:
            try:
                content = (self.get_directory(container) / _METADATA_FILE).read_bytes()
                self._metadata[container] = msgspec.json.decode(content, type=ContainerMetadata)
            except (OSError, msgspec.DecodeError):
                return ContainerMetadata()
        return self._metadata[container]

    async def _ensure_shim_or_exit(self, container: ContainerId) -> bool:
        """Make sure that a container has a running shim or an exit; False when that is impossible."""
        directory = self.get_directory(container)
        for _ in range(_MAX_FINISH_ATTEMPTS):
            if container in self._starting or self._find_shim(container) or not directory.is_dir():
                return True
            if (directory / files.EXIT).exists():
                return True
            if not (directory / files.CONFIG).exists():
                # The agent was killed before it had written the config: the container never started.
                delete_container_files(directory)
                return True
            await read_pipe(self._spawner.spawn("finish", directory))
            if not (directory / files.EXIT).exists():
                # Another shim holds the lock, or is only starting.
                await asyncio.sleep(_POLL_SECONDS)
        with contextlib.suppress(OSError):
            _write_private(directory / files.EXIT, b"")
        return (directory / files.EXIT).exists()

    def _find_shim(self, container: ContainerId) -> LiveShim | None:
        state, _ = files.read_fields(str(self.get_directory(container) / files.STATE))
        try:
            pid, start = (int(word) for word in state["keeper"])
            started_at = _parse_time(state["started"])
            same_boot = state["boot"] == self._boot_id
        except (KeyError, ValueError, IndexError):
            return None
        found = processes.find_process(pid) if same_boot else None
        return LiveShim(pid, start, started_at) if found is not None and found[2] == start else None

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
    "isolated": False,
    "namespaces": None,
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
    """Base of the runtimes whose containers have a shim: everything except starting them."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._shims = ContainerShims(directory, clock)

    async def wait(self, container: ContainerId) -> ContainerExit:
        """Wait until a container has ended, and return its exit."""
        return await self._shims.wait(container)

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Send a termination signal to a container's first process; kill all of it after the grace period."""
        await self._shims.stop(container, grace_seconds)

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """List every container that was started and not removed."""
        return await self._shims.list_containers()

    async def remove(self, container: ContainerId) -> None:
        """Terminate and remove a container."""
        await self._shims.remove(container)

    async def find_problem(self) -> str:
        """Return what keeps any container from being started; empty when nothing does."""
        return self._shims.find_problem()

    async def close(self) -> None:
        """Release the agent's resources; containers continue."""
        self._shims.close()


def delete_container_files(directory: Path) -> None:
    """Delete the directory of a container, and that of its temporary files where it is elsewhere."""
    with contextlib.suppress(OSError):
        shutil.rmtree(os.readlink(directory / SCRATCH_LINK), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)


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
