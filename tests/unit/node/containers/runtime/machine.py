"""A harness for runtimes: a directory, short launches, and no container left at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dray.node.containers.runtime.base import (
    ContainerExit,
    ContainerId,
    ContainerLaunch,
    ContainerNotStarted,
    ContainerStarted,
)
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.containers.runtime.shim import files, processes
from dray.wire.cdi import ContainerEdits

T = TypeVar("T")
SOON = 60.0
UID = "0b6e8b06-4c1e-4b8e-8b8e-1f2a3b4c5d6e"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do something asynchronous, within a time that is enough for everything."""

    async def limited() -> T:
        return await asyncio.wait_for(work, SOON)

    return asyncio.run(limited())


async def until(is_so: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so."""
    end = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < end, told()
        await asyncio.sleep(0.02)


class Machine:
    """Where containers run; `runtime` is an agent's, and there can be one after another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.containers = root / "containers"

    def runtime(self) -> ProcessRuntime:
        return ProcessRuntime(self.containers)

    def launch(
        self, *command: str, name: str = "main", edits: ContainerEdits | None = None, **more: Any
    ) -> ContainerLaunch:
        attempt = more.get("attempt", 0)
        return ContainerLaunch(
            **{
                "pod_uid": UID,
                "pod_name": "train-0",
                "namespace": "ml",
                "name": name,
                "image": "trainer:1",
                "command": command,
                "log": self.log(name, attempt),
                "edits": edits or ContainerEdits(),
                **more,
            }
        )

    def shell(self, script: str, **more: Any) -> ContainerLaunch:
        """A container that runs a script; `$0` in it is the directory of the machine."""
        return self.launch("sh", "-c", script, str(self.root), **more)

    def log(self, name: str = "main", attempt: int = 0) -> Path:
        return self.root / "logs" / name / f"{attempt}.log"

    def said(self, name: str = "main") -> list[str]:
        """What a container said, without times."""
        return [line.partition(" ")[2] for line in self.log(name).read_text("utf-8", "replace").splitlines()]

    def home(self, container: ContainerId) -> Path:
        return self.containers / str(container)

    def find_shim(self, container: ContainerId) -> int:
        return int(files.read_fields(str(self.home(container) / files.STATE))[0]["keeper"][0])

    def number(self, name: str) -> int:
        """A number that a container wrote into a file of the machine."""
        return int((self.root / name).read_text())

    async def written(self, *names: str) -> None:
        """Wait until a container has written such files."""
        await until(
            lambda: all((self.root / name).exists() and (self.root / name).read_text() for name in names)
        )


def is_alive(pid: int) -> bool:
    return processes.find_process(pid) is not None


def check_started(answer: ContainerStarted | ContainerNotStarted) -> ContainerId:
    assert isinstance(answer, ContainerStarted), answer
    return answer.id


async def run_to_exit(runtime: ProcessRuntime, launch: ContainerLaunch) -> ContainerExit:
    """Start a container and see how it ends."""
    return await runtime.wait(check_started(await runtime.start(launch)))


@contextmanager
def machine_in(root: Path) -> Iterator[Machine]:
    machine = Machine(root)
    try:
        yield machine
    finally:
        run(_remove_all(machine.runtime()))


async def _remove_all(runtime: ProcessRuntime) -> None:
    for found in await runtime.list_containers():
        await runtime.remove(found.id)
    assert await runtime.list_containers() == ()
