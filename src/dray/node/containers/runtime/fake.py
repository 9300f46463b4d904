"""A fake container runtime for tests and for simulated nodes, of which hundreds fit into one process.

A container "runs" until it is stopped, or as annotations of its pod say: for `dray.dev/fake-run-seconds`,
then with `dray.dev/fake-exit-code`. Nothing is validated and no process or task runs: the state is computed
when it is read. Passed from one agent to the next, it simulates a machine that keeps running.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dray.client.timing import TimeSource
from dray.node.containers.runtime.base import (
    COMPLETED,
    ERROR,
    UNKNOWN,
    ContainerExit,
    ContainerId,
    ContainerLaunch,
    ContainerNotStarted,
    ContainerStarted,
    FoundContainer,
)
from dray.tasks import wait_for_first

RUN_SECONDS: Final = "dray.dev/fake-run-seconds"
EXIT_CODE: Final = "dray.dev/fake-exit-code"
_TERMINATED: Final = 15


@dataclass(slots=True)
class _FakeContainer:
    """A simulated container."""

    launch: ContainerLaunch
    started_at: datetime
    started_monotonic: float
    seconds: float | None
    code: int
    exit: ContainerExit | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class FakeRuntime:
    """Runs nothing and remembers its launches."""

    name: Final = "fake"

    def __init__(self, timing: TimeSource | None = None) -> None:
        self._time_source = timing or TimeSource()
        self._containers: dict[ContainerId, _FakeContainer] = {}

    @property
    def launches(self) -> tuple[ContainerLaunch, ...]:
        """The launches of containers that were started and not removed, in order."""
        return tuple(each.launch for each in self._containers.values())

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        """Add a container."""
        if launch.id in self._containers:
            return ContainerStarted(launch.id)
        try:
            seconds = float(launch.annotations[RUN_SECONDS]) if RUN_SECONDS in launch.annotations else None
            code = int(launch.annotations.get(EXIT_CODE, "0"))
        except ValueError:
            message = f"annotations `{RUN_SECONDS}` and `{EXIT_CODE}`: expected numbers"
            return ContainerNotStarted("CreateContainerConfigError", message)
        clock = self._time_source.clock
        self._containers[launch.id] = _FakeContainer(launch, clock.now(), clock.monotonic(), seconds, code)
        return ContainerStarted(launch.id)

    async def wait(self, container: ContainerId) -> ContainerExit:
        """Wait until a container's time is over, and return its exit."""
        found = self._containers.get(container)
        if found is None:
            now = self._time_source.clock.now()
            return ContainerExit(137, 0, UNKNOWN, now, now, "there is no such container on this node")
        while (ended := self._compute_exit(found)) is None:
            await self._wait_for_end(found)
        return ended

    async def _wait_for_end(self, found: _FakeContainer) -> None:
        if found.seconds is None:
            await found.ended.wait()
            return
        left = found.seconds - (self._time_source.clock.monotonic() - found.started_monotonic)
        await wait_for_first(self._time_source.sleep(max(left, 0)), found.ended.wait())

    def _compute_exit(self, found: _FakeContainer) -> ContainerExit | None:
        if found.exit is not None or found.seconds is None:
            return found.exit
        if self._time_source.clock.monotonic() - found.started_monotonic >= found.seconds:
            finished = found.started_at + timedelta(seconds=found.seconds)
            reason = ERROR if found.code else COMPLETED
            found.exit = ContainerExit(found.code, 0, reason, found.started_at, finished)
        return found.exit

    async def stop(self, container: ContainerId, grace_seconds: float) -> None:
        """Terminate a container at once."""
        found = self._containers.get(container)
        if found is not None and self._compute_exit(found) is None:
            now = self._time_source.clock.now()
            found.exit = ContainerExit(128 + _TERMINATED, _TERMINATED, ERROR, found.started_at, now)
            found.ended.set()

    async def list_containers(self) -> tuple[FoundContainer, ...]:
        """List every container that was started and not removed."""
        return tuple(
            FoundContainer(
                container,
                each.launch.pod_name,
                each.launch.namespace,
                each.started_at,
                self._compute_exit(each),
            )
            for container, each in self._containers.items()
        )

    async def remove(self, container: ContainerId) -> None:
        """Remove a container."""
        await self.stop(container, 0)
        self._containers.pop(container, None)

    async def find_problem(self) -> str:
        """Return nothing: a fake always works."""
        return ""

    async def close(self) -> None:
        """Do nothing: a fake holds no resources."""
