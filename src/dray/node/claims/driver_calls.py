"""Driver calls with write-ahead recording: each is in the checkpoint before it is made and after its reply.

Theory of operation: `record` is the current state of the agent's claims; it changes only between two awaits,
by functions of `plan`, and under the locks kept here. `save` writes it. A call is made only after the record
that contains it is durable; its outcome is put into the record at once and written before anyone acts on it.
The outcome need not survive a loss of power: without it, the call counts as made and is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from dray.client.rest_client import CALL_ERRORS
from dray.durable import Durability
from dray.node.claims import plan
from dray.node.claims.checkpoint import Checkpoint
from dray.node.claims.outcomes import DEVICE_GONE_TEXT
from dray.node.claims.plan import DriverCall, DriverKey
from dray.node.claims.record import EMPTY_RECORD, ClaimsRecord, RecordedDevice
from dray.node.keyed_locks import NodeClaimLocks, PodTaskQueues
from dray.node.plugins.driver_interface import (
    MISSING_ENTRY,
    DriverCallFailure,
    DriverCallFault,
    DriverClient,
    PrepareOutcome,
)
from dray.node.plugins.published_slices import PublishedSlices

T = TypeVar("T")

PUBLISHED_LOOKUP_SECONDS: Final = 5.0
"""Time limit for listing published devices; without a reply, a failure is reported unexplained."""


class DriverLookup(Protocol):
    """Finds the drivers registered on this node; `PluginRegistry` implements it."""

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None:
        """Return the client of a driver; None when it is not registered."""
        ...


class CheckpointedCalls:
    """The record of an agent, the locks for changing it, and the driver calls that change it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        drivers: DriverLookup,
        published: PublishedSlices,
        crash_point: Callable[[str], None],
    ) -> None:
        self.record: ClaimsRecord = EMPTY_RECORD
        self.claim_locks = NodeClaimLocks()
        self.pod_queues = PodTaskQueues()
        self._checkpoint = checkpoint
        self._drivers = drivers
        self._published = published
        self._crash_point = crash_point
        self.save_error = ""
        """Why the last attempt to make the record durable failed; empty when it succeeded."""

    async def save(self, point: str, durability: Durability = Durability.POWER_LOSS) -> str:
        """Write the record; return what failed, or nothing. `point` names the step before."""
        self._crash_point(f"{point}, not kept")
        try:
            await self._checkpoint.store(self.record, durability)
        except OSError as error:
            self.save_error = str(error)
            return self.save_error
        self.save_error = ""
        self._crash_point(f"{point}, kept")
        return ""

    def filter_registered(self, drivers: Iterable[DriverKey]) -> frozenset[DriverKey]:
        """Return those drivers that are registered now."""
        return frozenset(
            each for each in drivers if self._drivers.find_driver(each.name, classic=each.classic)
        )

    async def prepare(self, calls: Iterable[DriverCall]) -> None:
        """Have all drivers prepare claims at the same time; the outcomes are in the record afterwards."""
        await asyncio.gather(*map(self._call_prepare, calls))

    async def _call_prepare(self, call: DriverCall) -> None:
        client = self._drivers.find_driver(call.driver.name, classic=call.driver.classic)
        if client is None:
            self.record = plan.withdraw_calls(self.record, (call,))
            return
        outcomes = _complete_outcomes(call, await client.prepare(call.claims))
        self._crash_point("driver prepared")
        self.record = plan.record_prepared(self.record, call.driver.name, outcomes)
        # When this is lost, the claim counts as preparing and the call is repeated.
        await self.save("preparing answered", Durability.THIS_BOOT)
        await self._explain_failures(call.driver.name, outcomes)

    async def unprepare(self, calls: Iterable[DriverCall]) -> None:
        """Have all drivers unprepare claims at the same time; the outcomes are in the record afterwards."""
        await asyncio.gather(*map(self._call_unprepare, calls))

    async def _call_unprepare(self, call: DriverCall) -> None:
        client = self._drivers.find_driver(call.driver.name, classic=call.driver.classic)
        if client is None:
            return
        outcomes = _complete_outcomes(call, await client.unprepare(call.claims))
        self._crash_point("driver unprepared")
        self.record = plan.record_unprepared(self.record, call.driver.name, outcomes)
        # When this is lost, the claim counts as unpreparing and the call is repeated.
        await self.save("unpreparing answered", Durability.THIS_BOOT)

    async def _explain_failures(self, driver: str, outcomes: Mapping[str, PrepareOutcome]) -> None:
        """Add to a failure that the driver does not publish the device any more, where that is so."""
        for uid, outcome in outcomes.items():
            claim = self.record.find_claim(uid)
            part = claim.find_part(driver) if claim is not None else None
            if (
                part is None
                or not isinstance(outcome, DriverCallFailure)
                or outcome.fault is DriverCallFault.NO_ANSWER
                or DEVICE_GONE_TEXT in outcome.text.lower()
            ):
                continue
            gone = await self._find_unpublished(driver, part.wanted)
            if gone:
                text = (
                    f"{DEVICE_GONE_TEXT}: {driver} does not publish {gone} any more; it said: {outcome.text}"
                )
                explained = {uid: DriverCallFailure(outcome.fault, text)}
                self.record = plan.record_prepared(self.record, driver, explained)

    async def _find_unpublished(self, driver: str, devices: Iterable[RecordedDevice]) -> str:
        """Find devices missing from their pools; empty when there are none or the server does not reply."""
        try:
            async with asyncio.timeout(PUBLISHED_LOOKUP_SECONDS):
                published = await self._published.list_devices(driver)
        except (*CALL_ERRORS, TimeoutError):
            return ""
        return ", ".join(
            f"{each.pool}/{each.device}"
            for each in devices
            if each.pool in published and each.device not in published[each.pool]
        )


def _complete_outcomes(
    call: DriverCall, outcomes: Mapping[str, T | DriverCallFailure]
) -> dict[str, T | DriverCallFailure]:
    """Return an outcome for every claim of a call, also for those that the driver left out."""
    missing = DriverCallFailure(DriverCallFault.REFUSED, MISSING_ENTRY)
    return {uid: outcomes.get(uid, missing) for uid in call.uids}
