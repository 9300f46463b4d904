"""The signature: a placement becomes true, write by write, or is taken back.

Theory of operation: a claim gets its devices and its consumer in one write of its status, on the version it
was decided on; a newer version is read and judged again. Pods that share a claim take turns at it, and who
has the turn reserves it for all that wait, so that a claim of a hundred pods is not written a hundred times.
When every claim is the pod's, and its devices are ready, the binding is posted. A failure that is certain
takes the pod off its claims again, and devices that nobody else uses go back; after one that is uncertain
(no answer came) everything stays, and the watch will tell.

Rules for this file: nothing is decided here that the cycle did not decide; what does not fit any more is
`StalePlacementError`, and the pod is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from dray.client.errors import ApiError, ConflictError, NotFoundError
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.clock import format_timestamp
from dray.errors import DrayError
from dray.placement.plugins.dynamic_resources import find_unreachable_claim
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.assume_cache import ClaimAssumeCache
from dray.tasks import wait_for_first

MAX_WRITE_ATTEMPTS: Final = 5
"""How often a claim that others write too is read and judged again."""


class StalePlacementError(DrayError):
    """The cluster is not what the placement was made for; the message says what changed."""


class DevicesNotReadyError(StalePlacementError):
    """The devices are there and did not become ready; the message says which, and what they wait for."""


class PodGoneOrBoundError(StalePlacementError):
    """The pod is gone or has a node: what was written for it stays."""


@dataclass(slots=True)
class _ClaimLock:
    """Who writes a claim now, and for whom else."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting_consumers: dict[str, ConsumerReference] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced when it is set: several pods may wait for the devices of one claim."""
    users: int = 0
    """How many hold on to this: it is theirs together until the last of them lets go."""


