"""Claims that went while the driver did not run: which ones the driver unprepares by itself at its start.

Theory of operation: a device that stays prepared for a claim that is gone is lost to other claims, and a
device that is unprepared while a container uses it is dangerous. So the driver acts only when nobody can use
the device: dray's agent has announced what it holds and this claim is not among it, or the claim was prepared
in an earlier boot of the machine. Everything else is left to the agent, logged and counted: a kubelet calls
`NodeUnprepareResources` for claims of its checkpoint that no pod uses, every 60 seconds.
"""

from __future__ import annotations

import asyncio

from dray.driver.preparing.prepared_claims import PreparedClaimStore
from dray.driver.preparing.prepared_records import (
    PreparedClaimRecord,
    collect_device_keys,
    format_devices,
)
from dray.driver.preparing.preparer import ClaimPreparer, RequestedClaim
from dray.telemetry.logs import StructuredLogger


class GoneClaims:
    """The prepared claims of one driver that are gone."""

    def __init__(
        self, driver: str, store: PreparedClaimStore, preparer: ClaimPreparer, log: StructuredLogger
    ) -> None:
        self._driver, self._store, self._preparer, self._log = driver, store, preparer, log
        self._left_to_agent: frozenset[str] = frozenset()

    async def reconcile(self) -> None:
        """Unprepare the claims that nobody can use; raises `CALL_ERRORS` when the API does not answer."""
        lookup, held = self._preparer.lookup, set()
        for record in (await asyncio.to_thread(self._store.list_records)).values():
            if not await lookup.is_gone(record):
                continue
            reason = "" if self._is_of_earlier_boot(record) else await lookup.explain_hold(record.uid)
            if reason:
                held.add(record.uid)
                self._log_left(record, reason)
            else:
                await self._give_back(record)
        self._left_to_agent = frozenset(held)

    def count_left_to_agent(self) -> int:
        """Count the claims that were gone at the last reconciliation and are still prepared."""
        return len(self._left_to_agent & self._store.list_records().keys())

    def _is_of_earlier_boot(self, record: PreparedClaimRecord) -> bool:
        """Whether a claim was prepared in an earlier boot: no container of that boot runs any more."""
        return bool(record.boot_id and self._store.boot_id) and record.boot_id != self._store.boot_id

    def _log_left(self, record: PreparedClaimRecord, reason: str) -> None:
        self._log.warning(
            "a claim is gone and stays prepared until the agent unprepares it",
            driver=self._driver,
            claim=record.label,
            uid=record.uid,
            devices=format_devices(collect_device_keys(record)),
            why=reason,
        )

    async def _give_back(self, record: PreparedClaimRecord) -> None:
        self._log.warning("a claim is gone: giving its devices back", driver=self._driver, claim=record.label)
        ref = RequestedClaim(record.uid, record.namespace, record.name)
        result = (await self._preparer.unprepare([ref]))[record.uid]
        if result.error:
            self._log.error("cannot give devices back", driver=self._driver, error=result.error)
