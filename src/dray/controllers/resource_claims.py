"""The resource claim controller: creates, records, reserves, releases and deletes claims as
`claims/lifecycle` decides.

Theory of operation: listeners ask whether there is something to do and add the key of a pod or claim to the
queue; workers decide again when they take it, execute the actions, and repeat with the server's responses
until nothing is left to do. On a server with transactions the claims of a pod are one write, together with
their record in its status, and the end of each claim is another one: its deletion, and the removal of the
finalizer, with which reservation and allocation go. Otherwise a pod with templates costs one creation per
entry and one write of its status, and its end one write that removes the finalizer of the claim that the
garbage collector has marked. Indexes find the pods that an event concerns: by the template they wait for, by
the claim they use.

Rules for this file: informers lag. A pod counts as absent only when its deletion was seen or the server says
so; a placed pod without a reservation is checked twice, the second time against the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.resource import ConsumerReference, ResourceClaim, ResourceClaimTemplate
from dray.claims import claim_names, reservation
from dray.claims.actions import (
    AnyClaim,
    ClaimWrite,
    DeleteClaim,
    ReleaseClaim,
    RemoveFinalizer,
)
from dray.claims.lifecycle import (
    LifecycleLookups,
    decide_for_claim,
    decide_for_classic,
    decide_reservations,
    find_claim,
    find_classic_claim,
    is_garbage,
)
from dray.client.errors import ConflictError
from dray.client.informers.informer import Informer
from dray.controllers.claim_actions import ClaimActionExecutor
from dray.controllers.claim_creation import ClaimCreation
from dray.controllers.informers import (
    CLAIM_INDEX,
    CONSUMER_INDEX,
    INLINE_CLAIM_INDEX,
    OWNER_INDEX,
    TEMPLATE_INDEX,
    SharedInformers,
    list_claim_names,
)
from dray.controllers.mutation_cache import MutationCache
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import StructuredLogger

QUEUE_NAME: Final = "resource_claim"
SETTLE_SECONDS: Final = 1.0
"""Seconds in which a state that looks wrong usually resolves itself: the reservation of a placed pod was
written a moment before, and a claim whose pod is gone is being garbage-collected.
"""
MAX_STEPS: Final = 8
"""How often a claim is decided in one reconciliation; more means that another writer keeps changing it."""


class ClaimWorkItem(NamedTuple):
    """The kind and name of an object to reconcile."""

    kind: type[Pod] | type[ResourceClaim] | type[ClassicResourceClaim]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.__name__} {self.namespace}/{self.name}"


class ResourceClaimController:
    """Creates the claims of pods, and releases and deletes them."""

    def __init__(
        self,
        shared_informers: SharedInformers,
        executor: ClaimActionExecutor,
        log: StructuredLogger,
        *,
        workers: int,
        stands_back: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stands_back` says whether another controller keeps the claims that are not classic."""
        self.informers: tuple[Informer[Any], ...] = ()
        self._stands_back = stands_back
        self._workers = workers
        self._shared_informers, self._lookup, self._log = shared_informers, shared_informers.lookup, log
        self._executor = executor
        self._creation = ClaimCreation(executor, self._lookup)
        time_source = executor.client.options.time_source
        self._now = time_source.clock.monotonic
        self.queue: WorkQueue[ClaimWorkItem] = WorkQueue(QUEUE_NAME, time_source, executor.metrics)
        self._unreserved_since: dict[str, float] = {}
        self._uncollected_since: dict[str, float] = {}
        self._claim_kinds: dict[
            type, tuple[MutationCache[Any], Callable[[Any, LifecycleLookups], list[ClaimWrite]]]
        ] = {ResourceClaim: (shared_informers.claim_cache, decide_for_claim)}
        if shared_informers.classic_claim_cache is not None:
            self._claim_kinds[ClassicResourceClaim] = (
                shared_informers.classic_claim_cache,
                decide_for_classic,
            )
        self._register_listeners()

    def _register_listeners(self) -> None:
        informers = self._shared_informers
        informers.pods.listen(self._on_pod_added, self._on_pod_updated, self._on_pod_deleted)
        informers.claims.listen(
            lambda claim: self._on_claim_updated(None, claim), self._on_claim_updated, self._on_claim_deleted
        )
        informers.templates.listen(self._on_template_added)
        if informers.classic_claims is not None:
            informers.classic_claims.listen(
                self._on_classic_claim_updated,
                lambda _old, new: self._on_classic_claim_updated(new),
                self._enqueue_pods_by_name,
            )

    async def run(self) -> None:
        """Reconcile claims until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, self._workers)

    async def _reconcile(self, item: ClaimWorkItem) -> None:
        if item.kind is Pod:
            await self._reconcile_pod(item)
        elif item.kind is ClassicResourceClaim or not self._stands_back():
            await self._reconcile_claim(item)

    def enqueue_all(self) -> None:
        """Check every pod and claim: this controller stood back, and does not any more."""
        for pod in self._shared_informers.pods.list_all():
            self._on_pod_added(pod)
        for claim in self._shared_informers.claims.list_all():
            self._on_claim_updated(None, claim)

    def _log_failure(self, item: ClaimWorkItem, error: Exception) -> None:
        if not isinstance(error, ConflictError):
            self._log.warning("reconciling failed and is tried again later", about=str(item), why=str(error))

    # --- event handlers ---

    def _on_pod_added(self, pod: Pod) -> None:
        if pod.spec.resource_claims:
            self._enqueue(pod)
        if reservation.is_pod_finished(pod):
            self._enqueue_claims(pod)

    def _on_pod_updated(self, old: Pod, new: Pod) -> None:
        if new.spec.resource_claims and (
            (_has_become_placed(old, new) and self._is_unready_on_node(new)) or self._has_missing_claims(new)
        ):
            self._enqueue(new)
        if reservation.is_pod_finished(new) and not reservation.is_pod_finished(old):
            self._enqueue_claims(new)

    def _is_unready_on_node(self, pod: Pod) -> bool:
        """Whether something is left to do for a pod that got its node: usually its scheduler reserved all."""
        has_inline = any(entry.template is not None for entry in pod.spec.resource_claims)
        return has_inline or bool(decide_reservations(pod, self._lookup))

    def _has_missing_claims(self, pod: Pod) -> bool:
        """Whether an entry with a template has no claim that is recorded and exists."""
        entries = pod.spec.resource_claims
        return any(
            entry.resource_claim_template_name is not None and find_claim(pod, entry, self._lookup) is None
            for entry in entries
        )

    def _on_pod_deleted(self, pod: Pod) -> None:
        self._executor.responses.forget_pod(pod)
        self._unreserved_since.pop(pod.metadata.uid, None)
        self._enqueue_claims(pod)

    def _enqueue_claims(self, pod: Pod) -> None:
        """Check the claims that a finished pod used, owned, or named."""
        informers, uid = self._shared_informers, pod.metadata.uid
        for index in (CONSUMER_INDEX, OWNER_INDEX):
            for claim in informers.claims.get_by_index(index, uid):
                self._enqueue(claim)
            if informers.classic_claims is not None:
                for classic in informers.classic_claims.get_by_index(index, uid):
                    self._enqueue(classic)
        for namespace, name in list_claim_names(pod):
            named = informers.claims.get(name, namespace)
            if named is not None and not named.status.reserved_for and named.status.allocation is not None:
                self._enqueue(named)

    def _on_claim_updated(self, old: ResourceClaim | None, new: ResourceClaim) -> None:
        before = old.status.reserved_for if old is not None else ()
        for consumer in new.status.reserved_for:
            if consumer not in before and self._is_apparently_done(new.metadata.namespace, consumer):
                self._shared_informers.mark_pod_uncertain(consumer.uid)
        if self._is_newest(new) and decide_for_claim(new, self._lookup):
            self._enqueue(new)
        if new.status.allocation is not None and (old is None or old.status.allocation is None):
            for pod in self._shared_informers.pods.get_by_index(
                CLAIM_INDEX, (new.metadata.namespace, new.metadata.name)
            ):
                if pod.spec.node_name:
                    self._enqueue(pod)

    def _is_newest(self, claim: ResourceClaim) -> bool:
        """Whether this controller has not written a newer version of a claim, or deleted it."""
        metadata = claim.metadata
        known = self._shared_informers.claim_cache.get(metadata.namespace, metadata.name)
        return known is not None and known.metadata.resource_version == metadata.resource_version

    def _on_claim_deleted(self, claim: ResourceClaim) -> None:
        """Check the pods of a deleted claim: they get another one."""
        self._uncollected_since.pop(claim.metadata.uid, None)
        for owner in claim.metadata.owner_references:
            pod = (
                self._shared_informers.pods.get(owner.name, claim.metadata.namespace)
                if owner.kind == "Pod"
                else None
            )
            if pod is not None and pod.metadata.uid == owner.uid:
                self._enqueue(pod)
        self._enqueue_pods_by_name(claim)

    def _on_template_added(self, template: ResourceClaimTemplate) -> None:
        for pod in self._shared_informers.pods.get_by_index(
            TEMPLATE_INDEX, claim_names.get_namespaced_name(template.metadata)
        ):
            self._enqueue(pod)

    def _on_classic_claim_updated(self, claim: ClassicResourceClaim) -> None:
        if decide_for_classic(claim, self._lookup):
            self._enqueue(claim)

    def _enqueue_pods_by_name(self, claim: AnyClaim) -> None:
        """Check the pods whose inline template makes a claim of the name of a deleted one."""
        for pod in self._shared_informers.pods.get_by_index(
            INLINE_CLAIM_INDEX, claim_names.get_namespaced_name(claim.metadata)
        ):
            self._enqueue(pod)

    def _enqueue(self, obj: Pod | AnyClaim) -> None:
        self.queue.add(ClaimWorkItem(type(obj), *claim_names.get_namespaced_name(obj.metadata)))

    # --- pods ---

    async def _reconcile_pod(self, item: ClaimWorkItem) -> None:
        pod = self._shared_informers.pods.get(item.name, item.namespace)
        if pod is None or self._executor.responses.is_informer_behind(pod):
            return
        if self._stands_back():
            await self._creation.create_classic_claims(pod)
            return
        await self._creation.create_claims(pod)
        if pod.spec.node_name:
            await self._reconcile_reservations(item, pod)

    async def _reconcile_reservations(self, item: ClaimWorkItem, pod: Pod) -> None:
        uid = pod.metadata.uid
        if not decide_reservations(pod, self._lookup):
            self._unreserved_since.pop(uid, None)
            return
        waited = self._now() - self._unreserved_since.setdefault(uid, self._now())
        if waited < SETTLE_SECONDS:
            self.queue.add_after(item, SETTLE_SECONDS - waited)
            return
        for claim in self._list_pod_claims(pod):
            await self._executor.read_claim(claim)
        for action in decide_reservations(pod, self._lookup):
            await self._executor.execute(action)

    def _list_pod_claims(self, pod: Pod) -> list[AnyClaim]:
        entries, looks = pod.spec.resource_claims, (find_claim, find_classic_claim)
        found = (look(pod, entry, self._lookup) for entry in entries for look in looks)
        return [claim for claim in found if claim is not None]

    # --- claims ---

    async def _reconcile_claim(self, item: ClaimWorkItem) -> None:
        cache, decide = self._claim_kinds[item.kind]
        listed = False
        for _ in range(MAX_STEPS):
            claim = cache.get(item.namespace, item.name)
            actions = [] if claim is None else decide(claim, self._lookup)
            if claim is None or not actions:
                return
            if await self._refresh_unseen_pods(claim, actions):
                continue
            if await self._is_awaiting_collection(item, claim, actions):
                return
            if not listed and _is_unused(claim, actions):
                await self._executor.read_pods(item.namespace)
                listed = True
                continue
            try:
                await self._executor.execute_next(actions)
            except ConflictError:
                await self._executor.read_claim(claim)
        self.queue.add_rate_limited(item)

    async def _is_awaiting_collection(
        self, item: ClaimWorkItem, claim: AnyClaim, actions: Iterable[ClaimWrite]
    ) -> bool:
        """Whether to leave a claim whose pod is gone to the garbage collector, for a moment.

        Usually the collector marks it for deletion a moment later. A cluster without
        kube-controller-manager has none. A server with transactions leaves claims with our finalizer to this
        controller.
        """
        waits = (
            claim.metadata.deletion_timestamp is None
            and any(isinstance(action, DeleteClaim) for action in actions)
            and is_garbage(claim, self._lookup)
            and not await self._is_left_to_controller(claim)
        )
        if not waits:
            self._uncollected_since.pop(claim.metadata.uid, None)
            return False
        waited = self._now() - self._uncollected_since.setdefault(claim.metadata.uid, self._now())
        if waited < SETTLE_SECONDS:
            self.queue.add_after(item, SETTLE_SECONDS - waited)
        return waited < SETTLE_SECONDS

    async def _is_left_to_controller(self, claim: AnyClaim) -> bool:
        return (
            claim_names.FINALIZER in claim.metadata.finalizers
            and await self._executor.client.transactions.is_served()
        )

    async def _refresh_unseen_pods(self, claim: AnyClaim, actions: Iterable[ClaimWrite]) -> bool:
        """Read pods that seem finished only because the informer does not show them; whether there were
        any.
        """
        namespace = claim.metadata.namespace
        unseen = [
            (name, uid)
            for name, uid in _list_absent_pods(claim, actions)
            if not self._is_known(namespace, name, uid)
        ]
        for name, uid in unseen:
            await self._executor.read_pod(name, namespace, uid)
        return bool(unseen)

    def _is_apparently_done(self, namespace: str, consumer: ConsumerReference) -> bool:
        if self._shared_informers.is_pod_gone(consumer.uid):
            return True
        pod = self._shared_informers.pod_cache.get(namespace, consumer.name)
        return pod is not None and pod.metadata.uid == consumer.uid and reservation.is_pod_finished(pod)

    def _is_known(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the state of a pod is certain: it is there, or its deletion was seen."""
        if self._shared_informers.is_pod_uncertain(uid):
            return False
        if self._shared_informers.is_pod_gone(uid):
            return True
        pod = self._shared_informers.pod_cache.get(namespace, name)
        return pod is not None and pod.metadata.uid == uid


