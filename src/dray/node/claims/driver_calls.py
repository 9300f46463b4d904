"""Calls to drivers, each written down before it goes out and after it is answered.

Theory of operation: `record` is what the agent knows now; it is changed only between two awaits, by functions
of `plan`. `save` makes it durable. A call goes out only when the record that says so is durable; what comes
back is put into the record at once and made durable before anybody acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from dray.client.rest_client import CALL_ERRORS
from dray.node.claims import plan
from dray.node.claims.checkpoint import Checkpoint
from dray.node.claims.outcomes import DEVICE_GONE_TEXT
from dray.node.claims.plan import DriverCall, DriverKey
from dray.node.claims.published_devices import PublishedDevices
from dray.node.claims.record import EMPTY_RECORD, ClaimsRecord, RecordedDevice
from dray.node.plugins.driver_interface import (
    MISSING_ENTRY,
    DriverCallFailure,
    DriverCallFault,
    DriverClient,
    PrepareOutcome,
)

PUBLISHED_LOOKUP_SECONDS: Final = 5.0
"""Seconds in which the server may tell which devices are published; a failure is told without it as well."""


class DriverLookup(Protocol):
    """Who is registered on this node; `Registry` is one."""

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None:
        """The line to a driver; None when it is not registered."""
        ...


class CheckpointedCalls:
    """The record of an agent, and the calls that change it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        drivers: DriverLookup,
        published: PublishedDevices,
        crash_point: Callable[[str], None],
    ) -> None:
        self.record: ClaimsRecord = EMPTY_RECORD
        self._checkpoint = checkpoint
        self._drivers = drivers
        self._published = published
        self._crash_point = crash_point
        self.save_error = ""
        """Why the record could not be made durable last time; nothing when it could."""

    async def save(self, point: str) -> str:
        """Make the record durable; what keeps us from it, or nothing. `point` is what was done before."""
        self._crash_point(f"{point}, not kept")
        try:
            await self._checkpoint.store(self.record)
        except OSError as trouble:
            self.save_error = str(trouble)
            return self.save_error
        self.save_error = ""
        self._crash_point(f"{point}, kept")
        return ""

    def filter_registered(self, drivers: Iterable[DriverKey]) -> frozenset[DriverKey]:
        """Those drivers that are registered now."""
        return frozenset(
            each for each in drivers if self._drivers.find_driver(each.name, classic=each.classic)
        )

    async def prepare(self, calls: Iterable[DriverCall]) -> None:
        """Have claims prepared by all their drivers at once; the answers are in the record then."""
        await asyncio.gather(*map(self._call_prepare, calls))

    async def _call_prepare(self, call: DriverCall) -> None:
        line = self._drivers.find_driver(call.driver.name, classic=call.driver.classic)
        if line is None:
            self.record = plan.withdraw_calls(self.record, (call,))
            return
        answers = await line.prepare(call.claims)
        self._crash_point("driver prepared")
        missing = DriverCallFailure(DriverCallFault.REFUSED, MISSING_ENTRY)
        outcomes = {uid: answers.get(uid, missing) for uid in call.uids}
        self.record = plan.record_prepared(self.record, call.driver.name, outcomes)
        # Not kept, it counts as asked for; that is safe, and it is kept with the next change.
        await self.save("preparing answered")
        await self._explain_failures(call.driver.name, outcomes)

    async def unprepare(self, calls: Iterable[DriverCall]) -> None:
        """Have claims given back by all their drivers at once; the answers are in the record then."""
        await asyncio.gather(*map(self._call_unprepare, calls))

    async def _call_unprepare(self, call: DriverCall) -> None:
        line = self._drivers.find_driver(call.driver.name, classic=call.driver.classic)
        if line is None:
            return
        answers = await line.unprepare(call.claims)
        self._crash_point("driver unprepared")
        missing = DriverCallFailure(DriverCallFault.REFUSED, MISSING_ENTRY)
        outcomes = {uid: answers.get(uid, missing) for uid in call.uids}
        self.record = plan.record_unprepared(self.record, call.driver.name, outcomes)
        await self.save("unpreparing answered")

    async def _explain_failures(self, driver: str, outcomes: Mapping[str, PrepareOutcome]) -> None:
        """Add to failures what we know about them: perhaps the driver does not have the device any more."""
        for uid, outcome in outcomes.items():
            held = self.record.find_claim(uid)
            part = held.find_part(driver) if held is not None else None
            if (
                part is None
                or not isinstance(outcome, DriverCallFailure)
                or outcome.fault is DriverCallFault.NO_ANSWER
            ):
                continue
            if DEVICE_GONE_TEXT in outcome.text.lower():
                continue
            gone = await self._find_unpublished(driver, part.wanted)
            if gone:
                said = (
                    f"{DEVICE_GONE_TEXT}: {driver} does not publish {gone} any more; it said: {outcome.text}"
                )
                more = {uid: DriverCallFailure(outcome.fault, said)}
                self.record = plan.record_prepared(self.record, driver, more)

    async def _find_unpublished(self, driver: str, wanted: Iterable[RecordedDevice]) -> str:
        """Devices that are not published any more, as far as the server says so soon."""
        try:
            async with asyncio.timeout(PUBLISHED_LOOKUP_SECONDS):
                gone = await self._published.find_missing(driver, wanted)
        except (*CALL_ERRORS, TimeoutError):
            return ""
        return ", ".join(f"{key.pool}/{key.device}" for key in gone)
