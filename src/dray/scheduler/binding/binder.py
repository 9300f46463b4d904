"""The binder: writes a placement to the server, claim by claim and then the pod, or undoes it.

Theory of operation: a claim gets its allocation and its consumer in one write of its status, on the version
the placement was decided on; after a conflict the newer version is read and checked again. Pods that share a
claim take its lock one after the other, and the holder of the lock reserves the claim for all that wait, so a
claim of a hundred pods is not written a hundred times. When every claim is reserved for the pod and its
devices are ready, the binding is posted. After a definite failure the binder removes the pod from its claims
again and releases devices that no other pod uses. After an uncertain one (no response came) everything stays,
and the watch shows the outcome. Where nobody keeps a ledger, an allocation is checked for duplicates before
any pod goes on with it (see `duplicate_check`); the lock of the claim is held meanwhile.

Rules for this file: the binder decides nothing that the scheduling cycle did not decide. A placement that
does not fit any more raises `StalePlacementError`, and the pod is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dray.api.core import Node, Pod
from dray.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from dray.claims import reservation
from dray.claims.binding_conditions import (
    MAX_WAIT_SECONDS,
    DeviceFailure,
    check_readiness,
    explain_not_ready,
    has_binding_conditions,
)
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.errors import ApiError, ConflictError, InvalidObjectError, NotFoundError
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.clock import format_timestamp
from dray.placement.plugins.dynamic_resources import find_unreachable_claim
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.assume_cache import ClaimAssumeCache
from dray.scheduler.binding.claim_locks import ClaimLock, ClaimLocks
from dray.scheduler.binding.duplicate_check import DuplicateCheck
from dray.scheduler.binding.errors import (
    DevicesNotReadyError,
    DuplicateAllocationError,
    PodGoneOrBoundError,
    StalePlacementError,
)

MAX_WRITE_ATTEMPTS: Final = 5
"""How often a claim that others write too is read and checked again."""


class Binder:
    """Writes placements."""

    def __init__(self, client: Client, claims: ClaimAssumeCache, max_wait: float = MAX_WAIT_SECONDS) -> None:
        self._client = client
        self._claims = claims
        self._time_source = client.options.time_source
        self._max_wait = max_wait
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

    async def bind_claims(
        self, placement: Placement, on_waiting: Callable[[str], None] = lambda _why: None
    ) -> None:
        """Allocate and reserve the claims of a placement and wait until their devices are ready; raise when
        that fails.

        `on_waiting` receives what the devices wait for while they are not ready: that may take minutes.
        """
        subject = placement.pending_pod
        try:
            for claim in subject.claims:
                await self._bind_claim(claim, subject.pod, placement.node)
            for claim in subject.claims:
                await self._wait_for_devices(claim, on_waiting)
        except DevicesNotReadyError:
            # A scheduler that ran before may have reserved them: they are of no use to the pod all the same.
            if not await self.is_gone_or_bound(subject.pod):
                self._reserved_by_us.update(
                    (claim.metadata.uid, subject.pod.metadata.uid) for claim in subject.claims
                )
            await self.unreserve_claims(placement)
            raise
        except (ApiError, StalePlacementError):
            await self.unreserve_claims(placement)
            raise

    async def bind_pod(self, placement: Placement) -> None:
        """Bind a pod whose claims are reserved; raise when that fails."""
        pod, node = placement.pending_pod.pod, placement.node
        try:
            await self._client.bind(
                pod.metadata.name, pod.metadata.namespace, node.metadata.name, uid=pod.metadata.uid
            )
        except ApiError as refused:
            if await self.is_gone_or_bound(pod):
                raise PodGoneOrBoundError(refused.message) from None
            await self.unreserve_claims(placement)
            raise

    async def is_gone_or_bound(self, pod: Pod) -> bool:
        """Whether a pod is gone or has a node, by another writer or by a write whose response got lost.

        This asks the server itself: devices taken from a pod that runs would be given to another.
        """
        try:
            now = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
        except CALL_ERRORS:
            return True
        return now.metadata.uid != pod.metadata.uid or bool(now.spec.node_name)

    # --- claims ---

    async def _bind_claim(self, claim: ResourceClaim, pod: Pod, node: Node) -> None:
        """Allocate a claim and reserve it for the pod."""
        async with self.locks.use(claim) as claim_lock:
            claim_lock.waiting_consumers[pod.metadata.uid] = reservation.build_consumer(pod)
            try:
                async with claim_lock.lock:
                    for _ in range(MAX_WRITE_ATTEMPTS):
                        if await self._try_reserve(claim, pod, node, claim_lock):
                            return
            finally:
                claim_lock.waiting_consumers.pop(pod.metadata.uid, None)
        raise StalePlacementError(f"claim {_format_claim_name(claim)} changes faster than it can be written")

    async def _try_reserve(self, claim: ResourceClaim, pod: Pod, node: Node, claim_lock: ClaimLock) -> bool:
        """Try once to reserve a claim; False when the server has another version than we knew."""
        stored = self._check_stored_claim(claim, pod, node)
        if stored is None:
            return await self._is_still_reserved(claim, pod)
        counted = self._claims.get(stored.metadata.namespace, stored.metadata.name)
        allocation = counted.status.allocation if counted is not None else None
        if allocation is None:
            raise StalePlacementError(f"claim {_format_claim_name(claim)} has lost its devices")
        try:
            if FINALIZER not in stored.metadata.finalizers:
                stored = await self._add_finalizer(stored)
            new = self._build_reserved_claim(stored, allocation, claim_lock.waiting_consumers.values())
            written = await self._write_status(stored, new)
            self._claims.update(written)
            self._reserved_by_us.update((claim.metadata.uid, uid) for uid in _get_new_consumers(stored, new))
        except ConflictError as refused:
            self.conflicts += 1
            await self._reread_after_conflict(claim, stored, refused)
            return False
        except NotFoundError:
            self._claims.remove(claim)
            raise StalePlacementError(f"claim {_format_claim_name(claim)} was deleted") from None
        if stored.status.allocation is None:
            await self._check_duplicates(written, _get_new_consumers(stored, new))
        return True

    async def _check_duplicates(self, written: ResourceClaim, consumers: set[str]) -> None:
        """Take back an allocation that another claim holds, too; only where nobody keeps a ledger."""
        if self.duplicate_check is None or not self.needs_duplicate_check():
            return
        duplicate = await self.duplicate_check.find_duplicate(written)
        if duplicate:
            self.duplicates += 1
            await self._remove_consumers(written, consumers)
            raise DuplicateAllocationError(
                f"claim {_format_claim_name(written)} was allocated, and gave its devices back: {duplicate}"
            )

    async def _is_still_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether the server confirms a reservation that this scheduler did not make itself.

        A server that was restored from a backup has older pods and claims, and the watch may show the pod
        first.
        """
        if (claim.metadata.uid, pod.metadata.uid) in self._reserved_by_us:
            return True
        now = await self._read_claim(claim)
        if now.status.allocation is None or not reservation.is_reserved_for(now, pod):
            return False
        await self._check_duplicates(now, {pod.metadata.uid})
        return True

    def _check_stored_claim(self, claim: ResourceClaim, pod: Pod, node: Node) -> ResourceClaim | None:
        """Return the stored claim when something has to be written; None when it is reserved for the pod
        already.
        """
        stored = self._claims.get_stored(claim)
        if stored is None:
            raise StalePlacementError(f"claim {_format_claim_name(claim)} was deleted")
        if find_unreachable_claim((stored,), node) is not None:
            raise StalePlacementError(
                f"claim {_format_claim_name(claim)} got its devices elsewhere, out of reach of "
                f"{node.metadata.name}"
            )
        if stored.status.allocation is not None and reservation.is_reserved_for(stored, pod):
            return None
        why = reservation.explain_unreservable(stored, pod)
        if why:
            raise StalePlacementError(why)
        return stored

    def _build_reserved_claim(
        self, stored: ResourceClaim, allocation: AllocationResult, consumers: Iterable[ConsumerReference]
    ) -> ResourceClaim:
        """Build the claim with its allocation, reserved for all waiting consumers up to the limit."""
        old = stored.status
        if old.allocation is None:
            # Always: kube-scheduler adds a missing one with the next consumer, and allocations are immutable.
            now = format_timestamp(self._time_source.clock.now())
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=now)
        there = {consumer.uid for consumer in old.reserved_for}
        new = [consumer for consumer in consumers if consumer.uid not in there]
        free = reservation.MAX_CONSUMERS - len(old.reserved_for)
        status = msgspec.structs.replace(
            old, allocation=old.allocation or allocation, reserved_for=(*old.reserved_for, *new[:free])
        )
        return msgspec.structs.replace(stored, status=status)

    async def _add_finalizer(self, stored: ResourceClaim) -> ResourceClaim:
        """Add the finalizer that keeps a claim while it has devices, before it gets any."""
        metadata = msgspec.structs.replace(
            stored.metadata, finalizers=(*stored.metadata.finalizers, FINALIZER)
        )
        protected = await self._client.patch_changes(
            stored, msgspec.structs.replace(stored, metadata=metadata)
        )
        self._claims.update(protected)
        return protected

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

    async def _reread_after_conflict(
        self, claim: ResourceClaim, sent: ResourceClaim, refused: ConflictError
    ) -> None:
        """Read the claim again; a refusal of the very version we sent is about its devices."""
        now = await self._read_claim(claim)
        if now.metadata.resource_version == sent.metadata.resource_version:
            raise StalePlacementError(refused.message) from None

    async def _read_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Read the claim, or another one of its name, from the server."""
        try:
            now = await self._client.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
        except NotFoundError:
            self._claims.remove(claim)
            raise StalePlacementError(f"claim {_format_claim_name(claim)} was deleted") from None
        if now.metadata.uid != claim.metadata.uid:
            self._claims.remove(claim)
        self._claims.update(now)
        return now

    async def reread_claims(self, placement: Placement) -> None:
        """Read the claims of a placement whose write got no response, however long that takes."""
        backoff = Backoff(self._time_source)
        for claim in placement.pending_pod.claims:
            while True:
                try:
                    now = await self._client.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
                    self._claims.update(now)
                    break
                except NotFoundError:
                    self._claims.remove(claim)
                    break
                except CALL_ERRORS:
                    await backoff.wait()

    # --- binding conditions ---

    async def _wait_for_devices(self, claim: ResourceClaim, on_waiting: Callable[[str], None]) -> None:
        """Wait until the devices of a claim are ready."""
        stored = self._claims.get_stored(claim)
        if stored is None or not has_binding_conditions(stored):
            return
        began = self._time_source.clock.monotonic()
        async with self.locks.use(claim) as claim_lock:
            while True:
                stored = self._claims.get_stored(claim)
                if stored is None or stored.status.allocation is None:
                    raise StalePlacementError(
                        f"claim {_format_claim_name(claim)} lost its devices while the pod waited for them"
                    )
                state = check_readiness(stored)
                if state is None:
                    return
                left = began + self._max_wait - self._time_source.clock.monotonic()
                why = explain_not_ready(stored)
                if isinstance(state, DeviceFailure):
                    raise DevicesNotReadyError(why)
                if left <= 0:
                    raise DevicesNotReadyError(f"{why} for more than {self._max_wait:g} seconds")
                on_waiting(why)
                await self.locks.wait_for_change(claim_lock.changed, left)

    # --- undo ---

    async def unreserve_claims(self, placement: Placement) -> None:
        """Remove the pod from the claims reserved for it; release devices that no other pod uses."""
        pod = placement.pending_pod.pod
        for claim in placement.pending_pod.claims:
            stored = self._claims.get_stored(claim)
            ours = (claim.metadata.uid, pod.metadata.uid) in self._reserved_by_us
            if ours and stored is not None and reservation.is_reserved_for(stored, pod):
                try:
                    await self.release_claim(claim, pod)
                except (*CALL_ERRORS, StalePlacementError):
                    continue  # the next attempt finds the claim reserved, and goes on from there

    def forget_placement(self, placement: Placement) -> None:
        """Forget the reservations of a pod that is no longer in flight."""
        self._reserved_by_us -= {
            (claim.metadata.uid, placement.pending_pod.pod.metadata.uid)
            for claim in placement.pending_pod.claims
        }

    async def release_claim(self, claim: ResourceClaim, pod: Pod) -> None:
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
                await self._reread_after_conflict(claim, stored, refused)
        raise StalePlacementError(f"claim {_format_claim_name(claim)} changes faster than it can be written")


def _get_new_consumers(old: ResourceClaim, new: ResourceClaim) -> set[str]:
    return {user.uid for user in new.status.reserved_for} - {user.uid for user in old.status.reserved_for}


def _format_claim_name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
