"""Binding in one transaction: a pod's claims are allocated and reserved and the pod is bound, or nothing is.

Theory of operation: the locks of all claims that have to be written are acquired in the order of their uids.
Each claim is reserved for all pods that wait for its lock, as in single writes, and the binding is the last
write of the transaction. When one of the writes is refused, nothing was written and nothing has to be undone:
after a conflict about a claim the newer version is read and everything is checked again; a refused binding
ends the attempt. A transaction that got no response happened as a whole or not at all; everything stays then,
as after a single write. A pod whose claims are reserved already needs the binding alone.

Single writes remain for what a transaction cannot do: servers without transactions or without a ledger,
claims whose devices have to become ready before the binding, and claims that are written as patches.

Rules for this file: a decline is a value, and nothing was written then. Checks of claims are those of single
writes (`reservations`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.claims import reservation
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.errors import ApiError, ConflictError, InvalidObjectError, NotFoundError
from dray.client.patches import MergePatch, add_preconditions
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import (
    TransactionsUnsupported,
    find_refused_write,
    get_refusal_message,
)
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.binding.claim_locks import ClaimLock
from dray.scheduler.binding.errors import StalePlacementError
from dray.scheduler.binding.pod_binding import raise_refusal, write_binding
from dray.scheduler.binding.reservations import MAX_WRITE_ATTEMPTS, ReservationChange, Reservations

_LockedClaim = tuple[ResourceClaim, ClaimLock]


class BindTransactions:
    """Binds pods together with their claims."""

    def __init__(self, client: Client, reservations: Reservations) -> None:
        self._client, self._reservations = client, reservations
        self.has_node: Callable[[str], bool] = lambda _name: True
        """Whether a node still exists; asked right before its pod is bound."""

    async def try_bind(self, placement: Placement) -> bool:
        """Write a placement in one transaction; False when it has to be written one by one.

        Raise when the placement does not fit any more, or a write fails.
        """
        if self._needs_single_writes(placement) or not await self._client.transactions.is_served():
            return False
        consumer = reservation.build_consumer(placement.pending_pod.pod)
        locked: list[_LockedClaim] = []
        try:
            if not await self._acquire_locks(placement, locked):
                return False
            for _ in range(MAX_WRITE_ATTEMPTS):
                bound = await self._commit_placement(placement, locked)
                if bound is not None:
                    return bound
        finally:
            for _, claim_lock in locked:
                self._reservations.locks.release(claim_lock, consumer)
        raise StalePlacementError(
            f"the claims of pod {placement.pending_pod.name} change faster than they can be written"
        )

    def _needs_single_writes(self, placement: Placement) -> bool:
        claims = placement.pending_pod.claims
        return (
            not claims
            or self._reservations.checks_duplicates
            or bool(self._client.get_unknown_fields(ResourceClaim))
        )

    async def _acquire_locks(self, placement: Placement, locked: list[_LockedClaim]) -> bool:
        """Add the claims that have to be written to `locked`; False when one is not what it seemed.

        The lock of a claim that is reserved for the pod already goes back at once: whoever waits for it may
        need other claims, and shall wait for those.
        """
        subject, locks = placement.pending_pod, self._reservations.locks
        consumer = reservation.build_consumer(subject.pod)
        for claim in sorted(subject.claims, key=_get_uid):
            claim_lock = await locks.acquire(claim, consumer)
            locked.append((claim, claim_lock))
            if self._reservations.is_reserved(claim, subject.pod, placement.node):
                locks.release(claim_lock, consumer)
                locked.pop()
                if not await self._reservations.is_still_reserved(claim, subject.pod):
                    return False
        return True

    async def _commit_placement(self, placement: Placement, locked: Sequence[_LockedClaim]) -> bool | None:
        """Try once to write a placement; None when a claim is another than we knew."""
        pod, name = placement.pending_pod.pod, placement.node.metadata.name
        changes: list[ReservationChange] = []
        for claim, claim_lock in locked:
            change = self._reservations.plan_change(claim, pod, placement.node, claim_lock)
            if change is None:
                return False
            changes.append(change)
        if any(map(self._reservations.waits_for_devices, placement.pending_pod.claims)):
            return False
        if not self.has_node(name):
            raise StalePlacementError(f"node {name} is gone")
        if not changes:
            await write_binding(self._client, placement)
            return True
        transaction, written = _build_transaction(changes)
        transaction.bind(pod.metadata.name, pod.metadata.namespace, name, uid=pod.metadata.uid)
        try:
            stored = await self._client.transactions.commit(transaction)
        except InvalidObjectError:
            return False  # written alone, the claim may pass as a patch, or says again what is wrong
        except ApiError as refused:
            await self._reread_refused(refused, pod, written)
            return None
        if isinstance(stored, TransactionsUnsupported):
            return False
        for change, claim in zip(written, stored[:-1], strict=True):
            self._reservations.record_written(change, claim)
        return True

    async def _reread_refused(
        self, refused: ApiError, pod: Pod, written: Sequence[ReservationChange]
    ) -> None:
        """Read the claim whose write met another version; raise what is final."""
        position = find_refused_write(refused)
        if position is None or position >= len(written):
            await raise_refusal(self._client, pod, refused)
        elif isinstance(refused, ConflictError):
            stored = written[position].stored
            await self._reservations.reread_after_conflict(stored, get_refusal_message(refused))
        elif isinstance(refused, NotFoundError):
            raise self._reservations.forget_deleted(written[position].stored) from None
        else:
            raise refused


def _build_transaction(
    changes: Sequence[ReservationChange],
) -> tuple[ObjectTransaction, list[ReservationChange]]:
    """Build the writes of claims; each with the change that it belongs to."""
    transaction, written = ObjectTransaction(), []
    for change in changes:
        reserved = change.reserved
        if change.needs_finalizer:
            _add_finalizer(transaction, change.stored)
            written.append(change)
            # The write before it guards the version, and makes a new one.
            metadata = msgspec.structs.replace(reserved.metadata, resource_version="")
            reserved = msgspec.structs.replace(reserved, metadata=metadata)
        transaction.update_status(reserved)
        written.append(change)
    return transaction, written


def _add_finalizer(transaction: ObjectTransaction, stored: ResourceClaim) -> None:
    """Add the finalizer that keeps a claim while it has devices, before it gets any."""
    metadata = stored.metadata
    patch = MergePatch({"metadata": {"finalizers": [*metadata.finalizers, FINALIZER]}})
    transaction.patch(
        ResourceClaim,
        metadata.name,
        add_preconditions(patch, metadata.resource_version, metadata.uid),
        metadata.namespace,
    )


def _get_uid(claim: ResourceClaim) -> str:
    return claim.metadata.uid
