"""Locks of claims that are being bound, and the events that wake whoever waits for a change of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dray.api.resource import ConsumerReference, ResourceClaim
from dray.client.timing import TimeSource
from dray.tasks import wait_for_first


@dataclass(slots=True)
class ClaimLock:
    """The lock of one claim, and the consumers that its holder reserves it for."""

    uid: str
    """The uid of the claim."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting_consumers: dict[str, ConsumerReference] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced when it is set: several pods may wait for one claim."""
    users: int = 0
    """How many tasks use this lock; it is removed with the last of them."""


class ClaimLocks:
    """The locks of all claims that somebody holds or waits for."""

    def __init__(self, time_source: TimeSource) -> None:
        self._time_source = time_source
        self._by_uid: dict[str, ClaimLock] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    @asynccontextmanager
    async def use(self, claim: ResourceClaim) -> AsyncIterator[ClaimLock]:
        """Yield the lock of a claim, which exists while somebody holds or waits for it."""
        claim_lock = self._enter(claim)
        try:
            yield claim_lock
        finally:
            self._leave(claim_lock)

    async def acquire(self, claim: ResourceClaim, consumer: ConsumerReference) -> ClaimLock:
        """Acquire the lock of a claim for a consumer; while it waits, the holder reserves for it, too.

        Whoever acquires several locks does so in the order of the uids of the claims.
        """
        claim_lock = self._enter(claim)
        claim_lock.waiting_consumers[consumer.uid] = consumer
        try:
            await claim_lock.lock.acquire()
        except BaseException:
            self._forget_consumer(claim_lock, consumer)
            raise
        return claim_lock

    def release(self, claim_lock: ClaimLock, consumer: ConsumerReference) -> None:
        """Release a lock that was acquired for a consumer."""
        claim_lock.lock.release()
        self._forget_consumer(claim_lock, consumer)

    def notify_changed(self, claim: ResourceClaim) -> None:
        """Wake the tasks that wait for a change of a claim."""
        claim_lock = self._by_uid.get(claim.metadata.uid)
        if claim_lock is not None:
            claim_lock.changed.set()
            claim_lock.changed = asyncio.Event()

    async def wait_for_change(self, changed: asyncio.Event, seconds: float) -> None:
        """Wait until a claim changes, at most so many seconds."""
        await wait_for_first(changed.wait(), self._time_source.sleep(seconds))

    def _enter(self, claim: ResourceClaim) -> ClaimLock:
        uid = claim.metadata.uid
        claim_lock = self._by_uid.get(uid)
        if claim_lock is None:
            claim_lock = self._by_uid[uid] = ClaimLock(uid)
        claim_lock.users += 1
        return claim_lock

    def _leave(self, claim_lock: ClaimLock) -> None:
        claim_lock.users -= 1
        if not claim_lock.users:
            del self._by_uid[claim_lock.uid]

    def _forget_consumer(self, claim_lock: ClaimLock, consumer: ConsumerReference) -> None:
        claim_lock.waiting_consumers.pop(consumer.uid, None)
        self._leave(claim_lock)
