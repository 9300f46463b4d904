"""The reconciler of classic claims: allocates and deallocates them one by one, in an order that survives
crashes.

Theory of operation: `decide_action` decides what comes next for a claim. The reconciler writes a finalizer
before it allocates, and removes it after it has deallocated. When a pending claim has the finalizer and this
process did not write it, the reconciler deallocates first: an earlier process may have been killed between
allocating and writing the status. Every write requires the version that it was decided on; a claim whose
write conflicts is reconciled again. The reconciler's own writes count before the watch delivers them, so no
unit is allocated twice. After every allocation and deallocation it reconciles waiting claims again; failures
are retried with a growing delay.

Rules for this file: one claim at a time. Exceptions of the author become events and are retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from dray.api.classic import ClassicClaimStatus, ClassicResourceClaim, ResourceClass
from dray.api.classic.resource_claim import PENDING
from dray.client.client import Client
from dray.client.errors import BadRequestError, ForbiddenError, InvalidObjectError
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey, get_key
from dray.client.rest_client import CALL_ERRORS
from dray.driver.classic.async_controller import AsyncController, ControllerCallError
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimAction,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
    build_allocated_status,
    build_deallocated_status,
    build_unsuitable_nodes_status,
    decide_action,
    get_selected_node,
    list_potential_nodes,
    to_held_claim,
)
from dray.driver.classic.retries import ClassicRetries, ClassicRetryDelay
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry


class ClassicClaimReconciler:
    """Reconciles the classic claims of one driver, for one period of leadership."""

    def __init__(
        self,
        client: Client,
        controller: ClassicController,
        recorder: EventRecorder,
        metrics: MetricsRegistry,
        retry_delay: ClassicRetryDelay,
        log: StructuredLogger,
    ) -> None:
        self._client, self._recorder, self._retry_delay, self._log = client, recorder, retry_delay, log
        self._driver, self._finalizer = controller.name, f"{controller.name}/allocated"
        self._time_source = client.options.time_source
        self._async_controller = AsyncController(controller, self._time_source.clock, metrics)
        self._claims = Informer(client, ClassicResourceClaim)
        self._classes = Informer(client, ResourceClass)
        self._own_writes: dict[str, ClassicResourceClaim] = {}
        self._unsaved_allocations: dict[str, tuple[str, ClassicAllocation]] = {}
        """Allocations that no status contains yet, with their nodes, by the claim's uid."""
        self._released: set[str] = set()
        """Claims that were deallocated and are about to be deleted."""
        self._orphans: dict[str, HeldClaim] = {}
        """Claims that were deleted without being deallocated."""
        self._failed_orphans: dict[str, HeldClaim] = {}
        self._dirty: set[ObjectKey] = set()
        self._retries = ClassicRetries(self._time_source, retry_delay)
        self._requeue_waiting = False
        self._wake = asyncio.Event()
        self._claims.listen(
            self._handle_changed_claim,
            lambda _old, new: self._handle_changed_claim(new),
            self._handle_deleted_claim,
        )
        handle_class = self._handle_changed_class
        self._classes.listen(handle_class, lambda _old, new: handle_class(new), handle_class)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self._claims, self._classes)

    async def begin(self) -> None:
        """Call the author's `begin` with everything that claims hold, and enqueue all claims."""
        while True:
            try:
                await self._async_controller.call("begin", self._list_held())
                break
            except ControllerCallError as failed:
                self._log.error("the controller cannot begin", driver=self._driver, why=str(failed))
                await self._time_source.sleep(self._retry_delay.longest)
        self._dirty.update(get_key(claim) for claim in self._list_own_claims())
        self._wake.set()

    async def run(self) -> None:
        """Reconcile claims until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retries.compute_wait_seconds()):
                    await self._wake.wait()
            self._wake.clear()
            due = self._retries.list_due()
            self._dirty.update(due)
            self._orphans |= {
                key.name: self._failed_orphans.pop(key.name)
                for key in due
                if key.name in self._failed_orphans
            }
            while self._dirty or self._orphans or self._requeue_waiting:
                await self._deallocate_orphans()
                if self._dirty:
                    await self._process_key(min(self._dirty, key=self._get_priority))
                else:
                    self._requeue_waiting = False
                    self._dirty.update(
                        get_key(claim) for claim in self._list_own_claims() if self._is_waiting(claim)
                    )

    def requeue_waiting_claims(self) -> None:
        """Reconcile waiting claims again, since more may be available."""
        self._requeue_waiting = True
        self._wake.set()

    # --- events ---

    def _handle_changed_claim(self, claim: ClassicResourceClaim) -> None:
        written = self._own_writes.get(claim.metadata.uid)
        if written is not None and _get_version(claim) < _get_version(written):
            return  # an event from before this process's own write
        self._own_writes.pop(claim.metadata.uid, None)
        if written is not None and _get_version(claim) == _get_version(written):
            return  # this process's own write
        if self._is_own(claim):
            self._dirty.add(get_key(claim))
            self._wake.set()

    def _handle_deleted_claim(self, claim: ClassicResourceClaim) -> None:
        uid, key = claim.metadata.uid, get_key(claim)
        last = self._own_writes.pop(uid, claim)
        held = self._to_held(last)
        is_unsaved = self._unsaved_allocations.pop(uid, None) is not None
        if uid in self._released:
            self._released.discard(uid)
        elif is_unsaved or self._may_hold(last):
            # Somebody removed the finalizer: the allocation still exists.
            self._orphans[uid] = held
        self._retries.forget(key)
        self.requeue_waiting_claims()

    def _handle_changed_class(self, resource_class: ResourceClass) -> None:
        name = resource_class.metadata.name
        self._dirty.update(
            get_key(each) for each in self._claims.list_all() if each.spec.resource_class_name == name
        )
        self._wake.set()

    def _get_newest(self, claim: ClassicResourceClaim) -> ClassicResourceClaim:
        written = self._own_writes.get(claim.metadata.uid)
        return claim if written is None or _get_version(written) <= _get_version(claim) else written

    def _list_own_claims(self) -> Iterator[ClassicResourceClaim]:
        return (self._get_newest(claim) for claim in self._claims.list_all() if self._is_own(claim))

    def _is_own(self, claim: ClassicResourceClaim) -> bool:
        if self._finalizer in claim.metadata.finalizers:
            return True
        resource_class = self._classes.get(claim.spec.resource_class_name)
        class_driver = "" if resource_class is None else resource_class.driver_name
        return (claim.status.driver_name or class_driver) == self._driver

    def _may_hold(self, claim: ClassicResourceClaim) -> bool:
        phase = claim.status.phase or PENDING
        has_allocation = phase != PENDING or self._finalizer in claim.metadata.finalizers
        return self._is_own(claim) and has_allocation

    def _to_held(self, claim: ClassicResourceClaim) -> HeldClaim:
        """Convert a claim, with the attributes of an allocation that its status does not contain yet."""
        held, unsaved = to_held_claim(claim), self._unsaved_allocations.get(claim.metadata.uid)
        if unsaved is None:
            return held
        return HeldClaim(held.namespace, held.name, held.uid, unsaved[1].to_attributes())

    def _list_held(self, without: str = "") -> tuple[HeldClaim, ...]:
        """Return the claims that have, or may have, an allocation, except one of them."""
        held = [
            self._to_held(claim)
            for claim in self._list_own_claims()
            if claim.metadata.uid != without
            and claim.metadata.uid not in self._released
            and self._may_hold(claim)
        ]
        return (*held, *self._orphans.values(), *self._failed_orphans.values())

    def _is_waiting(self, claim: ClassicResourceClaim) -> bool:
        """Whether a claim waits for an allocation or for unsuitable nodes."""
        return decide_action(claim, self._finalizer) in (
            ClassicClaimAction.ALLOCATE,
            ClassicClaimAction.ANSWER,
        )

    def _get_priority(self, key: ObjectKey) -> tuple[bool, str, ObjectKey]:
        """Order claims: first those with an unknown allocation, since others must avoid it; then by age."""
        claim = self._claims.get(key.name, key.namespace)
        if claim is None:
            return (False, "", key)
        claim = self._get_newest(claim)
        begun = self._finalizer in claim.metadata.finalizers and (claim.status.phase or PENDING) == PENDING
        return (not begun, claim.metadata.creation_timestamp or "", key)

    # --- one claim ---

    async def _process_key(self, key: ObjectKey) -> None:
        self._dirty.discard(key)
        found = self._claims.get(key.name, key.namespace)
        if found is None or not self._is_own(found):
            self._retries.forget(key)
            return
        claim = self._get_newest(found)
        try:
            is_done = await self._reconcile(claim)
        except ControllerCallError as failed:
            self._report_failure(
                claim,
                "AllocationFailed" if failed.method != "deallocate" else "DeallocationFailed",
                str(failed),
            )
            is_done = False
        except (BadRequestError, ForbiddenError, InvalidObjectError) as refused:
            self._report_failure(claim, "AllocationFailed", f"the server refuses it: {refused}")
            is_done = False
        except CALL_ERRORS as failed:
            self._log.debug("a claim is reconciled again", claim=str(key), why=str(failed))
            is_done = False
        if is_done:
            self._retries.forget(key)
        else:
            self._retries.schedule(key)

    async def _reconcile(self, claim: ClassicResourceClaim) -> bool:
        """Perform the next action; False when it should be retried although nothing changes."""
        match decide_action(claim, self._finalizer):
            case ClassicClaimAction.HOLD:
                await self._set_finalizer(claim, True)
            case ClassicClaimAction.RELEASE:
                await self._release(claim)
            case ClassicClaimAction.ANSWER | ClassicClaimAction.ALLOCATE as action:
                return await self._negotiate(claim, allocate=action is ClassicClaimAction.ALLOCATE)
            case ClassicClaimAction.NOTHING:
                # The status was written, although the response to the write was lost.
                self._unsaved_allocations.pop(claim.metadata.uid, None)
        return True

    async def _negotiate(self, claim: ClassicResourceClaim, *, allocate: bool) -> bool:
        resource_class = self._classes.get(claim.spec.resource_class_name)
        request = self._async_controller.build_request(claim, resource_class)
        if isinstance(request, str):
            self._report_failure(claim, "AllocationFailed", request)
            await self._roll_back(claim)
            return True  # until the class changes
        node, held = get_selected_node(claim), self._list_held(without=claim.metadata.uid)
        nodes, unsuitable = list_potential_nodes(claim), frozenset[str]()
        if nodes:
            unsuitable = frozenset(
                await self._async_controller.call("unsuitable_nodes", request, nodes, held)
            )
        if not allocate or node in unsuitable:
            claim = await self._roll_back(claim)
            await self._write_status(claim, build_unsuitable_nodes_status(claim, unsuitable))
            return not allocate
        return await self._allocate(claim, request, held, unsuitable)

    async def _allocate(
        self,
        claim: ClassicResourceClaim,
        request: ClassicClaimRequest,
        held: Sequence[HeldClaim],
        unsuitable: frozenset[str],
    ) -> bool:
        uid, node = claim.metadata.uid, get_selected_node(claim)
        unsaved = self._unsaved_allocations.get(uid)
        if unsaved is None or unsaved[0] != node:
            if self._finalizer in claim.metadata.finalizers:
                await self._deallocate(claim)
            claim = await self._set_finalizer(claim, True)
            allocation = await self._async_controller.call("allocate", request, node or None, held)
            if isinstance(allocation, NoAllocationAvailable):
                self._report_failure(claim, "AllocationFailed", allocation.why)
                claim = await self._set_finalizer(claim, False)
                await self._write_status(claim, build_unsuitable_nodes_status(claim, unsuitable | {node}))
                return False
            unsaved = self._unsaved_allocations[uid] = (node, allocation)
        await self._write_status(claim, build_allocated_status(claim, self._driver, unsaved[1]))
        self._unsaved_allocations.pop(uid, None)
        self._requeue_waiting = True
        return True

    async def _release(self, claim: ClassicResourceClaim) -> None:
        await self._deallocate(claim)
        is_deleted = claim.metadata.deletion_timestamp is not None
        if not is_deleted and (claim.status.phase or PENDING) != PENDING:
            claim = await self._write_status(claim, build_deallocated_status(self._driver))
        await self._set_finalizer(claim, False)
        if is_deleted:
            self._released.add(claim.metadata.uid)
        self._requeue_waiting = True

    async def _roll_back(self, claim: ClassicResourceClaim) -> ClassicResourceClaim:
        """Deallocate what a process may have allocated that was killed before it wrote the status."""
        if self._finalizer not in claim.metadata.finalizers:
            return claim
        await self._deallocate(claim)
        return await self._set_finalizer(claim, False)

    async def _deallocate(self, claim: ClassicResourceClaim) -> None:
        await self._async_controller.call("deallocate", self._to_held(claim))
        self._unsaved_allocations.pop(claim.metadata.uid, None)

    async def _deallocate_orphans(self) -> None:
        for uid, held in list(self._orphans.items()):
            del self._orphans[uid]
            try:
                await self._async_controller.call("deallocate", held)
            except ControllerCallError as failed:
                self._log.error("cannot deallocate a deleted claim", claim=str(held), why=str(failed))
                self._failed_orphans[uid] = held
                self._retries.schedule(ObjectKey("", uid))

    # --- writes ---

    async def _set_finalizer(self, claim: ClassicResourceClaim, present: bool) -> ClassicResourceClaim:
        before = claim.metadata.finalizers
        if (self._finalizer in before) == present:
            return claim
        others = tuple(name for name in before if name != self._finalizer)
        after = (*others, self._finalizer) if present else others
        wanted = replace(claim, metadata=replace(claim.metadata, finalizers=after))
        return self._record_write(await self._client.patch_changes(claim, wanted))

    async def _write_status(
        self, claim: ClassicResourceClaim, status: ClassicClaimStatus
    ) -> ClassicResourceClaim:
        if status == claim.status:
            return claim
        wanted = replace(claim, status=status)
        return self._record_write(await self._client.patch_changes(claim, wanted, subresource="status"))

    def _record_write(self, claim: ClassicResourceClaim) -> ClassicResourceClaim:
        self._own_writes[claim.metadata.uid] = claim
        return claim

    def _report_failure(self, claim: ClassicResourceClaim, reason: str, note: str) -> None:
        self._recorder.record(claim, reason, note, warning=True)
        self._log.warning("cannot reconcile a claim", claim=str(get_key(claim)), reason=reason, why=note)


def _get_version(claim: ClassicResourceClaim) -> int:
    return int(claim.metadata.resource_version or 0)
