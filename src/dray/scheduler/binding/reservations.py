"""Reservations of claims for pods: what is written to a claim for its consumers, and how it is taken back.

Theory of operation: a claim gets its allocation and its consumers in one write of its status, on the version
the placement was decided on; after a conflict the newer version is read and checked again. Pods that share a
claim take its lock one after the other, and the holder of the lock reserves the claim for all that wait, so a
claim of a hundred pods is not written a hundred times. Where nobody keeps a ledger, an allocation is checked
for duplicates before any pod goes on with it (see `duplicate_check`); the lock is held meanwhile.

Rules for this file: one claim at a time, and nothing about bindings of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from dray.api.core import Node, Pod
from dray.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from dray.claims import reservation
from dray.claims.binding_conditions import has_binding_conditions
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.errors import ConflictError, InvalidObjectError, NotFoundError
from dray.clock import format_timestamp
from dray.placement.plugins.dynamic_resources import find_unreachable_claim
from dray.scheduler.assume_cache import ClaimAssumeCache
from dray.scheduler.binding.claim_locks import ClaimLock, ClaimLocks
from dray.scheduler.binding.duplicate_check import DuplicateCheck
from dray.scheduler.binding.errors import DuplicateAllocationError, StalePlacementError

MAX_WRITE_ATTEMPTS: Final = 5
"""How often a claim that others write too is read and checked again."""


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """A claim as it is stored, and as it shall be with its allocation and its consumers."""

    stored: ResourceClaim
    reserved: ResourceClaim

    @property
    def needs_finalizer(self) -> bool:
        """Whether the claim lacks the finalizer that keeps it while it has devices."""
        return FINALIZER not in self.stored.metadata.finalizers

    @property
    def new_consumers(self) -> set[str]:
        """The uids of the consumers that the change adds."""
        before = {user.uid for user in self.stored.status.reserved_for}
        return {user.uid for user in self.reserved.status.reserved_for} - before


class Reservations:
    """Reserves claims for pods."""

    def __init__(self, client: Client, claims: ClaimAssumeCache) -> None:
        self._client, self._claims = client, claims
        self._clock = client.options.time_source.clock
        self.locks = ClaimLocks(client.options.time_source)
        self._reserved_by_us: set[tuple[str, str]] = set()
        """Claim and pod uids of reservations this scheduler made, while these pods are in flight.
        Reservations that another scheduler made for the same pod are not undone.
        """
        self.conflicts = self.duplicates = 0
        """Writes that met another version, or a ledger that objected; and allocations that were taken back
        because another claim had the same devices. For metrics.
        """
        self.duplicate_check: DuplicateCheck | None = None
        self.needs_duplicate_check: Callable[[], bool] = lambda: True
        """Whether nobody keeps a ledger, so that new allocations are checked."""

    @property
    def checks_duplicates(self) -> bool:
        """Whether an allocation has to be checked after it is stored."""
        return self.duplicate_check is not None and self.needs_duplicate_check()

    async def reserve(self, claim: ResourceClaim, pod: Pod, node: Node) -> None:
        """Allocate a claim and reserve it for a pod; raise when that fails."""
        consumer = reservation.build_consumer(pod)
        claim_lock = await self.locks.acquire(claim, consumer)
        try:
            for _ in range(MAX_WRITE_ATTEMPTS):
                if await self._try_reserve(claim, pod, node, claim_lock):
                    return
        finally:
            self.locks.release(claim_lock, consumer)
        raise StalePlacementError(f"claim {_format_claim_name(claim)} changes faster than it can be written")

    async def _try_reserve(self, claim: ResourceClaim, pod: Pod, node: Node, claim_lock: ClaimLock) -> bool:
        """Try once to reserve a claim; False when the server has another version than we knew."""
        change = self.plan_change(claim, pod, node, claim_lock)
        if change is None:
            return await self.is_still_reserved(claim, pod)
        try:
            if change.needs_finalizer:
                change = await self._add_finalizer(change)
            written = await self._write_status(change.stored, change.reserved)
        except ConflictError as refused:
            await self.reread_after_conflict(change.stored, refused.message)
            return False
        except NotFoundError:
            raise self.forget_deleted(claim) from None
        self.record_written(change, written)
        if change.stored.status.allocation is None:
            await self._check_duplicates(written, change.new_consumers)
        return True

    def plan_change(
        self, claim: ResourceClaim, pod: Pod, node: Node, claim_lock: ClaimLock
    ) -> ReservationChange | None:
        """Plan what has to be written to a claim whose lock we hold; None when it is reserved for the pod
        already. Raise when the pod cannot use it on this node any more.
        """
        stored = self._get_reachable(claim, node)
        if _is_reserved(stored, pod):
            return None
        why = reservation.explain_unreservable(stored, pod)
        if why:
            raise StalePlacementError(why)
        counted = self._claims.get(stored.metadata.namespace, stored.metadata.name)
        allocation = counted.status.allocation if counted is not None else None
        if allocation is None:
            raise StalePlacementError(f"claim {_format_claim_name(claim)} has lost its devices")
        reserved = self._build_reserved_claim(stored, allocation, claim_lock.waiting_consumers.values())
        return ReservationChange(stored, reserved)

    def is_reserved(self, claim: ResourceClaim, pod: Pod, node: Node) -> bool:
        """Whether a claim is reserved for a pod already; raise when it is out of reach of the node."""
        return _is_reserved(self._get_reachable(claim, node), pod)

    def waits_for_devices(self, claim: ResourceClaim) -> bool:
        """Whether the devices that a claim has or gets have to become ready before a pod is bound."""
        counted = self._claims.get(claim.metadata.namespace, claim.metadata.name)
        return counted is not None and has_binding_conditions(counted)

    def _get_reachable(self, claim: ResourceClaim, node: Node) -> ResourceClaim:
        """Return the stored claim; raise when it is gone, or out of reach of a node."""
        stored = self._claims.get_stored(claim)
        if stored is None:
            raise StalePlacementError(f"claim {_format_claim_name(claim)} was deleted")
        if find_unreachable_claim((stored,), node) is not None:
            raise StalePlacementError(
                f"claim {_format_claim_name(claim)} got its devices elsewhere, out of reach of "
                f"{node.metadata.name}"
            )
        return stored

    def _build_reserved_claim(
        self, stored: ResourceClaim, allocation: AllocationResult, consumers: Iterable[ConsumerReference]
    ) -> ResourceClaim:
        """Build the claim with its allocation, reserved for all waiting consumers up to the limit."""
        old = stored.status
        if old.allocation is None:
            # Always: kube-scheduler adds a missing one with the next consumer, and allocations are immutable.
            now = format_timestamp(self._clock.now())
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=now)
        there = {consumer.uid for consumer in old.reserved_for}
        new = [consumer for consumer in consumers if consumer.uid not in there]
        free = reservation.MAX_CONSUMERS - len(old.reserved_for)
        status = msgspec.structs.replace(
            old, allocation=old.allocation or allocation, reserved_for=(*old.reserved_for, *new[:free])
        )
        return msgspec.structs.replace(stored, status=status)

    def record_written(self, change: ReservationChange, written: ResourceClaim) -> None:
        """Take over a claim that was written, and which of its reservations are ours."""
        self._claims.update(written)
        self._reserved_by_us.update((written.metadata.uid, uid) for uid in change.new_consumers)

    def is_reserved_by_us(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether this scheduler reserved a claim for a pod, which is in flight."""
        return (claim.metadata.uid, pod.metadata.uid) in self._reserved_by_us

    async def is_still_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether the server confirms a reservation that this scheduler did not make itself.

        A server that was restored from a backup has older pods and claims, and the watch may show the pod
        first.
        """
        if self.is_reserved_by_us(claim, pod):
            return True
        now = await self._read_claim(claim)
        if not _is_reserved(now, pod):
            return False
        await self._check_duplicates(now, {pod.metadata.uid})
        return True

    async def _check_duplicates(self, written: ResourceClaim, consumers: set[str]) -> None:
        """Take back an allocation that another claim holds, too; only where nobody keeps a ledger."""
        if self.duplicate_check is None or not self.checks_duplicates:
            return
        duplicate = await self.duplicate_check.find_duplicate(written)
        if duplicate:
            self.duplicates += 1
            await self._remove_consumers(written, consumers)
            raise DuplicateAllocationError(
                f"claim {_format_claim_name(written)} was allocated, and gave its devices back: {duplicate}"
            )

    # --- writes and reads ---

    async def _add_finalizer(self, change: ReservationChange) -> ReservationChange:
        """Add the finalizer that keeps a claim while it has devices, before it gets any."""
        old = change.stored
        metadata = msgspec.structs.replace(old.metadata, finalizers=(*old.metadata.finalizers, FINALIZER))
        protected = await self._client.patch_changes(old, msgspec.structs.replace(old, metadata=metadata))
        self._claims.update(protected)
        reserved = msgspec.structs.replace(change.reserved, metadata=protected.metadata)
        return ReservationChange(protected, reserved)

    async def _write_status(self, old: ResourceClaim, new: ResourceClaim) -> ResourceClaim:
        """Write the status; only the differences when the server has fields that we do not know."""
        if self._client.get_unknown_fields(ResourceClaim):
            return await self._client.patch_changes(old, new, subresource="status")
        try:
            return await self._client.update_status(new)
        except InvalidObjectError:
            # A peer allocated it with opaque parameters that JSON changes: a patch of the rest may pass.
            if old.status.allocation is None or new.status.allocation is None:
                raise
            return await self._client.patch_changes(old, new, subresource="status")

    async def reread_after_conflict(self, sent: ResourceClaim, message: str) -> None:
        """Read a claim again; a refusal of the very version we sent is about its devices."""
        self.conflicts += 1
        await self._reread(sent, message)

    async def _reread(self, sent: ResourceClaim, message: str) -> None:
        now = await self._read_claim(sent)
        if now.metadata.resource_version == sent.metadata.resource_version:
            raise StalePlacementError(message) from None

    async def _read_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Read the claim, or another one of its name, from the server."""
        try:
            now = await self._client.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
        except NotFoundError:
            raise self.forget_deleted(claim) from None
        if now.metadata.uid != claim.metadata.uid:
            self._claims.remove(claim)
        self._claims.update(now)
        return now

    def forget_deleted(self, claim: ResourceClaim) -> StalePlacementError:
        """Forget a claim that the server does not have; return the error that says so."""
        self._claims.remove(claim)
        return StalePlacementError(f"claim {_format_claim_name(claim)} was deleted")

    # --- undo ---

    async def release(self, claim: ResourceClaim, pod: Pod) -> None:
        """Remove the pod from one claim; the allocation goes with the last consumer."""
        async with self.locks.use(claim) as claim_lock, claim_lock.lock:
            await self._remove_consumers(claim, {pod.metadata.uid})

    async def _remove_consumers(self, claim: ResourceClaim, consumers: set[str]) -> None:
        """Remove consumers from a claim whose lock we hold; the allocation goes with the last one."""
        for _ in range(MAX_WRITE_ATTEMPTS):
            stored = self._claims.get_stored(claim)
            if stored is None:
                return
            left = tuple(user for user in stored.status.reserved_for if user.uid not in consumers)
            status = msgspec.structs.replace(stored.status, reserved_for=left)
            if not left:
                status = msgspec.structs.replace(status, allocation=None, devices=())
            if status == stored.status:
                return
            try:
                self._claims.update(
                    await self._write_status(stored, msgspec.structs.replace(stored, status=status))
                )
                return
            except ConflictError as refused:
                await self._reread(stored, refused.message)
        raise StalePlacementError(f"claim {_format_claim_name(claim)} changes faster than it can be written")

    def record_ours(self, claim: ResourceClaim, pod: Pod) -> None:
        """Treat a reservation as ours, whoever made it."""
        self._reserved_by_us.add((claim.metadata.uid, pod.metadata.uid))

    def forget(self, claim: ResourceClaim, pod: Pod) -> None:
        """Forget whose a reservation is: its pod is no longer in flight."""
        self._reserved_by_us.discard((claim.metadata.uid, pod.metadata.uid))


def _is_reserved(stored: ResourceClaim, pod: Pod) -> bool:
    return stored.status.allocation is not None and reservation.is_reserved_for(stored, pod)


def _format_claim_name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
