"""Calls to drivers, each written down before it goes out and after it is answered.

Theory of operation: `record` is what the agent knows now; it is changed only between two awaits, by functions
of `plan`. `keep` makes it durable. A call goes out only when the record that says so is durable; what comes
back is put into the record at once and made durable before anybody acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from dray.client.rest_client import TROUBLE
from dray.node.claims import plan
from dray.node.claims.checkpoint import Checkpoint
from dray.node.claims.outcomes import GONE
from dray.node.claims.plan import Call, Driver
from dray.node.claims.published_devices import Published
from dray.node.claims.record import EMPTY, DeviceKey, Record
from dray.node.plugins.driver_interface import NO_ENTRY, DriverLine, Failure, Fault, PrepareOutcome

LONGEST_LOOK: Final = 5.0
"""Seconds in which the server may tell which devices are published; a failure is told without it as well."""


class Lines(Protocol):
    """Who is registered on this node; `Registry` is one."""

    def line(self, name: str, *, classic: bool | None = None) -> DriverLine | None:
        """The line to a driver; None when it is not registered."""
        ...


class Calling:
    """The record of an agent, and the calls that change it."""

    def __init__(
        self, checkpoint: Checkpoint, lines: Lines, published: Published, crash: Callable[[str], None]
    ) -> None:
        self.record: Record = EMPTY
        self._checkpoint = checkpoint
        self._lines = lines
        self._published = published
        self._crash = crash
        self.unkept = ""
        """Why the record could not be made durable last time; nothing when it could."""

    async def keep(self, point: str) -> str:
        """Make the record durable; what keeps us from it, or nothing. `point` is what was done before."""
        self._crash(f"{point}, not kept")
        try:
            await self._checkpoint.store(self.record)
        except OSError as trouble:
            self.unkept = str(trouble)
            return self.unkept
        self.unkept = ""
        self._crash(f"{point}, kept")
        return ""

    def present(self, drivers: Iterable[Driver]) -> frozenset[Driver]:
        """Those drivers that are registered now."""
        return frozenset(each for each in drivers if self._lines.line(each.name, classic=each.classic))

    async def prepare(self, calls: Iterable[Call]) -> None:
        """Have claims prepared by all their drivers at once; the answers are in the record then."""
        await asyncio.gather(*map(self._prepare, calls))

    async def _prepare(self, call: Call) -> None:
        line = self._lines.line(call.driver.name, classic=call.driver.classic)
        if line is None:
            self.record = plan.withdrawn(self.record, (call,))
            return
        answers = await line.prepare(call.claims)
        self._crash("driver prepared")
        missing = Failure(Fault.REFUSED, NO_ENTRY)
        outcomes = {uid: answers.get(uid, missing) for uid in call.uids}
        self.record = plan.prepared(self.record, call.driver.name, outcomes)
        # Not kept, it counts as asked for; that is safe, and it is kept with the next change.
        await self.keep("preparing answered")
        await self._explain(call.driver.name, outcomes)

    async def unprepare(self, calls: Iterable[Call]) -> None:
        """Have claims given back by all their drivers at once; the answers are in the record then."""
        await asyncio.gather(*map(self._unprepare, calls))

    async def _unprepare(self, call: Call) -> None:
        line = self._lines.line(call.driver.name, classic=call.driver.classic)
        if line is None:
            return
        answers = await line.unprepare(call.claims)
        self._crash("driver unprepared")
        missing = Failure(Fault.REFUSED, NO_ENTRY)
        outcomes = {uid: answers.get(uid, missing) for uid in call.uids}
        self.record = plan.unprepared(self.record, call.driver.name, outcomes)
        await self.keep("unpreparing answered")

    async def _explain(self, driver: str, outcomes: Mapping[str, PrepareOutcome]) -> None:
        """Add to failures what we know about them: perhaps the driver does not have the device any more."""
        for uid, outcome in outcomes.items():
            held = self.record.claim(uid)
            part = held.part(driver) if held is not None else None
            if part is None or not isinstance(outcome, Failure) or outcome.fault is Fault.NO_ANSWER:
                continue
            if GONE in outcome.text.lower():
                continue
            gone = await self._vanished(driver, part.wanted)
            if gone:
                said = f"{GONE}: {driver} does not publish {gone} any more; it said: {outcome.text}"
                more = {uid: Failure(outcome.fault, said)}
                self.record = plan.prepared(self.record, driver, more)

    async def _vanished(self, driver: str, wanted: Iterable[DeviceKey]) -> str:
        """Devices that are not published any more, as far as the server says so soon."""
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                gone = await self._published.vanished(driver, wanted)
        except (*TROUBLE, TimeoutError):
            return ""
        return ", ".join(f"{key.pool}/{key.device}" for key in gone)
