"""Containers that are only pretended: for tests, and for simulated nodes of which hundreds fit into a
process.

A container runs until it is stopped, or as annotations of its pod say: `dray.dev/fake-run-seconds` is how
long, `dray.dev/fake-exit-code` how it ends then. Nothing is checked and nothing runs, no task either: whether
a time is over is worked out when somebody asks. Handed from one agent to the next, it is a machine that goes
on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dray.client.timing import Tempo
from dray.node.containers.runtime.base import (
    COMPLETED,
    ERROR,
    UNKNOWN,
    ContainerId,
    Exit,
    Found,
    Launch,
    NotStarted,
    Started,
)

RUN_SECONDS: Final = "dray.dev/fake-run-seconds"
EXIT_CODE: Final = "dray.dev/fake-exit-code"
_TERMINATED: Final = 15


@dataclass(slots=True)
class _Pretended:
    """A container that is said to run."""

    launch: Launch
    started_at: datetime
    began: float
    seconds: float | None
    code: int
    exit: Exit | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class FakeRuntime:
    """Runs nothing and remembers what it was given."""

    name: Final = "fake"

    def __init__(self, tempo: Tempo | None = None) -> None:
        self._tempo = tempo or Tempo()
        self._containers: dict[ContainerId, _Pretended] = {}

    @property
    def launches(self) -> tuple[Launch, ...]:
        """What was started and not removed, in that order, with the edits that came along."""
        return tuple(each.launch for each in self._containers.values())

    async def start(self, launch: Launch) -> Started | NotStarted:
        """Pretend to start a container."""
        if launch.id in self._containers:
            return Started(launch.id)
        try:
            seconds = float(launch.annotations[RUN_SECONDS]) if RUN_SECONDS in launch.annotations else None
            code = int(launch.annotations.get(EXIT_CODE, "0"))
        except ValueError:
            message = f"annotations `{RUN_SECONDS}` and `{EXIT_CODE}`: expected numbers"
            return NotStarted("CreateContainerConfigError", message)
        clock = self._tempo.clock
        self._containers[launch.id] = _Pretended(launch, clock.now(), clock.monotonic(), seconds, code)
        return Started(launch.id)

    async def wait(self, container: ContainerId) -> Exit:
        """How a container ended, as soon as it is time."""
        found = self._containers.get(container)
        if found is None:
            now = self._tempo.clock.now()
            return Exit(137, 0, UNKNOWN, now, now, "there is no such container on this node")
        while (ended := self._exit(found)) is None:
            await self._ended(found)
        return ended

    async def _ended(self, found: _Pretended) -> None:
        if found.seconds is None:
            await found.ended.wait()
            return
        left = found.seconds - (self._tempo.clock.monotonic() - found.began)
        waits = (
            asyncio.ensure_future(self._tempo.sleep(max(left, 0))),
            asyncio.ensure_future(found.ended.wait()),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _exit(self, found: _Pretended) -> Exit | None:
        if found.exit is not None or found.seconds is None:
            return found.exit
        if self._tempo.clock.monotonic() - found.began >= found.seconds:
            finished = found.started_at + timedelta(seconds=found.seconds)
            reason = ERROR if found.code else COMPLETED
            found.exit = Exit(found.code, 0, reason, found.started_at, finished)
        return found.exit

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """End a container; it does so at once."""
        found = self._containers.get(container)
        if found is not None and self._exit(found) is None:
            now = self._tempo.clock.now()
            found.exit = Exit(128 + _TERMINATED, _TERMINATED, ERROR, found.started_at, now)
            found.ended.set()

    async def running(self) -> tuple[Found, ...]:
        """Every container that was started and not removed."""
        return tuple(
            Found(container, each.launch.pod_name, each.launch.namespace, each.started_at, self._exit(each))
            for container, each in self._containers.items()
        )

    async def remove(self, container: ContainerId) -> None:
        """Forget a container."""
        await self.stop(container, 0)
        self._containers.pop(container, None)

    async def trouble(self) -> str:
        """Nothing ever keeps it from pretending."""
        return ""

    async def close(self) -> None:
        """Nothing is held."""
