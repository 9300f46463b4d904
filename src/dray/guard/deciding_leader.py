"""The leader of the guards: follows all claims and slices, and decides reviews.

Theory of operation: a leader starts with a list of everything that is stored, and makes sure that nothing is
on its way which the leader before admitted: by the mark of an orderly hand-over, by fencing, or by waiting as
long as a request to an API server can take. Then it decides. A decision reads and changes the ledger in one
step of the event loop, and only while the leadership is certain.

Before a denial because of a stored claim, the leader reads that claim from the API server: its watch may be
behind, and what was deallocated a moment ago is free. Likewise it reads the slices before it decides about a
device that it has not seen published: what such a device draws from counters is unknown. An admitted write
that is not seen for as long as a request can take is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.claims.ledger.rows import DeviceId, Holder
from dray.client.client import Client
from dray.client.errors import ForbiddenError, InvalidObjectError, NotFoundError
from dray.client.events import EventRecorder, InvolvedObject
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.object_refs import ObjectSelector
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.errors import DrayError
from dray.guard import metrics as guard_metrics
from dray.guard.admitted import AdmittedAllocation
from dray.guard.allocation_ledger import AllocationLedger, AllocationVerdict
from dray.guard.conflicts import AllocationConflict
from dray.guard.fencing import ClaimFencer
from dray.guard.hand_over import LeadershipTerm, begin_term, mark_drained
from dray.guard.options import COMPONENT_NAME, NAMESPACE, GuardOptions
from dray.guard.reviews import AllocationReview
from dray.guard.seen_objects import (
    PodReference,
    SeenClaim,
    SeenSlice,
    build_seen_claim,
    build_seen_slice,
    list_published,
)
from dray.tasks import cancel_and_wait
from dray.telemetry.metrics import MetricsRegistry

MAX_VERIFIED_HOLDERS: Final = 8
MAX_VERIFICATIONS: Final = 16
"""How many denials are verified at the same time; others are answered by what the watch has shown."""
VERIFY_SECONDS: Final = 1.0
CATCH_UP_SECONDS: Final = 1.5
"""How long a review waits for the watch to show what was read."""
_POLL_SECONDS: Final = 0.005
_SWEEP_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 2.0
"""How long admitted writes may take in an orderly stop before they are fenced."""
_FENCE_DRAIN_SECONDS: Final = 4.0


T = TypeVar("T")


class NotServingError(DrayError):
    """This guard cannot decide now."""


class DecidingLeader:
    """One term of one leader."""

    def __init__(
        self, client: Client, options: GuardOptions, metrics: MetricsRegistry, is_leader: Callable[[], bool]
    ) -> None:
        self.ledger = AllocationLedger()
        self._client, self._options, self._metrics = client, options, metrics
        self._is_leader = is_leader
        self._log = options.log
        self._clock = client.options.time_source.clock
        self._state = "it has just started to lead and reads the claims"
        self._is_open = False
        self._verifying = 0
        self._recorder = EventRecorder(client, COMPONENT_NAME, options.identity)
        self._fencer = ClaimFencer(client, self.ledger, metrics, options.log)
        self._claims: Informer[ResourceClaim] = Informer(
            client, ResourceClaim, options=self._build_informer_options(build_seen_claim)
        )
        self._slices: Informer[ResourceSlice] = Informer(
            client, ResourceSlice, options=self._build_informer_options(build_seen_slice)
        )
        self._listen()

    def _build_informer_options(self, transform: Callable[..., object]) -> InformerOptions:
        return InformerOptions(transform=transform, on_failure=self._report_failure)

    def _report_failure(self, failed: Exception) -> None:
        self._log.warning("the watch was interrupted", why=str(failed))

    def _listen(self) -> None:
        ledger = self.ledger

        def observe_claim(claim: SeenClaim) -> None:
            ledger.observe_claim(claim)

        def observe_slice(seen: SeenSlice) -> None:
            ledger.observe_slice(None, seen)

        # The informers hold what their transforms return, not the objects of their type.
        claims: Informer[SeenClaim] = self._claims  # type: ignore[assignment]
        slices: Informer[SeenSlice] = self._slices  # type: ignore[assignment]
        claims.listen(observe_claim, lambda _, new: ledger.observe_claim(new), ledger.observe_deletion)
        slices.listen(observe_slice, ledger.observe_slice, lambda old: ledger.observe_slice(old, None))
        ledger.conflicts.on_found = self._report_conflict

    # --- one term ---

    @property
    def is_serving(self) -> bool:
        """Whether this leader decides at this moment."""
        return self._is_open and self._is_leader()

    async def run(self) -> None:
        """Take over and decide until cancelled; then drain, as long as this guard still leads."""
        tasks = [
            asyncio.create_task(work)
            for work in (self._claims.run(), self._slices.run(), self._recorder.run())
        ]
        term: LeadershipTerm | None = None
        began = self._clock.monotonic()
        try:
            await self._claims.wait_for_sync()
            await self._slices.wait_for_sync()
            listed = self._clock.monotonic()
            term = await self._begin_term()
            await self._take_over(term)
            self.ledger.refresh_conflicts()
            self._is_open = True
            self._log.info(
                "this guard decides now",
                claims=len(self.ledger.claims),
                term=term.number,
                seconds_to_list=round(listed - began, 3),
                seconds_to_take_over=round(self._clock.monotonic() - listed, 3),
            )
            tasks.append(asyncio.create_task(self._sweep()))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        except asyncio.CancelledError:
            if self.is_serving and term is not None:
                await self._drain(term)
            raise
        finally:
            self._is_open = False
            await cancel_and_wait(*tasks)

    async def _begin_term(self) -> LeadershipTerm:
        options = self._options
        return await self._retry(
            lambda: begin_term(self._client, options.lease_name, NAMESPACE),
            "the lease cannot be read or marked",
        )

    async def _retry(self, call: Callable[[], Awaitable[T]], message: str) -> T:
        """Call the API server until it answers."""
        backoff = Backoff(self._client.options.time_source, initial=0.2, maximum=5.0)
        while True:
            try:
                return await call()
            except CALL_ERRORS as failed:
                self._log.warning(message, why=str(failed))
                await backoff.wait()

    async def _take_over(self, term: LeadershipTerm) -> None:
        """Make sure that nothing can be stored any more which the leader before admitted."""
        if term.is_drained:
            return
        options = self._options
        if term.is_first:
            # Somebody may have deleted the lease of a guard that still leads.
            self._state = "it waits until no other guard can lead"
            await self._client.options.time_source.sleep(options.lease_timing.lease_duration)
            await self._catch_up()
        open_claims = [seen.holder for seen in self.ledger.claims.values() if not seen.is_allocated]
        if len(open_claims) > options.max_fenced_claims:
            await self._wait_for_requests(
                options.request_timeout, f"{len(open_claims)} claims are to be fenced"
            )
            return
        self._state = f"it takes over and fences {len(open_claims)} claims"
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(options.request_timeout):
                if await self._fencer.fence_all(open_claims, "take-over"):
                    return
        except TimeoutError:
            pass
        left = options.request_timeout - (self._clock.monotonic() - began)
        await self._wait_for_requests(max(left, 0.0), "some claims cannot be fenced")

    async def _wait_for_requests(self, seconds: float, why: str) -> None:
        """Wait until every request has ended that an API server may have had when this term began."""
        self._state = "it waits until no write is on its way that the guard before admitted"
        self._log.info(self._state, seconds=round(seconds), why=why)
        await self._client.options.time_source.sleep(seconds)
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Wait until the ledger has every claim as it is stored now."""
        listing = await self._retry(lambda: self._client.list(ResourceClaim), "the claims cannot be listed")
        for claim in listing.items:
            uid, revision = claim.metadata.uid, int(claim.metadata.resource_version)
            while not self._has_seen(uid, revision):
                await asyncio.sleep(_POLL_SECONDS)

    def _has_seen(self, uid: str, revision: int) -> bool:
        seen = self.ledger.claims.get(uid)
        if seen is None:
            # It is deleted meanwhile when the watch is further.
            return int(self._claims.resource_version or 0) >= revision
        return seen.revision >= revision

    async def _drain(self, term: LeadershipTerm) -> None:
        """Wait until everything that was admitted is stored or cannot be stored, and mark that."""
        self._is_open, self._state = False, "it hands over to another guard"
        with suppress(*CALL_ERRORS, TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS + _FENCE_DRAIN_SECONDS):
                deadline = self._clock.monotonic() + _DRAIN_SECONDS
                while len(self.ledger.admitted) and self._clock.monotonic() < deadline:
                    await asyncio.sleep(_POLL_SECONDS)
                await self._fencer.fence_all((each.holder for each in self.ledger.admitted), "hand-over")
                if not len(self.ledger.admitted):
                    await mark_drained(self._client, self._options.lease_name, NAMESPACE, term)

    # --- decisions ---

    async def decide(self, review: AllocationReview) -> AllocationVerdict:
        """Decide a review; raise `NotServingError` when this guard cannot."""
        if self.ledger.list_unpublished(review):
            await self._wait_for_slices(review)
        verdict = self._decide_now(review)
        if verdict.is_granted or not verdict.stored_holders or self._verifying >= MAX_VERIFICATIONS:
            return self._explain(verdict)
        self._verifying += 1
        try:
            await self._verify(verdict.stored_holders[:MAX_VERIFIED_HOLDERS])
        finally:
            self._verifying -= 1
        return self._explain(self._decide_now(review))

    def _decide_now(self, review: AllocationReview) -> AllocationVerdict:
        """Decide and record in one step."""
        if not self.is_serving:
            raise NotServingError(f"guard {self._options.identity} does not decide now: {self._state}")
        if self.ledger.is_outdated(review):
            # It can never be stored: the API server reads the claim again and sends another review.
            self._metrics.count(guard_metrics.REVIEWS, "outdated")
            return AllocationVerdict()
        verdict = self.ledger.review(review)
        if not verdict.is_granted:
            return verdict
        if review.dry_run:
            self._metrics.count(guard_metrics.REVIEWS, "dry-run")
            return verdict
        if not self.ledger.admitted.can_admit(review.holder.uid):
            raise NotServingError(
                f"too many writes of claim {review.holder} or of others were admitted and are not stored yet"
            )
        self.ledger.admit(review, self._clock.monotonic())
        self._metrics.count(guard_metrics.REVIEWS, "admitted")
        return verdict

    def _explain(self, verdict: AllocationVerdict) -> AllocationVerdict:
        if verdict.is_granted:
            return verdict
        return AllocationVerdict(self.ledger.explain(verdict, self._clock.monotonic()))

    async def _wait_for_slices(self, review: AllocationReview) -> None:
        """Wait until the watch shows the devices that the API server publishes; refuse when it does not."""
        if self._verifying >= MAX_VERIFICATIONS:
            raise NotServingError(f"guard {self._options.identity} reads slices for too many other reviews")
        unpublished = self.ledger.list_unpublished(review)
        drivers = {device.driver: None for device in unpublished}
        self._verifying += 1
        try:
            async with asyncio.timeout(VERIFY_SECONDS):
                found = await asyncio.gather(*(self._list_published(driver) for driver in drivers))
            behind = [device for device in unpublished if any(device in each for each in found)]
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while not all(map(self.ledger.is_published, behind)):
                    await asyncio.sleep(_POLL_SECONDS)
        except (*CALL_ERRORS, TimeoutError) as failed:
            raise NotServingError(
                f"guard {self._options.identity} has not seen the slice of device {unpublished[0]} yet: "
                f"{str(failed) or 'it took too long'}"
            ) from None
        finally:
            self._verifying -= 1

    async def _list_published(self, driver: str) -> set[DeviceId]:
        """The devices of a driver that the API server publishes now."""
        chosen = ObjectSelector(fields=f"spec.driver={driver}")
        return list_published((await self._client.list(ResourceSlice, selector=chosen)).items)

    async def _verify(self, holders: Sequence[Holder]) -> None:
        """Read stored claims, and wait until the watch has shown what was read, within limits."""
        try:
            async with asyncio.timeout(VERIFY_SECONDS):
                revisions = await asyncio.gather(*(self._read_revision(holder) for holder in holders))
        except (*CALL_ERRORS, TimeoutError):
            return
        waiting = [
            (holder.uid, revision)
            for holder, revision in zip(holders, revisions, strict=True)
            if self._is_behind(holder.uid, revision)
        ]
        deadline = self._clock.monotonic() + CATCH_UP_SECONDS
        while any(self._is_behind(*each) for each in waiting) and self._clock.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)

    async def _read_revision(self, holder: Holder) -> int | None:
        """The revision of a claim now; None when it does not exist any more."""
        try:
            claim = await self._client.get(ResourceClaim, holder.name, holder.namespace)
        except NotFoundError:
            return None
        return int(claim.metadata.resource_version) if claim.metadata.uid == holder.uid else None

    def _is_behind(self, uid: str, revision: int | None) -> bool:
        seen = self.ledger.claims.get(uid)
        if seen is None or uid in self.ledger.orphans:
            return False
        return revision is None or seen.revision < revision

    # --- upkeep ---

    async def _sweep(self) -> None:
        """End what was admitted and cannot be stored, and release deleted claims that no pod uses."""
        while True:
            await self._client.options.time_source.sleep(_SWEEP_SECONDS)
            self.ledger.refresh_conflicts()
            self._end_admitted_of_gone_claims()
            overdue = self._clock.monotonic() - self._options.request_timeout
            for late in [each for each in self.ledger.admitted if each.admitted_at < overdue]:
                with suppress(*CALL_ERRORS):
                    await self._end_late(late, overdue)
            for claim in list(self.ledger.orphans.values()):
                with suppress(*CALL_ERRORS):
                    if not await self._has_live_pod(claim.pods):
                        self.ledger.release(claim.holder.uid)

    async def _end_late(self, late: AdmittedAllocation, overdue: float) -> None:
        """End an admitted write whose request has ended long ago."""
        try:
            await self._fencer.fence(late.holder, "unseen")
        except (ForbiddenError, InvalidObjectError):
            # The request has ended, so what is stored now is all that will be.
            if await self._read_revision(late.holder) == late.revision:
                self.ledger.expire(late.holder.uid, overdue)

    def _end_admitted_of_gone_claims(self) -> None:
        """A claim that existed at a revision which the watch has passed, and is not there, is deleted."""
        complete = int(self._claims.resource_version or 0)
        gone = [
            each.holder.uid
            for each in self.ledger.admitted
            if each.revision <= complete and each.holder.uid not in self.ledger.claims
        ]
        for uid in gone:
            self.ledger.release(uid)

    async def _has_live_pod(self, pods: Sequence[PodReference]) -> bool:
        for reference in pods:
            try:
                pod = await self._client.get(Pod, reference.name, reference.namespace)
            except NotFoundError:
                continue
            if pod.metadata.uid == reference.uid and pod.status.phase not in ("Succeeded", "Failed"):
                return True
        return False

    def _report_conflict(self, conflict: AllocationConflict) -> None:
        self._log.error("stored claims are in conflict", why=conflict.message)
        for holder in conflict.holders:
            subject = InvolvedObject(
                "resource.k8s.io/v1", "ResourceClaim", holder.namespace, holder.name, holder.uid
            )
            self._recorder.record(
                subject,
                "DeviceConflict",
                f"{conflict.message}; delete or deallocate all but one",
                warning=True,
            )