def _list_absent_pods(claim: AnyClaim, actions: Iterable[ClaimWrite]) -> set[tuple[str, str]]:
    """List name and uid of the pods whose absence the actions rely on."""
    uids = frozenset[str]().union(
        *(each.uids for each in actions if isinstance(each, ReleaseClaim | RemoveFinalizer))
    )
    found = {(consumer.name, consumer.uid) for consumer in claim.status.reserved_for if consumer.uid in uids}
    if any(isinstance(each, DeleteClaim) for each in actions):
        found |= {(consumer.name, consumer.uid) for consumer in claim.status.reserved_for}
        found |= {(owner.name, owner.uid) for owner in claim.metadata.owner_references if owner.kind == "Pod"}
    return found


def _has_become_placed(old: Pod, new: Pod) -> bool:
    """Whether a pod has a node and its claims, and one of them only now."""
    return bool(new.spec.node_name) and (
        not old.spec.node_name or new.status.resource_claim_statuses != old.status.resource_claim_statuses
    )


def _is_unused(claim: AnyClaim, actions: Iterable[ClaimWrite]) -> bool:
    """Whether devices are released only because no pod is seen that uses them."""
    ending = claim.metadata.deletion_timestamp is not None
    return not ending and any(isinstance(action, ReleaseClaim) and not action.uids for action in actions)
