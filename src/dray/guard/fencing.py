"""Fencing: a write to a claim, so that no write which was admitted for an earlier revision can be stored.

Theory of operation: an admitted write is stored only while its claim is at the revision that admission saw. A
guard that does not know what was admitted, because it takes over from one that died, writes an annotation to
every claim that has no allocation: whatever was on its way for them is reviewed again. Claims with an
allocation need no fence, because API servers do not let an allocation change.

A fence is complete when the watch has shown it, because only then the ledger has what was stored before it.

The server may refuse a fence, for example because a policy forbids annotations. Then only time helps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dray.api.resource import ResourceClaim
from dray.claims.ledger.rows import Holder
from dray.client.client import Client
from dray.client.errors import ConflictError, ForbiddenError, InvalidObjectError, NotFoundError
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.guard import metrics as guard_metrics
from dray.guard.allocation_ledger import AllocationLedger
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

FENCE_ANNOTATION: Final = "dray.dev/guard-fence"
_AT_ONCE: Final = 16
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True)
class ClaimFencer:
    """Fences claims of a ledger."""

    client: Client
    ledger: AllocationLedger
    metrics: MetricsRegistry
    log: StructuredLogger

    async def fence_all(self, claims: Iterable[Holder], why: str) -> bool:
        """Fence claims and wait until the ledger shows it; False when the server refuses some of them."""
        waiting = iter(list(claims))
        refused: list[Holder] = []

        async def fence_some() -> None:
            for holder in waiting:
                if not await self._fence_with_retries(holder, why):
                    refused.append(holder)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(fence_some())
        return not refused

    async def _fence_with_retries(self, holder: Holder, why: str) -> bool:
        """Retry while the server does not answer or the claim changes; False when it refuses the write."""
        backoff = Backoff(self.client.options.time_source, initial=0.1, maximum=5.0)
        while True:
            try:
                await self.fence(holder, why)
                return True
            except CALL_ERRORS as failed:
                self.log.warning("a claim cannot be fenced", claim=str(holder), why=str(failed))
                if isinstance(failed, ForbiddenError | InvalidObjectError):
                    return False
                await backoff.wait()

    async def fence(self, holder: Holder, why: str) -> None:
        """Fence one claim and wait until the ledger shows it."""
        mark = f"{self.client.options.time_source.clock.now().timestamp():.6f}"
        patch = MergePatch({"metadata": {"uid": holder.uid, "annotations": {FENCE_ANNOTATION: mark}}})
        try:
            fenced = await self.client.patch(ResourceClaim, holder.name, patch, holder.namespace)
        except (NotFoundError, ConflictError, InvalidObjectError):
            if not await self._is_gone(holder):
                raise
            await self._wait_until_gone(holder)
            return
        self.metrics.count(guard_metrics.FENCED, why)
        revision = int(fenced.metadata.resource_version)
        while (seen := self.ledger.claims.get(holder.uid)) is not None and seen.revision < revision:
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_gone(self, holder: Holder) -> bool:
        """Whether the claim, with this uid, does not exist any more: then nothing can be stored for it."""
        try:
            claim = await self.client.get(ResourceClaim, holder.name, holder.namespace)
        except NotFoundError:
            return True
        return claim.metadata.uid != holder.uid

    async def _wait_until_gone(self, holder: Holder) -> None:
        while holder.uid in self.ledger.claims and holder.uid not in self.ledger.orphans:
            await asyncio.sleep(_POLL_SECONDS)
        if holder.uid not in self.ledger.orphans:
            self.ledger.release(holder.uid)
