"""The claim office of a node: has the claims of pods prepared before they run, and given back after.

Theory of operation: an attempt to prepare reads the claims fresh, asks the rules (`admission`), waits until
nobody else works on those claims, asks what stands in the way (`plan.obstacle`), and writes into the record
that the pod uses them and what is asked of which driver. When that is durable it is announced to the API, and
then the drivers are called, all at once, each once for all claims of the pod. What failed is asked again by
the next attempt, what succeeded is not. Giving back begins when the last pod that uses a claim has left: from
then on the claim takes no new users, and the pod is not over before all drivers have let go. What no pod
waits for (announcements to take back, claims that nobody remembers) is done beside.

A pod whose claims are all prepared is ready without asking anybody: containers start again also while the
server is away. An office that is told to leave claims alone says the same of every pod; what an earlier agent
had prepared stays with its pods and is given back.

Rules for this file: sequence only. What may be done is decided in `admission` and `plan`, on values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from functools import partial
from typing import Final

from dray.api.core import Container, Pod
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.node import agent_metrics
from dray.node.claims import container_devices, plan
from dray.node.claims.admission import admit_claims, is_static
from dray.node.claims.checkpoint import Checkpoint, LostCheckpoint
from dray.node.claims.claim_events import PodClaimEvents
from dray.node.claims.claim_lookup import find_claims, resolve_claim_name
from dray.node.claims.container_devices import ContainerDevice
from dray.node.claims.driver_calls import CheckpointedCalls
from dray.node.claims.outcomes import ClaimsPending, ClaimsReady, ClaimsRefused, NotReadyReason
from dray.node.claims.plan import AdmittedClaim, DriverCall
from dray.node.claims.preparations import NodePreparations
from dray.node.claims.preparer_context import ClaimPreparerContext, ClaimPreparerOptions
from dray.node.claims.published_devices import PublishedDevices
from dray.node.claims.readiness import ABANDON_ANNOTATION, check_prepared, check_released
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
from dray.tasks import wait_for_first

__all__ = [
    "ABANDON_ANNOTATION",
    "ClaimPreparerOptions",
    "ClaimsPending",
    "ClaimsReady",
    "ClaimsRefused",
    "NotReadyReason",
    "PodClaimPreparer",
]

_UNTIL_RELEASED = (NotReadyReason.GIVEN_BACK_FIRST, NotReadyReason.DEVICE_HELD)
"""What ends when a claim was given back."""
_NOT_WRITTEN: Final = "the record of prepared claims cannot be written: {}"


class PodClaimPreparer:
    """The claims of the pods of one node.

    First `recover` with the pods bound to the node; then `run` beside everything else, once no container of a
    pod that is gone runs any more. For a pod: `prepare` until it is `ClaimsReady`, with `wait_for_retry` in
    between; `release` until it returns None, with `wait_for_retry` in between, after its containers have
    ended and before it is reported to be over. Pods in `collect_users` that the API does not know any more
    are released as well.
    """

    def __init__(self, client: Client, recorder: EventRecorder, options: ClaimPreparerOptions) -> None:
        self._client = client
        self._options = options
        node = options.get_node().metadata.name
        self._checkpoint = Checkpoint(options.checkpoint_path)
        self._calls = CheckpointedCalls(
            self._checkpoint, options.drivers, PublishedDevices(client, node), options.crash_point
        )
        self._context = ClaimPreparerContext(
            options, self._calls, NodePreparations(client, options.get_node), PodClaimEvents(recorder)
        )
        self._releaser = UnusedClaimReleaser(self._context)
        self.restore_accounting = RestoreAccounting(client, self._context)
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
        """What is held on this node."""
        return self._calls.record

    def list_users(self) -> Mapping[str, ClaimUser]:
        """The pods that use claims here, or wait for one to be given back, by uid."""
        return self.record.collect_users()

    def is_held(self, pod_uid: str) -> bool:
        """Whether a pod uses claims here or waits for one to be given back."""
        return pod_uid in self.record.collect_users()

    def list_cdi_names(self, pod_uid: str, container: Container) -> tuple[str, ...]:
        """The qualified names of the CDI devices a container gets; the pod must be `ClaimsReady`."""
        return container_devices.list_cdi_names(self.record, pod_uid, container.resources.claims)

    def list_devices(self, pod_uid: str, container: Container) -> tuple[ContainerDevice, ...]:
        """The devices a container has, for health in its status."""
        return container_devices.list_container_devices(self.record, pod_uid, container.resources.claims)

    async def find_problem(self) -> str:
        """What keeps the record from being written, when it could not be the last time and cannot now."""
        problem = await self._calls.save("written again") if self._calls.save_error else ""
        return _NOT_WRITTEN.format(problem) if problem else ""

    # Beginning.

    async def recover(self, pods: Iterable[Pod], running: Set[str] = frozenset()) -> None:
        """Take up what an earlier agent left; `pod_uids` are all pods bound to this node.

        `running` are the uids of those that have containers: whatever the record says, they use their claims.

        `dray.durable.Newer` when the checkpoint is of a later version: then the agent must not start.
        """
        loaded = await asyncio.to_thread(self._checkpoint.load)
        lost = isinstance(loaded, LostCheckpoint)
        record = known = ClaimsRecord() if isinstance(loaded, LostCheckpoint) else loaded
        if isinstance(loaded, LostCheckpoint) and loaded.why:
            self._options.log("record is made anew", cause=loaded.why)
        pods = tuple(pod for pod in pods if may_use_claims(pod))
        strangers = {pod.metadata.uid for pod in pods if has_unknown_entries(record, pod)} & running
        sight = await self._observe_claims(pods, record, required=lost, unknown_users=strangers)
        if sight is not None:
            record = complete_record(record, sight, lost=lost)
            record = add_running_users(
                record, (each for each in sight.pods if each[0].metadata.uid in strangers)
            )
        self._context.preparations.announced |= find_announced(known, record, running)
        self._calls.record = plan.apply_boot_id(record, self._options.boot_id)
        problem = await self._calls.save("awakened")
        if problem:
            raise OSError(_NOT_WRITTEN.format(problem))
        self._releaser.trigger()

    async def _observe_claims(
        self, pods: tuple[Pod, ...], record: ClaimsRecord, *, required: bool, unknown_users: Set[str]
    ) -> ObservedClaims | None:
        """What the API says this node has. A lost record must wait for it, a whole one can do without.

        One that does not know what runs here is not whole.
        """
        backoff, required = Backoff(self._options.time_source), required or bool(unknown_users)
        while True:
            try:
                standing = await self._context.preparations.list_existing()
                unknown = {each.spec.claim.uid for each in standing or ()} - {c.uid for c in record.claims}
                if not required and not unknown:
                    return ObservedClaims((), standing)
                if unknown and await self._context.preparations.is_restore_unaccounted():
                    # Of a past that the server went back to: only who runs is known to use anything of it.
                    pods = tuple(pod for pod in pods if pod.metadata.uid in unknown_users)
                found = [(pod, await find_claims(self._client, pod, record)) for pod in pods]
                return ObservedClaims(tuple(found), standing)
            except CALL_ERRORS as trouble:
                self._options.log("cannot see what this node has", cause=str(trouble), waits=required)
                if not required:
                    return None
            await backoff.wait()

    # Preparing.

    async def prepare(self, pod: Pod) -> ClaimsReady | ClaimsRefused | ClaimsPending:
        """Have the claims of a pod prepared: one attempt; anything but `ClaimsReady` is told in an event."""
        user = ClaimUser(uid=pod.metadata.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
        if self._is_ready(pod):
            self._clear_retry_state(user.uid)
            return ClaimsReady()
        if not self._options.prepare_claims:
            self._context.events.record_claims_ignored(user)
            return ClaimsReady()
        began = self._options.time_source.clock.monotonic()
        answer = await self._try_prepare(pod, user)
        seconds = self._options.time_source.clock.monotonic() - began
        self._options.metrics.observe_operation(
            agent_metrics.PREPARE_OPERATION, seconds, failed=not isinstance(answer, ClaimsReady)
        )
        if isinstance(answer, ClaimsReady):
            self._clear_retry_state(user.uid)
            return answer
        if user.uid not in self._releasing:
            self._context.events.record_prepare_failure(user, answer)
        self._pending_reasons[user.uid] = answer.reason
        if isinstance(answer, ClaimsRefused):
            self._options.metrics.count(agent_metrics.REFUSALS, answer.reason.value)
        return answer

    def _is_ready(self, pod: Pod) -> bool:
        """Whether the record alone says that everything a pod needs is prepared."""
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
                announcing = await self._context.preparations.is_served()
            except CALL_ERRORS as trouble:
                return ClaimsPending(NotReadyReason.CLAIM_UNREAD, f"claims cannot be read: {trouble}")
            wanted = admit_claims(pod, found, self._options.get_node())
            if isinstance(wanted, ClaimsRefused):
                return wanted
            # Who had to wait looks again: much may have happened to the claims meanwhile.
            if not await self._context.claim_locks.wait_until_free(partial(self._list_unprepared, wanted)):
                break
        return await self._context.pod_queues.run_in_order(
            user.uid, partial(self._prepare_admitted, user, wanted, announcing)
        )

    async def _prepare_admitted(
        self, user: ClaimUser, admitted: tuple[AdmittedClaim, ...], announce: bool
    ) -> ClaimsReady | ClaimsRefused | ClaimsPending:
        needed = partial(self._list_unprepared, admitted)
        async with self._context.claim_locks.hold(
            needed, should_cancel=lambda: user.uid in self._releasing
        ) as taken:
            if not taken:
                return ClaimsPending(NotReadyReason.GIVEN_BACK_FIRST, "the pod is ending")
            in_the_way = plan.find_obstacle(self.record, admitted)
            if in_the_way is not None:
                return in_the_way
            present = self._calls.filter_registered(plan.collect_drivers(admitted))
            self._calls.record, calls = plan.begin_preparing(self.record, user, admitted, present, announce)
            failed = await self._record_and_announce(calls, announce)
            if failed is not None:
                self._calls.record = plan.withdraw_calls(self.record, calls)
                return failed
            await self._calls.prepare(calls)
        return check_prepared(self.record, admitted)

    def _list_unprepared(self, admitted: tuple[AdmittedClaim, ...]) -> frozenset[str]:
        """Claims on which something has to be done; the others may be used while others work on them."""
        return frozenset(each.uid for each in admitted if not self._is_prepared(each.uid))

    def _is_prepared(self, uid: str) -> bool:
        held = self.record.find_claim(uid)
        return held is not None and held.state is NodeClaimStage.PREPARED

    async def _record_and_announce(
        self, calls: tuple[DriverCall, ...], announce: bool
    ) -> ClaimsPending | None:
        """What has to be true before drivers are called: it is durable, and the API knows."""
        problem = await self._calls.save("preparing recorded")
        if problem:
            return ClaimsPending(NotReadyReason.NOT_RECORDED, _NOT_WRITTEN.format(problem))
        if announce:
            uids = {uid for call in calls for uid in call.uids}
            claims = [held for held in self.record.claims if held.uid in uids and not held.classic]
            problem = await self._context.preparations.announce(claims)
            if problem:
                why = f"the server does not take the node's word that it prepares {problem}"
                return ClaimsPending(NotReadyReason.NOT_ANNOUNCED, why)
            self._options.crash_point("preparing announced")
        return None

    # Giving back.

    async def release(self, pod_uid: str, *, abandon: bool = False) -> ClaimsPending | None:
        """Give back what a pod was the last to use: one attempt; None when nothing of it is left.

        The pod's containers must have ended. With `abandon`, what no driver takes back is forgotten.
        """
        began = self._options.time_source.clock.monotonic()
        self._releasing.add(pod_uid)
        self._context.claim_locks.recheck()
        try:
            user = self.list_users().get(pod_uid, ClaimUser(uid=pod_uid))
            answer = await self._context.pod_queues.run_in_order(
                pod_uid, partial(self._release_pod, pod_uid, abandon)
            )
        finally:
            self._releasing.discard(pod_uid)
        seconds = self._options.time_source.clock.monotonic() - began
        self._options.metrics.observe_operation(
            agent_metrics.UNPREPARE_OPERATION, seconds, failed=answer is not None
        )
        if answer is None:
            self._clear_retry_state(pod_uid)
        else:
            self._context.events.record_release_failure(user, answer)
        return answer

    async def _release_pod(self, pod_uid: str, abandon: bool) -> ClaimsPending | None:
        def needed() -> frozenset[str]:
            alone = (held for held in self.record.find_used_by(pod_uid) if held.pod_uids == (pod_uid,))
            return frozenset(held.uid for held in (*alone, *self.record.find_released_by(pod_uid)))

        if not self.is_held(pod_uid):
            return None
        async with self._context.claim_locks.hold(needed):
            self._calls.record = plan.release_pod(self.record, pod_uid)
            problem = await self._calls.save("unpreparing recorded")
            if problem:
                return ClaimsPending(NotReadyReason.NOT_RECORDED, _NOT_WRITTEN.format(problem))
            await self._releaser.release_claims(self.record.find_released_by(pod_uid), abandon=abandon)
            if any(held.state is NodeClaimStage.LETTING_GO for held in self.record.claims):
                # Also what no driver was asked for may have been announced.
                self._releaser.trigger()
        present = self._calls.filter_registered(plan.collect_drivers(self.record.find_released_by(pod_uid)))
        return check_released(self.record, pod_uid, present)

    # Waiting.

    async def wait_for_retry(self, pod_uid: str) -> None:
        """Wait until another attempt for a pod makes sense.

        The waits grow, and end early when a driver came, or a claim was given back that the pod waits for.
        """
        backoff = self._backoffs.get(pod_uid)
        if backoff is None:
            backoff = self._backoffs[pod_uid] = Backoff(self._options.time_source, initial=0.5, maximum=20.0)
        bells = [self._context.changed.wait()]
        if self._pending_reasons.get(pod_uid) in _UNTIL_RELEASED:
            bells.append(self._context.released.wait())
        await wait_for_first(backoff.wait(), *bells)

    def retry_now(self) -> None:
        """Something changed (a driver registered, a pod or node was changed): end all pauses."""
        self._context.changed.notify_all()
        self._releaser.trigger()

    def _clear_retry_state(self, pod_uid: str) -> None:
        self._backoffs.pop(pod_uid, None)
        self._pending_reasons.pop(pod_uid, None)
        self._context.events.forget(pod_uid)

    async def run(self) -> None:
        """Do what no pod waits for, until cancelled; then stop the calls that are under way."""
        try:
            await self._releaser.run()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop the calls that are under way; the next agent finds in the record what they were."""
        await self._context.pod_queues.close()
        await self._checkpoint.close()
