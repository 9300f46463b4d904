"""Containers whose shim, fork server or agent is killed at random times.

A round is one container and one fault: its shim, the fork server or the agent is killed, it is stopped, or
nothing happens. Afterwards it must have ended once, with the expected code, and nothing of it may run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

from dray.node.containers.runtime.base import (
    UNKNOWN,
    ContainerExit,
    ContainerId,
    ContainerLaunch,
    ContainerNotStarted,
)
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.containers.runtime.shim import files, processes
from dray.wire.cdi import ContainerEdits, Hook

FATES = ("nothing", "shim", "fork server", "agent", "stop", "kill")
SCRIPT = """
echo ran >> $1
(setsid sh -c 'sleep 1000' &)
sleep 0.$2; exit $3
"""


@dataclass
class Tally:
    """What was seen; the pass lines are the lists, which must be empty."""

    rounds: int = 0
    fates: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    left_running: list[str] = field(default_factory=list)
    wrong_ends: list[str] = field(default_factory=list)
    ran_twice: list[str] = field(default_factory=list)
    not_cleaned: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not (self.left_running or self.wrong_ends or self.ran_twice or self.not_cleaned)


class Node:
    """One machine and its agent of the moment."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._chance = random.Random(seed)
        self._runtime = ProcessRuntime(root / "containers")
        self.tally = Tally()
        self._hook = root / "hook"
        self._hook.write_text(f"#!/bin/sh\necho $1 >> {root}/$2.hooks\n")
        self._hook.chmod(0o755)

    def _launch(self, name: str, code: int) -> ContainerLaunch:
        words = (str(self._root / name), str(self._chance.randrange(1, 9)), str(code))
        hook = Hook(hook_name="poststop", path=str(self._hook), args=("hook", "stopped", name))
        return ContainerLaunch(
            pod_uid="uid",
            pod_name="pod",
            namespace="ns",
            name=name,
            command=("sh", "-c", SCRIPT, "sh", *words),
            edits=ContainerEdits(hooks=(hook,)),
            log=self._root / "logs" / f"{name}.log",
        )

    async def round(self, number: int) -> None:
        fate, code = self._chance.choice(FATES), self._chance.randrange(1, 100)
        launch = self._launch(f"c{number}", code)
        started = asyncio.create_task(self._runtime.start(launch))
        await asyncio.sleep(self._chance.choice((0, 0.005, 0.02, 0.05, 0.1)))
        await self._strike(fate, launch.id)
        answer = (await asyncio.gather(started, return_exceptions=True))[0]
        exit = await self._runtime.wait(launch.id)
        self._judge(fate, launch.id, code, exit, isinstance(answer, ContainerNotStarted))
        await self._runtime.remove(launch.id)
        self.tally.rounds += 1
        self.tally.fates[fate] = self.tally.fates.get(fate, 0) + 1

    async def _strike(self, fate: str, container: ContainerId) -> None:
        state, _ = files.read_fields(str(self._root / "containers" / str(container) / files.STATE))
        if fate == "shim" and "keeper" in state:
            _kill(int(state["keeper"][0]))
        elif fate == "fork server":
            for pid in _find_fork_servers():
                _kill(pid)
        elif fate == "agent":
            self._runtime = ProcessRuntime(self._root / "containers")
        elif fate in ("stop", "kill"):
            await self._runtime.stop(container, 5.0 if fate == "stop" else 0.0)

    def _judge(
        self, fate: str, container: ContainerId, code: int, exit: ContainerExit, refused: bool
    ) -> None:
        told, name = f"{fate} {container.name}: {exit.code} {exit.reason} {exit.message}", container.name
        mark = f"TMPDIR={self._root}/containers/{container}/tmp".encode()
        if processes.find_container_processes(0, 0, mark):
            self.tally.left_running.append(told)
        ran = _lines(self._root / name)
        if ran > 1:
            self.tally.ran_twice.append(told)
        self.tally.lost += exit.reason == UNKNOWN
        stopped = fate in ("stop", "kill", "shim", "fork server") or refused
        if not stopped and (exit.code, exit.reason, ran) != (code, "Error", 1):
            self.tally.wrong_ends.append(told)
        if stopped and exit.code not in (code, 128, 137, 143):
            self.tally.wrong_ends.append(told)
        if ran and not _lines(self._root / f"{name}.hooks"):
            self.tally.not_cleaned.append(told)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _find_fork_servers() -> list[int]:
    children = [pid for pid, found in processes.list_processes().items() if found[0] == os.getpid()]
    return [pid for pid in children if b"shim.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def campaign(root: Path, rounds: int, seed: int) -> Tally:
    """So many containers, one after the other."""
    node = Node(root, seed)
    for number in range(rounds):
        await asyncio.wait_for(node.round(number), 60)
    return node.tally
