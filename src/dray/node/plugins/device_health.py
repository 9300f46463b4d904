"""How well the devices of this node are, as their drivers stream it.

Theory of operation: for each driver that streams there is one task that reads, and starts again when the
stream breaks. A device is as well as the last word about it, and that word holds for as long as the driver
said, or for half a minute; after that nobody knows. When word came counts by our clock, because a driver's
clock may be anything. A driver tells all of its devices each time; one that it leaves out is unknown.

Rules for this file: what follows for pods is decided elsewhere; listeners hear which driver has news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from dray.client.timing import Backoff, Tempo
from dray.node.plugins.driver_interface import DeviceHealth, DriverLine
from dray.node.plugins.driver_replies import HEALTHY, UNHEALTHY, UNKNOWN

__all__ = ["HEALTHY", "UNHEALTHY", "UNKNOWN", "Health", "Wellbeing"]

HOLDS: Final = 30.0
"""Seconds for which the word of a driver holds that does not say for how long."""
MOST_DEVICES: Final = 10_000
"""Devices of one driver that are kept; more are not on any node."""

Listener = Callable[[str], None]


class Wellbeing(NamedTuple):
    """How a device is, in the words of a pod's status, and what its driver says about it."""

    state: str
    message: str = ""


NOT_KNOWN: Final = Wellbeing(UNKNOWN)


class Drivers(Protocol):
    """Who is there."""

    def drivers(self) -> Mapping[str, DriverLine]: ...


@dataclass(frozen=True, slots=True)
class _Word:
    """The last word about a device, and until when it holds."""

    health: DeviceHealth
    until: float


class Health:
    """What the drivers of a node say about their devices."""

    def __init__(self, drivers: Drivers, tempo: Tempo | None = None, *, poll: float = 0.5) -> None:
        self._drivers = drivers
        self._tempo = tempo or Tempo()
        self._poll = poll
        self._words: dict[str, dict[tuple[str, str], _Word]] = {}
        self._told: dict[str, Mapping[tuple[str, str], Wellbeing]] = {}
        """What listeners know."""
        self._following: dict[str, tuple[DriverLine, asyncio.Task[None]]] = {}
        self._listeners: list[Listener] = []

    def of(self, driver: str, pool: str, device: str) -> Wellbeing:
        """How a device is."""
        word = self._words.get(driver, {}).get((pool, device))
        return NOT_KNOWN if word is None else self._now(word)

    def listen(self, changed: Listener) -> None:
        """Be told the name of a driver when a device of it is not as it was."""
        self._listeners.append(changed)

    async def run(self) -> None:
        """Follow the drivers until cancelled."""
        try:
            while True:
                self.look()
                await self._tempo.sleep(self._poll)
        finally:
            tasks = [task for _, task in self._following.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._following.clear()

    def look(self) -> None:
        """Follow who came, leave who went, and notice which words hold no longer."""
        here = self._drivers.drivers()
        for name, (line, task) in list(self._following.items()):
            if here.get(name) is not line:
                task.cancel()
                del self._following[name]
        for name in self._words.keys() - here.keys():
            del self._words[name]
            self._tell(name)
        for name, line in here.items():
            if name not in self._following:
                self._following[name] = line, asyncio.create_task(self._follow(line))
        for name in self._words:
            self._tell(name)

    async def _follow(self, line: DriverLine) -> None:
        """Read what a driver streams, again and again, until it turns out that it does not."""
        backoff = Backoff(self._tempo, first=1.0, longest=30.0)
        while (stream := line.health()) is not None:
            # Closed here, because the call under it goes on until then.
            closing: Any = stream
            async with aclosing(closing):
                async for states in stream:
                    self._hear(line.name, states)
                    backoff.reset()
            await backoff.wait()

    def _hear(self, driver: str, states: Sequence[DeviceHealth]) -> None:
        now = self._tempo.clock.monotonic()
        self._words[driver] = {
            (each.pool, each.device): _Word(each, now + (each.timeout or HOLDS))
            for each in states[:MOST_DEVICES]
        }
        self._tell(driver)

    def _now(self, word: _Word) -> Wellbeing:
        if self._tempo.clock.monotonic() >= word.until:
            return NOT_KNOWN
        return Wellbeing(word.health.health, word.health.message)

    def _tell(self, driver: str) -> None:
        """Tell listeners, if there is anything new to tell."""
        now = {device: self._now(word) for device, word in self._words.get(driver, {}).items()}
        known = {device: state for device, state in now.items() if state != NOT_KNOWN}
        if known == self._told.get(driver, {}):
            return
        self._told[driver] = known
        for changed in self._listeners:
            changed(driver)
