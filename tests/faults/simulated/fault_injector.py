"""What goes wrong in a schedule: processes crash and stop, clocks jump, messages and writes get lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.faults.simulated.conditions import FaultRates
from tests.faults.simulated.schedule import ScheduledStep
from tests.simulated.cluster import SimulatedCluster, SimulatedService
from tests.simulated.event_loop import SimulatedProcess
from tests.simulated.store import complete

_CLOCK_JUMPS: Final = (-86400.0, -600.0, -5.0, 5.0, 600.0, 86400.0)
_MIN_DOWN_SECONDS: Final = 0.05


class FaultInjector:
    """Carries out the faults of a schedule, and ends them."""

    def __init__(self, cluster: SimulatedCluster, rates: FaultRates) -> None:
        self._cluster = cluster
        self._rates = rates
        self._paused: list[SimulatedProcess] = []
        self._actions: dict[str, Callable[[ScheduledStep], None]] = {
            "crash server": lambda step: self._crash("server", step),
            "crash scheduler": lambda step: self._crash("scheduler", step),
            "crash controllers": lambda step: self._crash("controllers", step),
            "crash agent": lambda step: self._crash("agent", step),
            "pause process": self._pause,
            "cut off process": self._cut_off,
            "jump clock": self._jump_clock,
            "reboot machine": self._reboot,
            "slow network": lambda step: self._raise("slowness", 0.2 + step.number % 40 / 10, step),
            "lossy network": lambda step: self._raise("loss", 0.02 + step.number % 20 / 100, step),
            "cut watches": lambda step: self._raise("cuts", 0.02 + step.number % 20 / 100, step),
            "store trouble": self._trouble_store,
            "store lag": lambda step: self._raise("lag", 0.1 + step.number % 40 / 10, step),
            "compact store": self._compact,
            "driver trouble": lambda step: self._raise("driver_faults", 0.1 + step.number % 50 / 100, step),
        }

    def begin(self, step: ScheduledStep) -> None:
        """Begin a fault."""
        self._rates.happened[step.name] += 1
        self._actions[step.name](step)

    def end_all(self) -> None:
        """End every fault: everything runs, and everyone reaches everyone."""
        self._rates.calm()
        self._cluster.network.cut_off.clear()
        for process in self._paused:
            self._cluster.loop.resume(process)
        for service in self._cluster.services.values():
            service.clock.offset = 0.0
            self._cluster.start_if_down(service)

    def _list_services(self, beginning: str = "") -> Sequence[SimulatedService]:
        return [service for name, service in self._cluster.services.items() if name.startswith(beginning)]

    def _choose(self, number: int, beginning: str = "") -> SimulatedService:
        services = self._list_services(beginning)
        return services[number % len(services)]

    def _crash(self, beginning: str, step: ScheduledStep) -> None:
        service = self._choose(step.number, beginning)
        if service.is_alive:
            self._cluster.crash(service)
            self._cluster.loop.call_later(
                max(step.seconds, _MIN_DOWN_SECONDS), self._cluster.start_if_down, service
            )

    def _pause(self, step: ScheduledStep) -> None:
        process = self._choose(step.number).process
        if process is not None:
            self._paused.append(process)
            self._cluster.loop.pause(process)
            self._cluster.loop.call_later(step.seconds, self._cluster.loop.resume, process)

    def _cut_off(self, step: ScheduledStep) -> None:
        service = self._choose(step.number)
        cut_off = self._cluster.network.cut_off
        cut_off.add(service.name)
        self._cluster.loop.call_later(step.seconds, cut_off.discard, service.name)

    def _jump_clock(self, step: ScheduledStep) -> None:
        service = self._choose(step.number)
        service.clock.offset += _CLOCK_JUMPS[step.number // 16 % len(_CLOCK_JUMPS)]

    def _reboot(self, step: ScheduledStep) -> None:
        service = self._choose(step.number, "agent")
        if service.is_alive:
            self._cluster.crash(service)
            self._cluster.machines[service.name.removeprefix("agent-")].boot()
            self._cluster.loop.call_later(
                max(step.seconds, _MIN_DOWN_SECONDS), self._cluster.start_if_down, service
            )

    def _raise(self, rate: str, level: float, step: ScheduledStep) -> None:
        setattr(self._rates, rate, level)
        self._cluster.loop.call_later(step.seconds, setattr, self._rates, rate, 0.0)

    def _trouble_store(self, step: ScheduledStep) -> None:
        level = 0.02 + step.number % 15 / 100
        self._raise("store_errors", level, step)
        self._raise("hidden_outcomes", level, step)

    def _compact(self, step: ScheduledStep) -> None:
        store = self._cluster.store
        complete(store.contents.compact(store.revision))