class Binder:
    """Makes placements true."""

    def __init__(self, client: Client, claims: ClaimAssumeCache, max_wait: float = MAX_WAIT_SECONDS) -> None:
        self._client = client
        self._claims = claims
        self._time_source = client.options.time_source
        self._max_wait = max_wait
        self._claim_locks: dict[str, _ClaimLock] = {}
        self._reserved_by_us: set[tuple[str, str]] = set()
        """Claims and pods that were reserved for each other by us, while these pods are on their way. What
        another scheduler wrote for a pod that both of us try is not ours to take back."""
        self.conflicts = 0
        """Writes that met another version, or a ledger that objected; for metrics."""

    def notify_claim_changed(self, claim: ResourceClaim) -> None:
        """A claim changed: whoever waits for its devices looks again."""
        turns = self._claim_locks.get(claim.metadata.uid)
        if turns is not None:
            turns.changed.set()
            turns.changed = asyncio.Event()

    async def bind_claims(
        self, placement: Placement, on_waiting: Callable[[str], None] = lambda _why: None
    ) -> None:
        """Give the claims their devices and wait until these are ready; raises when that fails.

        `on_waiting` is told what they wait for when they are not ready yet: that may take minutes.
        """
        subject = placement.pending_pod
        try:
            for claim in subject.claims:
                await self._bind_claim(claim, subject.pod, placement.node)
            for claim in subject.claims:
                await self._wait_for_devices(claim, on_waiting)
        except DevicesNotReadyError:
            # A scheduler that is no more may have reserved them: they are of no use to the pod all the same.
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
        """Bind a pod whose claims have their devices; raises when that fails."""
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
        """Whether a pod is gone or has a node, from somebody else or by a write whose answer got lost.

        The server itself is asked: what is taken from a pod that runs is given to another.
        """
        try:
            now = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
        except CALL_ERRORS:
            return True
        return now.metadata.uid != pod.metadata.uid or bool(now.spec.node_name)

    # --- claims ---

    async def _bind_claim(self, claim: ResourceClaim, pod: Pod, node: Node) -> None:
        """A claim has its devices and is reserved for the pod."""
        async with self._use_claim_lock(claim) as turns:
            turns.waiting_consumers[pod.metadata.uid] = reservation.build_consumer(pod)
            try:
                async with turns.lock:
                    for _ in range(MAX_WRITE_ATTEMPTS):
                        if await self._try_reserve(claim, pod, node, turns):
                            return
            finally:
                turns.waiting_consumers.pop(pod.metadata.uid, None)
        raise StalePlacementError(f"claim {_format_claim_name(claim)} changes faster than it can be written")

    @asynccontextmanager
    async def _use_claim_lock(self, claim: ResourceClaim) -> AsyncIterator[_ClaimLock]:
        """The turns at a claim, kept while somebody has or waits for one."""
        uid = claim.metadata.uid
        turns = self._claim_locks.setdefault(uid, _ClaimLock())
        turns.users += 1
        try:
            yield turns
        finally:
            turns.users -= 1
            if not turns.users:
                del self._claim_locks[uid]

    async def _try_reserve(self, claim: ResourceClaim, pod: Pod, node: Node, claim_lock: _ClaimLock) -> bool:
        """One try to reserve a claim; False when it was another version than we knew."""
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
            self._claims.update(await self._write_status(stored, new))
            self._reserved_by_us.update((claim.metadata.uid, uid) for uid in _get_new_consumers(stored, new))
        except ConflictError as refused:
            self.conflicts += 1
            await self._reread_after_conflict(claim, stored, refused)
            return False
        except NotFoundError:
            self._claims.remove(claim)
            raise StalePlacementError(f"claim {_format_claim_name(claim)} was deleted") from None
        return True

    async def _is_still_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether the server says so, too, when it was not us who reserved a claim for a pod just now.

        A server that was restored from a copy has pods and claims of an earlier time, and of the two we may
        have seen the pod first.
        """
        if (claim.metadata.uid, pod.metadata.uid) in self._reserved_by_us:
            return True
        now = await self._read_claim(claim)
        return now.status.allocation is not None and reservation.is_reserved_for(now, pod)

    def _check_stored_claim(self, claim: ResourceClaim, pod: Pod, node: Node) -> ResourceClaim | None:
        """The claim as it is stored, when something is to be written; None when it is the pod's already."""
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
        """The claim with its devices, reserved for everybody who waits, as far as there is room."""
        old = stored.status
        if old.allocation is None and any(result.binding_conditions for result in allocation.devices.results):
            now = format_timestamp(self._time_source.clock.now())
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=now)
        there = {consumer.uid for consumer in old.reserved_for}
        new = [consumer for consumer in consumers if consumer.uid not in there]
        room = reservation.MAX_CONSUMERS - len(old.reserved_for)
        status = msgspec.structs.replace(
            old, allocation=old.allocation or allocation, reserved_for=(*old.reserved_for, *new[:room])
        )
        return msgspec.structs.replace(stored, status=status)

    async def _add_finalizer(self, stored: ResourceClaim) -> ResourceClaim:
        """The claim with the finalizer that keeps it while it has devices; before it gets any."""
        metadata = msgspec.structs.replace(
            stored.metadata, finalizers=(*stored.metadata.finalizers, FINALIZER)
        )
        kept = await self._client.patch_changes(stored, msgspec.structs.replace(stored, metadata=metadata))
        self._claims.update(kept)
        return kept

    async def _write_status(self, old: ResourceClaim, new: ResourceClaim) -> ResourceClaim:
        """Write the status; only what differs when the server knows fields that we do not."""
        if self._client.get_unknown_fields(ResourceClaim):
            return await self._client.patch_changes(old, new, subresource="status")
        return await self._client.update_status(new)

    async def _reread_after_conflict(
        self, claim: ResourceClaim, sent: ResourceClaim, refused: ConflictError
    ) -> None:
        """The claim as it is now; a refusal of the very version we sent is a word about its devices."""
        now = await self._read_claim(claim)
        if now.metadata.resource_version == sent.metadata.resource_version:
            raise StalePlacementError(refused.message) from None

    async def _read_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim as it is now, or another one of its name."""
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
        """No answer came to a write: learn from the server what became of it, however long that takes."""
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
        async with self._use_claim_lock(claim) as turns:
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
                await self._wait_for_change(turns.changed, left)

    async def _wait_for_change(self, changed: asyncio.Event, seconds: float) -> None:
        """Wait for news, and no longer than so many seconds."""
        await wait_for_first(changed.wait(), self._time_source.sleep(seconds))

    # --- taking back ---

    async def unreserve_claims(self, placement: Placement) -> None:
        """Take the pod off the claims it was put on; devices that nobody else uses go back."""
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
        """A pod is on its way no longer, however it ended."""
        self._reserved_by_us -= {
            (claim.metadata.uid, placement.pending_pod.pod.metadata.uid)
            for claim in placement.pending_pod.claims
        }

    async def release_claim(self, claim: ResourceClaim, pod: Pod) -> None:
        """Take the pod off one claim; when nobody else uses it, the devices go back."""
        async with self._use_claim_lock(claim) as turns, turns.lock:
            for _ in range(MAX_WRITE_ATTEMPTS):
                stored = self._claims.get_stored(claim)
                if stored is None:
                    return
                left = tuple(user for user in stored.status.reserved_for if user.uid != pod.metadata.uid)
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
