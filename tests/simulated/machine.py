"""A simulated machine: what survives the agent on it, and what survives a reboot.

Theory of operation: containers and prepared claims last as long as the machine runs, whatever happens to the
agent; its checkpoint is on the disk. An agent that starts after a crash gets a copy of the directory as the
crashed one left it, because the lock of the old directory is released only when the interpreter collects it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from dray.client.timing import TimeSource
from dray.node.agent import FixedDrivers
from dray.node.containers.runtime.base import ContainerLaunch, ContainerNotStarted, ContainerStarted
from dray.node.containers.runtime.fake import FakeRuntime
from dray.node.plugins.driver_interface import (
    ClaimRef,
    DeviceHealth,
    DriverCallFailure,
    DriverCallFault,
    PrepareOutcome,
    UnprepareOutcome,
)

_STATE_FILES: Final = ("checkpoint", "paused")


class DriverConditions(Protocol):
    """Draws what a driver does with a call."""

    def draw_delay(self) -> float:
        """Return how many seconds a call takes."""
        ...

    def draw_fault(self) -> DriverCallFault | None:
        """Return how a call fails, if it does."""
        ...


class CalmDriverConditions:
    """A driver that does its work."""

    def draw_delay(self) -> float:
        return 0.0

    def draw_fault(self) -> DriverCallFault | None:
        return None


class MachineObserver(Protocol):
    """Learns what happens on a machine, at the moment at which it happens."""

    def observe_boot(self, machine: SimulatedMachine) -> None: ...

    def observe_prepare(self, machine: SimulatedMachine, driver: str, claim_uid: str) -> None: ...

    def observe_unprepare(self, machine: SimulatedMachine, driver: str, claim_uid: str) -> None: ...

    def observe_start(self, machine: SimulatedMachine, pod_uid: str) -> None: ...


class SimulatedDriver:
    """A driver that remembers which claims are prepared."""

    classic: Final = False

    def __init__(self, machine: SimulatedMachine, name: str) -> None:
        self._machine = machine
        self.name = name
        self.prepared: dict[str, None] = {}

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        outcomes: dict[str, PrepareOutcome] = {}
        for claim in claims:
            failure = await self._call(claim, self._prepare)
            outcomes[claim.uid] = () if failure is None else failure
        return outcomes

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        return {claim.uid: await self._call(claim, self._unprepare) for claim in claims}

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return None

    async def _call(self, claim: ClaimRef, work: Callable[[str], None]) -> DriverCallFailure | None:
        """Do the work; a driver that does not answer may have done it, or not."""
        conditions = self._machine.conditions
        fault, delay = conditions.draw_fault(), conditions.draw_delay()
        if delay:
            await asyncio.sleep(delay)
        if fault is None or (fault is DriverCallFault.NO_ANSWER and conditions.draw_delay() > 0):
            work(claim.uid)
        return None if fault is None else DriverCallFailure(fault, f"{self.name}: simulated: {fault}")

    def _prepare(self, uid: str) -> None:
        self.prepared[uid] = None
        self._machine.observer.observe_prepare(self._machine, self.name, uid)

    def _unprepare(self, uid: str) -> None:
        self._machine.observer.observe_unprepare(self._machine, self.name, uid)
        self.prepared.pop(uid, None)


class SilentObserver:
    """An observer that does nothing."""

    def observe_boot(self, machine: SimulatedMachine) -> None: ...

    def observe_prepare(self, machine: SimulatedMachine, driver: str, claim_uid: str) -> None: ...

    def observe_unprepare(self, machine: SimulatedMachine, driver: str, claim_uid: str) -> None: ...

    def observe_start(self, machine: SimulatedMachine, pod_uid: str) -> None: ...


class ObservedRuntime(FakeRuntime):
    """The fake runtime, which reports every start."""

    def __init__(self, machine: SimulatedMachine, timing: TimeSource) -> None:
        super().__init__(timing)
        self._machine = machine

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        self._machine.observer.observe_start(self._machine, launch.id.pod_uid)
        return await super().start(launch)

    def list_running_pods(self) -> set[str]:
        """List the pods with a container that has not ended."""
        return {
            container.pod_uid
            for container, found in self._containers.items()
            if self._compute_exit(found) is None
        }


class SimulatedMachine:
    """A machine with a disk, containers and drivers."""

    def __init__(self, name: str, disk: Path, timing: TimeSource, drivers: Sequence[str]) -> None:
        self.name = name
        self.observer: MachineObserver = SilentObserver()
        self.conditions: DriverConditions = CalmDriverConditions()
        self._disk = disk / name
        self._timing = timing
        self._names = tuple(drivers)
        self._agents = self._boots = 0
        self.boot()

    def boot(self) -> None:
        """Start the machine: nothing runs and nothing is prepared."""
        self._boots += 1
        self.observer.observe_boot(self)
        self.runtime = ObservedRuntime(self, self._timing)
        self.drivers = {name: SimulatedDriver(self, name) for name in self._names}

    @property
    def boot_id(self) -> str:
        """The identity of the current boot."""
        return f"{self.name}-boot-{self._boots}"

    def build_registry(self) -> FixedDrivers:
        """Build the drivers as an agent finds them."""
        return FixedDrivers(*self.drivers.values())

    def prepare_root(self) -> Path:
        """Return the directory of the next agent, with what the last one left on the disk."""
        last, self._agents = self._disk / str(self._agents), self._agents + 1
        root = self._disk / str(self._agents)
        root.mkdir(parents=True, mode=0o700)
        if last.is_dir():
            for name in _STATE_FILES:
                if (last / name).exists():
                    shutil.copyfile(last / name, root / name)
        return root
