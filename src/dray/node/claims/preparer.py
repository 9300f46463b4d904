"""Preparation and release of the claims of pods, the counterpart of the kubelet's DRA manager.

Theory of operation: an attempt to prepare reads the claims from the server, applies the rules of `admission`,
waits until no one else works on those claims, checks for obstacles (`plan.find_obstacle`), and records that
the pod uses them and which calls each driver needs. When the record is durable, the agent creates
Preparations in the API and then calls all drivers at the same time, each once for all claims of the pod. The
next attempt repeats the calls that failed, and only those. Release begins when the last pod that uses a claim
has ended: from then on the claim accepts no new users, and the pod is not reported as finished before all
drivers have unprepared the claim. `releaser` does in the background what no pod waits for: it deletes
Preparations and releases claims of pods that are gone.

A pod whose claims are all prepared is ready without a request to the server, so its containers can restart
while the server is unreachable. With `prepare_claims` switched off every pod is ready; claims that an earlier
agent prepared stay with their pods and are released after them.

Rules for this file: sequence only. `admission` and `plan` decide, on values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Set
from functools import partial
from typing import Final

from dray.api.core import Container, Pod
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.node import agent_metrics
from dray.node.claims import container_devices, plan
from dray.node.claims.admission import admit_claims, find_claims, is_static, resolve_claim_name
from dray.node.claims.checkpoint import Checkpoint, LostCheckpoint
from dray.node.claims.claim_events import PodClaimEvents
from dray.node.claims.container_devices import ContainerDevice
from dray.node.claims.driver_calls import CheckpointedCalls
from dray.node.claims.outcomes import ClaimsPending, ClaimsReady, ClaimsRefused, NotReadyReason
from dray.node.claims.plan import AdmittedClaim, DriverCall
from dray.node.claims.preparations import NodePreparations
from dray.node.claims.preparer_options import ClaimPreparerOptions
from dray.node.claims.readiness import check_prepared, check_released
from dray.node.claims.record import ClaimsRecord, ClaimUser, NodeClaimStage
from dray.node.claims.recovery import (
    ObservedClaims,
    add_running_users,
    complete_record,
    find_announced,
    has_unknown_entries,
    may_use_claims,
)
from dray.node.claims.releaser import UnusedClaimReleaser
from dray.node.claims.restore_accounting import RestoreAccounting
from dray.node.keyed_locks import Broadcast
from dray.node.plugins.published_slices import PublishedSlices
from dray.tasks import wait_for_first

_UNTIL_RELEASED: Final = (NotReadyReason.GIVEN_BACK_FIRST, NotReadyReason.DEVICE_HELD)
"""Reasons that the release of another claim resolves."""
_NOT_WRITTEN: Final = "the record of prepared claims cannot be written: {}"


class PodClaimPreparer:
    """Prepares and releases the claims of the pods of one node.

    Call `recover` with the pods bound to the node first; then start `run` as a task, once no container of a
    deleted pod runs any more. For each pod call `prepare` until it returns `ClaimsReady`, with
    `wait_for_retry` in between; after its containers have ended and before the pod is reported as finished,
    call `release` until it returns None, with `wait_for_retry` in between. Release pods in `list_users` that
    the API does not know any more as well.
    """

    def __init__(self, client: Client, recorder: EventRecorder, options: ClaimPreparerOptions) -> None:
        self._client = client
        self._options = options
        node = options.get_node().metadata.name
        self._checkpoint = Checkpoint(options.checkpoint_path)
        self._calls = CheckpointedCalls(
            self._checkpoint, options.drivers, PublishedSlices(client, node), options.crash_point
        )
        self._preparations = NodePreparations(client, options.get_node)
        self._events = PodClaimEvents(recorder)
        self._changed = Broadcast()
        """Notified when a driver registers, or anything else changes that a retry may need."""
        self._releaser = UnusedClaimReleaser(self._calls, self._preparations, self._events, options)
        self.restore_accounting = RestoreAccounting(
            client, self._calls, self._preparations, options, self._changed.notify_all
        )
        self._backoffs: dict[str, Backoff] = {}
        self._pending_reasons: dict[str, NotReadyReason] = {}
        self._releasing: set[str] = set()
        metrics = options.metrics
        metrics.add_callback(
            agent_metrics.HELD_CLAIMS,
            lambda: [((str(s),), n) for s, n in self.record.count_by_stage().items()],
        )
        metrics.add_callback(
            agent_metrics.CLAIMS_IN_USE, lambda: [((d,), n) for d, n in self.record.count_by_driver().items()]
        )

    @property
    def record(self) -> ClaimsRecord:
        """The claims held on this node."""
        return self._calls.record

    def list_users(self) -> Mapping[str, ClaimUser]:
        """Return the pods that use claims here or wait for the release of one, by uid."""
        return self.record.collect_users()

    def is_held(self, pod_uid: str) -> bool:
        """Return whether a pod uses claims here or waits for the release of one."""
        return pod_uid in self.record.collect_users()

    def list_cdi_names(self, pod_uid: str, container: Container) -> tuple[str, ...]:
        """List the qualified names of the CDI devices of a container; the pod must be `ClaimsReady`."""
        return container_devices.list_cdi_names(self.record, pod_uid, container.resources.claims)

    def list_devices(self, pod_uid: str, container: Container) -> tuple[ContainerDevice, ...]:
        """List the devices of a container, for their health in its status."""
        return container_devices.list_container_devices(self.record, pod_uid, container.resources.claims)

    async def find_problem(self) -> str:
        """Return why the record cannot be written: after a failure, try again; empty when that works."""
        problem = await self._calls.save("written again") if self._calls.save_error else ""
        return _NOT_WRITTEN.format(problem) if problem else ""

    # --- recovery ---

    async def recover(self, pods: Iterable[Pod], running: Set[str] = frozenset()) -> None:
        """Take over the claims of an earlier agent; `pods` are all pods bound to this node.

        `running` are the uids of those with running containers: they use their claims, whatever the record
        says.

        Raises `dray.durable.UnsupportedVersionError` when a later version wrote the checkpoint; the agent
        must not start then.
        """
        loaded = await asyncio.to_thread(self._checkpoint.load)
        lost = isinstance(loaded, LostCheckpoint)
        record = known = ClaimsRecord() if isinstance(loaded, LostCheckpoint) else loaded
        if isinstance(loaded, LostCheckpoint) and loaded.why:
            self._options.log("the record of prepared claims is rebuilt", cause=loaded.why)
        if self._checkpoint.cut_bytes:
            cut = self._checkpoint.cut_bytes
            self._options.log("an unfinished change of the record of prepared claims is dropped", bytes=cut)
        pods = tuple(pod for pod in pods if may_use_claims(pod))
        unknown_users = {pod.metadata.uid for pod in pods if has_unknown_entries(record, pod)} & running
        observed = await self._observe_claims(pods, record, required=lost, unknown_users=unknown_users)
        if observed is not None:
            record = complete_record(record, observed, lost=lost)
            record = add_running_users(
                record, (each for each in observed.pods if each[0].metadata.uid in unknown_users)
            )
        self._preparations.announced |= find_announced(known, record, running)
        self._calls.record = plan.apply_boot_id(record, self._options.boot_id)
        problem = await self._calls.save("awakened")
        if problem:
            raise OSError(_NOT_WRITTEN.format(problem))
        self._releaser.trigger()

    async def _observe_claims(
        self, pods: tuple[Pod, ...], record: ClaimsRecord, *, required: bool, unknown_users: Set[str]
    ) -> ObservedClaims | None:
        """Read what the API says this node holds; wait for the server only if the record is incomplete.

        A record is incomplete when it was lost, or when it does not know all users that run here.
        """
        backoff, required = Backoff(self._options.time_source), required or bool(unknown_users)
        while True:
            try:
                existing = await self._preparations.list_existing()
                unknown = {each.spec.claim.uid for each in existing or ()} - {c.uid for c in record.claims}
                if not required and not unknown:
                    return ObservedClaims((), existing)
                if unknown and await self._preparations.is_restore_unaccounted():
                    # The server was restored to an earlier state: only running pods certainly use claims.
                    pods = tuple(pod for pod in pods if pod.metadata.uid in unknown_users)
                found = [(pod, await find_claims(self._client, pod, record)) for pod in pods]
                return ObservedClaims(tuple(found), existing)
            except CALL_ERRORS as error:
                self._options.log(
                    "cannot read the Preparations of this node", cause=str(error), waits=required
                )
                if not required:
                    return None
            await backoff.wait()

    # --- preparation ---

    async def prepare(self, pod: Pod) -> ClaimsReady | ClaimsRefused | ClaimsPending:
        """Try once to prepare the claims of a pod; record an event unless the outcome is `ClaimsReady`."""
        user = ClaimUser(uid=pod.metadata.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
        if self._is_ready(pod):
            self._clear_retry_state(user.uid)
            return ClaimsReady()
        if not self._options.prepare_claims:
            self._events.record_claims_ignored(user)
            return ClaimsReady()
        started = self._options.time_source.clock.monotonic()
        outcome = await self._try_prepare(pod, user)
        seconds = self._options.time_source.clock.monotonic() - started
        self._options.metrics.observe_operation(
            agent_metrics.PREPARE_OPERATION, seconds, failed=not isinstance(outcome, ClaimsReady)
        )
        if isinstance(outcome, ClaimsReady):
            self._clear_retry_state(user.uid)
            return outcome
        if user.uid not in self._releasing:
            self._events.record_prepare_failure(user, outcome)
        self._pending_reasons[user.uid] = outcome.reason
        if isinstance(outcome, ClaimsRefused):
            self._options.metrics.count(agent_metrics.REFUSALS, outcome.reason.value)
        return outcome

    def _is_ready(self, pod: Pod) -> bool:
        """Return whether the record alone shows that all claims of a pod are prepared."""
        needed = [
            entry.name
            for entry in pod.spec.resource_claims
            if resolve_claim_name(pod, entry, self.record) is not None
        ]
        if is_static(pod) and needed:
            return False
        return not container_devices.find_unprepared_entries(self.record, pod.metadata.uid, needed)

    async def _try_prepare(self, pod: Pod, user: ClaimUser) -> ClaimsReady | ClaimsRefused | ClaimsPending:
        while True:
            try:
                found = {} if is_static(pod) else await find_claims(self._client, pod, self.record)
                announce = await self._preparations.is_served()
            except CALL_ERRORS as error:
                return ClaimsPending(NotReadyReason.CLAIM_UNREAD, f"claims cannot be read: {error}")
            admitted = admit_claims(pod, found, self._options.get_node())
            if isinstance(admitted, ClaimsRefused):
                return admitted
            # After a wait, read again: the claims may have changed meanwhile.
            if not await self._calls.claim_locks.wait_until_free(partial(self._list_unprepared, admitted)):
                break
        return await self._calls.pod_queues.run_in_order(
            user.uid, partial(self._prepare_admitted, user, admitted, announce)
        )

    async def _prepare_admitted(
        self, user: ClaimUser, admitted: tuple[AdmittedClaim, ...], announce: bool
    ) -> ClaimsReady | ClaimsRefused | ClaimsPending:
        needed = partial(self._list_unprepared, admitted)
        async with self._calls.claim_locks.hold(
            needed, should_cancel=lambda: user.uid in self._releasing
        ) as locked:
            if not locked:
                return ClaimsPending(NotReadyReason.GIVEN_BACK_FIRST, "the pod is ending")
            obstacle = plan.find_obstacle(self.record, admitted)
            if obstacle is not None:
                return obstacle
            present = self._calls.filter_registered(plan.collect_drivers(admitted))
            self._calls.record, calls = plan.begin_preparing(self.record, user, admitted, present, announce)
            failed = await self._record_and_announce(calls, announce)
            if failed is not None:
                self._calls.record = plan.withdraw_calls(self.record, calls)
                return failed
            await self._calls.prepare(calls)
        return check_prepared(self.record, admitted)

    def _list_unprepared(self, admitted: tuple[AdmittedClaim, ...]) -> frozenset[str]:
        """List the claims that need calls; only those have to be locked."""
        return frozenset(each.uid for each in admitted if not self._is_prepared(each.uid))

    def _is_prepared(self, uid: str) -> bool:
        recorded = self.record.find_claim(uid)
        return recorded is not None and recorded.state is NodeClaimStage.PREPARED

    async def _record_and_announce(
        self, calls: tuple[DriverCall, ...], announce: bool
    ) -> ClaimsPending | None:
        """Make the record durable and create the Preparations, both of which must precede driver calls."""
        problem = await self._calls.save("preparing recorded")
        if problem:
            return ClaimsPending(NotReadyReason.NOT_RECORDED, _NOT_WRITTEN.format(problem))
        if announce:
            uids = {uid for call in calls for uid in call.uids}
            claims = [each for each in self.record.claims if each.uid in uids and not each.classic]
            problem = await self._preparations.announce(claims)
            if problem:
                why = f"the server does not accept a Preparation of {problem}"
                return ClaimsPending(NotReadyReason.NOT_ANNOUNCED, why)
            self._options.crash_point("preparing announced")
        return None

    # --- release ---

    async def release(
        self, pod_uid: str, *, abandon: bool = False, defer_withdrawal: bool = False
    ) -> ClaimsPending | None:
        """Try once to release the claims that only this pod uses; return None when none is left.

        The pod's containers must have ended. With `abandon`, claims that no driver unprepares are forgotten.
        With `defer_withdrawal`, their Preparations are left to `commit_withdrawal`.
        """
        started = self._options.time_source.clock.monotonic()
        self._releasing.add(pod_uid)
        self._calls.claim_locks.recheck()
        try:
            user = self.list_users().get(pod_uid, ClaimUser(uid=pod_uid))
            outcome = await self._calls.pod_queues.run_in_order(
                pod_uid, partial(self._release_pod, pod_uid, abandon, defer_withdrawal)
            )
        finally:
            self._releasing.discard(pod_uid)
        seconds = self._options.time_source.clock.monotonic() - started
        self._options.metrics.observe_operation(
            agent_metrics.UNPREPARE_OPERATION, seconds, failed=outcome is not None
        )
        if outcome is None:
            self._clear_retry_state(pod_uid)
        else:
            self._events.record_release_failure(user, outcome)
        return outcome

    async def _release_pod(self, pod_uid: str, abandon: bool, defer_withdrawal: bool) -> ClaimsPending | None:
        def list_to_release() -> frozenset[str]:
            only_user = (each for each in self.record.find_used_by(pod_uid) if each.pod_uids == (pod_uid,))
            return frozenset(each.uid for each in (*only_user, *self.record.find_released_by(pod_uid)))

        if not self.is_held(pod_uid):
            return None
        async with self._calls.claim_locks.hold(list_to_release):
            if defer_withdrawal:
                self._releaser.defer_withdrawal(pod_uid, list_to_release())
            self._calls.record = plan.release_pod(self.record, pod_uid)
            problem = await self._calls.save("unpreparing recorded")
            if problem:
                return ClaimsPending(NotReadyReason.NOT_RECORDED, _NOT_WRITTEN.format(problem))
            await self._releaser.release_claims(self.record.find_released_by(pod_uid), abandon=abandon)
            if any(recorded.state is NodeClaimStage.LETTING_GO for recorded in self.record.claims):
                # A claim may have a Preparation although no driver was called for it.
                self._releaser.trigger()
        present = self._calls.filter_registered(plan.collect_drivers(self.record.find_released_by(pod_uid)))
        return check_released(self.record, pod_uid, present)

    async def commit_withdrawal(self, pod_uid: str, transaction: ObjectTransaction) -> bool:
        """Commit a transaction together with the deletion of a pod's deferred Preparations.

        Return False when nothing was written or nobody knows: then each write has to be made alone.
        """
        return await self._calls.pod_queues.run_in_order(
            pod_uid, partial(self._releaser.withdraw_with, pod_uid, transaction)
        )

    def resume_withdrawal(self, pod_uid: str) -> None:
        """Delete deferred Preparations of a pod in the background, if any are left."""
        self._releaser.resume_withdrawal(pod_uid)

    # --- retries ---

    async def wait_for_retry(self, pod_uid: str) -> None:
        """Wait until another attempt for a pod makes sense.

        The delays grow; a wait ends early when a driver registers, or when a claim is released and the pod
        waits for that.
        """
        backoff = self._backoffs.get(pod_uid)
        if backoff is None:
            backoff = self._backoffs[pod_uid] = Backoff(self._options.time_source, initial=0.5, maximum=20.0)
        changes: list[Awaitable[object]] = [self._changed.wait()]
        if self._pending_reasons.get(pod_uid) in _UNTIL_RELEASED:
            changes.append(self._releaser.released.wait())
        await wait_for_first(backoff.wait(), *changes)

    def retry_now(self) -> None:
        """End all waits, because a driver registered, or a pod or the node changed."""
        self._changed.notify_all()
        self._releaser.trigger()

    def _clear_retry_state(self, pod_uid: str) -> None:
        self._backoffs.pop(pod_uid, None)
        self._pending_reasons.pop(pod_uid, None)
        self._events.forget(pod_uid)

    async def run(self) -> None:
        """Release claims in the background until cancelled; then stop the calls in progress."""
        try:
            await self._releaser.run()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop the calls in progress; the next agent finds them in the record."""
        await self._calls.pod_queues.close()
        await self._checkpoint.close()
