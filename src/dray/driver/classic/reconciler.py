"""Settling classic claims one by one, in an order that a crash cannot hurt.

Theory of operation: `classic.due` says what comes next for a claim. A finalizer is written before anything is
allocated, and taken away after everything was given back. Who finds a finalizer on a pending claim and does
not remember why takes back first: somebody may have been killed between allocating and saying so. Every write
insists on the version it was decided on; what was overtaken is looked at again. Our own answers count before
the watch shows them, so no unit is given twice. When something was given or taken, claims that wait are
looked at again; what failed is tried again, later each time.

Rules for this file: one claim at a time. What an author raises is told as an event and waited out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from dray.client.timing import Backoff
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
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry


@dataclass(frozen=True, slots=True)
class ClassicRetryDelay:
    """Seconds before something that failed is tried again: the first time, and at most."""

    first: float = 0.5
    longest: float = 60.0


@dataclass(slots=True)
class _ScheduledRetry:
    """A claim that is looked at again at a time."""

    backoff: Backoff
    due_at: float = 0.0


class ClassicClaimReconciler:
    """One term in office: what is seen, what was written, what is to be done."""

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
        self._tempo = client.options.time_source
        self._async_controller = AsyncController(controller, self._tempo.clock, metrics)
        self._claims = Informer(client, ClassicResourceClaim)
        self._classes = Informer(client, ResourceClass)
        self._own_writes: dict[str, ClassicResourceClaim] = {}
        self._unsaved_allocations: dict[str, tuple[str, ClassicAllocation]] = {}
        """Allocated and not yet said: for which node, and what."""
        self._released: set[str] = set()
        """Claims that have given everything back and are about to vanish."""
        self._orphans: dict[str, HeldClaim] = {}
        """What claims had that vanished without giving it back."""
        self._failed_orphans: dict[str, HeldClaim] = {}
        self._dirty: set[ObjectKey] = set()
        self._retries: dict[ObjectKey, _ScheduledRetry] = {}
        self._requeue_waiting = False
        self._wake = asyncio.Event()
        self._claims.listen(
            self._handle_changed_claim,
            lambda _old, new: self._handle_changed_claim(new),
            self._handle_deleted_claim,
        )
        changed = self._handle_changed_class
        self._classes.listen(changed, lambda _old, new: changed(new), changed)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self._claims, self._classes)

    async def begin(self) -> None:
        """Tell the author what there is, and look at everything once."""
        while True:
            try:
                await self._async_controller.call("begin", self._list_held())
                break
            except ControllerCallError as failed:
                self._log.error("the controller cannot begin", driver=self._driver, why=str(failed))
                await self._tempo.sleep(self._retry_delay.longest)
        self._dirty.update(get_key(claim) for claim in self._list_own_claims())
        self._wake.set()

    async def run(self) -> None:
        """Settle whatever changes, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._compute_wait_seconds()):
                    await self._wake.wait()
            self._wake.clear()
            now = self._tempo.clock.monotonic()
            again = [key for key, later in self._retries.items() if later.due_at <= now]
            self._dirty.update(again)
            self._orphans |= {
                key.name: self._failed_orphans.pop(key.name)
                for key in again
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
        """Look again at everything that waits: there may be more than there was."""
        self._requeue_waiting = True
        self._wake.set()

    # --- what is seen ---

    def _handle_changed_claim(self, claim: ClassicResourceClaim) -> None:
        written = self._own_writes.get(claim.metadata.uid)
        if written is not None and _get_version(claim) < _get_version(written):
            return  # something from before our own write
        self._own_writes.pop(claim.metadata.uid, None)
        if written is not None and _get_version(claim) == _get_version(written):
            return  # our own write
        if self._is_own(claim):
            self._dirty.add(get_key(claim))
            self._wake.set()

    def _handle_deleted_claim(self, claim: ClassicResourceClaim) -> None:
        uid, key = claim.metadata.uid, get_key(claim)
        last = self._own_writes.pop(uid, claim)
        unsaid = self._unsaved_allocations.pop(uid, None)
        if uid in self._released:
            self._released.discard(uid)
        elif unsaid is not None or self._may_hold(last):
            # Somebody took our finalizer away: what it stood for is still there.
            held = to_held_claim(last)
            self._orphans[uid] = _replace_attributes(held, unsaid[1].to_attributes()) if unsaid else held
        self._retries.pop(key, None)
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
        made_of = self._classes.get(claim.spec.resource_class_name)
        by_class = "" if made_of is None else made_of.driver_name
        return (claim.status.driver_name or by_class) == self._driver

    def _may_hold(self, claim: ClassicResourceClaim) -> bool:
        phase = claim.status.phase or PENDING
        ours = self._is_own(claim)
        return ours and (phase != PENDING or self._finalizer in claim.metadata.finalizers)

    def _list_held(self, without: str = "") -> tuple[HeldClaim, ...]:
        """Everything that claims have, or may have, but for one of them."""
        found = []
        for claim in self._list_own_claims():
            uid = claim.metadata.uid
            if uid == without or uid in self._released or not self._may_hold(claim):
                continue
            unsaid = self._unsaved_allocations.get(uid)
            found.append(
                _replace_attributes(to_held_claim(claim), unsaid[1].to_attributes())
                if unsaid
                else to_held_claim(claim)
            )
        return (*found, *self._orphans.values(), *self._failed_orphans.values())

    def _is_waiting(self, claim: ClassicResourceClaim) -> bool:
        """Whether a claim waits for something of this driver."""
        return decide_action(claim, self._finalizer) in (
            ClassicClaimAction.ALLOCATE,
            ClassicClaimAction.ANSWER,
        )

    def _get_priority(self, key: ObjectKey) -> tuple[bool, str, ObjectKey]:
        """Unknown outcomes first: what they hold must be known before anything is given out. Then by age."""
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
            self._retries.pop(key, None)
            return
        claim = self._get_newest(found)
        try:
            settled = await self._reconcile(claim)
        except ControllerCallError as failed:
            self._report_failure(
                claim,
                "AllocationFailed" if failed.method != "deallocate" else "DeallocationFailed",
                str(failed),
            )
            settled = False
        except (BadRequestError, ForbiddenError, InvalidObjectError) as refused:
            self._report_failure(claim, "AllocationFailed", f"the server refuses it: {refused}")
            settled = False
        except CALL_ERRORS as failed:
            self._log.debug("a claim is looked at again", claim=str(key), why=str(failed))
            settled = False
        if settled:
            self._retries.pop(key, None)
        else:
            self._schedule_retry(key)

    async def _reconcile(self, claim: ClassicResourceClaim) -> bool:
        """Do what is due; False when it is to be tried again, also when nothing changes."""
        match decide_action(claim, self._finalizer):
            case ClassicClaimAction.HOLD:
                await self._set_finalizer(claim, True)
            case ClassicClaimAction.RELEASE:
                await self._release(claim)
            case ClassicClaimAction.ANSWER | ClassicClaimAction.ALLOCATE as what:
                return await self._negotiate(claim, allocate=what is ClassicClaimAction.ALLOCATE)
            case ClassicClaimAction.NOTHING:
                self._unsaved_allocations.pop(
                    claim.metadata.uid, None
                )  # it was said, though we did not hear the answer
        return True

    async def _negotiate(self, claim: ClassicResourceClaim, *, allocate: bool) -> bool:
        need = self._async_controller.build_request(claim, self._classes.get(claim.spec.resource_class_name))
        if isinstance(need, str):
            self._report_failure(claim, "AllocationFailed", need)
            await self._roll_back(claim)
            return True  # until the class changes
        node, held = get_selected_node(claim), self._list_held(without=claim.metadata.uid)
        nodes, unsuitable = list_potential_nodes(claim), frozenset[str]()
        if nodes:
            unsuitable = frozenset(await self._async_controller.call("unsuitable_nodes", need, nodes, held))
        if not allocate or node in unsuitable:
            claim = await self._roll_back(claim)
            await self._write_status(claim, build_unsuitable_nodes_status(claim, unsuitable))
            return not allocate
        return await self._allocate(claim, need, held, unsuitable)

    async def _allocate(
        self,
        claim: ClassicResourceClaim,
        request: ClassicClaimRequest,
        held: Sequence[HeldClaim],
        unsuitable: frozenset[str],
    ) -> bool:
        uid, node = claim.metadata.uid, get_selected_node(claim)
        known = self._unsaved_allocations.get(uid)
        if known is None or known[0] != node:
            if self._finalizer in claim.metadata.finalizers:
                await self._deallocate(claim)
            claim = await self._set_finalizer(claim, True)
            made = await self._async_controller.call("allocate", request, node or None, held)
            if isinstance(made, NoAllocationAvailable):
                self._report_failure(claim, "AllocationFailed", made.why)
                claim = await self._set_finalizer(claim, False)
                await self._write_status(claim, build_unsuitable_nodes_status(claim, unsuitable | {node}))
                return False
            known = self._unsaved_allocations[uid] = (node, made)
        await self._write_status(claim, build_allocated_status(claim, self._driver, known[1]))
        self._unsaved_allocations.pop(uid, None)
        self._requeue_waiting = True
        return True

    async def _release(self, claim: ClassicResourceClaim) -> None:
        await self._deallocate(claim)
        leaving = claim.metadata.deletion_timestamp is not None
        if not leaving and (claim.status.phase or PENDING) != PENDING:
            claim = await self._write_status(claim, build_deallocated_status(self._driver))
        await self._set_finalizer(claim, False)
        if leaving:
            self._released.add(claim.metadata.uid)
        self._requeue_waiting = True

    async def _roll_back(self, claim: ClassicResourceClaim) -> ClassicResourceClaim:
        """Take back what may have been allocated by somebody who was killed."""
        if self._finalizer not in claim.metadata.finalizers:
            return claim
        await self._deallocate(claim)
        return await self._set_finalizer(claim, False)

    async def _deallocate(self, claim: ClassicResourceClaim) -> None:
        unsaid = self._unsaved_allocations.get(claim.metadata.uid)
        held = to_held_claim(claim)
        await self._async_controller.call(
            "deallocate", _replace_attributes(held, unsaid[1].to_attributes()) if unsaid else held
        )
        self._unsaved_allocations.pop(claim.metadata.uid, None)

    async def _deallocate_orphans(self) -> None:
        for uid, held in list(self._orphans.items()):
            del self._orphans[uid]
            try:
                await self._async_controller.call("deallocate", held)
            except ControllerCallError as failed:
                self._log.error("what a vanished claim had is not free", claim=str(held), why=str(failed))
                self._failed_orphans[uid] = held
                self._schedule_retry(ObjectKey("", uid))

    # --- writing, asking, telling ---

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
        self._log.warning("a claim is not settled", claim=str(get_key(claim)), reason=reason, why=note)

    def _schedule_retry(self, key: ObjectKey) -> None:
        later = self._retries.get(key)
        if later is None:
            backoff = Backoff(self._tempo, initial=self._retry_delay.first, maximum=self._retry_delay.longest)
            later = self._retries[key] = _ScheduledRetry(backoff)
        later.due_at = self._tempo.clock.monotonic() + later.backoff.compute_delay()

    def _compute_wait_seconds(self) -> float | None:
        if not self._retries:
            return None
        soonest = min(later.due_at for later in self._retries.values())
        return max(0.0, soonest - self._tempo.clock.monotonic())


def _replace_attributes(held: HeldClaim, attributes: dict[str, str]) -> HeldClaim:
    """The same claim with other attributes."""
    return HeldClaim(held.namespace, held.name, held.uid, attributes)


def _get_version(claim: ClassicResourceClaim) -> int:
    return int(claim.metadata.resource_version or 0)
