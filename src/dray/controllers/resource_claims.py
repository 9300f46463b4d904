"""The claim controller: watches pods, claims and templates, and keeps claims as `claims/lifecycle` says.

Theory of operation: listeners ask whether there is something to do and add the key of a pod or claim to the
queue; workers ask again when its turn comes, perform, and go on with what the server answered until nothing
is left to do. So a pod with templates costs one creation per entry and one write of its status, and its end
one write that removes the finalizer, with which reservation, devices and claim go. What wakes a pod is found
by index: the template it waits for, the claim it uses.

Rules for this file: informers lag. That a pod is absent is believed only when its deletion was seen or the
server says so; that a placed pod has no reservation is looked at twice, the second time at the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from dray.api.classic import ClassicClaim
from dray.api.core import Pod
from dray.api.resource import ConsumerReference, ResourceClaim, ResourceClaimTemplate
from dray.claims import claim_names, reservation
from dray.claims.actions import Action, AnyClaim, CreateClaim, LetGo, Release, Tell
from dray.claims.lifecycle import (
    Surroundings,
    claim_of,
    classic_of,
    is_collected,
    next_for_claim,
    next_for_classic,
    next_for_pod,
    reservations,
)
from dray.client.client import Client
from dray.client.errors import Conflict
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.controllers.claim_actions import Performer
from dray.controllers.informers import (
    CLAIM,
    CONSUMER,
    INLINE,
    OWNER,
    TEMPLATE,
    Sights,
    claims_named,
    templates_named,
)
from dray.controllers.mutation_cache import Recent
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "resource_claim"
PATIENCE: Final = 1.0
"""Seconds in which what looks wrong usually comes right: a pod with a node that seems to have no reservation
was reserved a moment before, and a claim whose pod is gone is being collected."""
STEPS: Final = 8
"""How often a claim is decided about in one go; more means that somebody keeps changing it."""


class Item(NamedTuple):
    """What there is to look at."""

    kind: type[Pod] | type[ResourceClaim] | type[ClassicClaim]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.__name__} {self.namespace}/{self.name}"


class ClaimController:
    """Makes the claims of pods, and ends them."""

    def __init__(
        self,
        client: Client,
        sights: Sights,
        recorder: EventRecorder,
        metrics: Metrics,
        log: Log,
        *,
        workers: int,
    ) -> None:
        self.informers: tuple[Informer[Any], ...] = ()
        self._workers = workers
        self._sights, self._around, self._log = sights, sights.around, log
        self._now = client.habits.tempo.clock.monotonic
        self._performer = Performer(client, sights, recorder, metrics)
        self.queue: WorkQueue[Item] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        self._unreserved_since: dict[str, float] = {}
        self._uncollected_since: dict[str, float] = {}
        self._books: dict[type, tuple[Recent[Any], Callable[[Any, Surroundings], list[Action]]]] = {
            ResourceClaim: (sights.newest_claims, next_for_claim)
        }
        if sights.newest_classic is not None:
            self._books[ClassicClaim] = (sights.newest_classic, next_for_classic)
        self._listen()

    def _listen(self) -> None:
        sights = self._sights
        sights.pods.listen(self._pod_came, self._pod_changed, self._pod_went)
        sights.claims.listen(
            lambda claim: self._claim_changed(None, claim), self._claim_changed, self._claim_went
        )
        sights.templates.listen(self._template_came)
        if sights.classic is not None:
            sights.classic.listen(
                self._classic_changed, lambda _old, new: self._classic_changed(new), self._name_became_free
            )

    async def run(self) -> None:
        """Keep the claims, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._keep, self._troubled, self._workers)

    async def _keep(self, item: Item) -> None:
        await (self._keep_pod(item) if item.kind is Pod else self._keep_claim(item))

    def _troubled(self, item: Item, failed: Exception) -> None:
        if not isinstance(failed, Conflict):
            self._log.warning("a claim is tried again later", about=str(item), why=str(failed))

    # --- what wakes whom ---

    def _pod_came(self, pod: Pod) -> None:
        if pod.spec.resource_claims:
            self._add(pod)
        if reservation.is_over(pod):
            self._wake_claims(pod)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if new.spec.resource_claims and (_is_placed(old, new) or self._is_unsettled(new)):
            self._add(new)
        if reservation.is_over(new) and not reservation.is_over(old):
            self._wake_claims(new)

    def _is_unsettled(self, pod: Pod) -> bool:
        """Whether an entry with a template has no claim that is recorded and there."""
        entries = pod.spec.resource_claims
        return any(
            entry.resource_claim_template_name is not None and claim_of(pod, entry, self._around) is None
            for entry in entries
        )

    def _pod_went(self, pod: Pod) -> None:
        self._performer.forget(pod)
        self._unreserved_since.pop(pod.metadata.uid, None)
        self._wake_claims(pod)

    def _wake_claims(self, pod: Pod) -> None:
        """A pod is over: look at the claims it used, owned, or wanted."""
        sights, uid = self._sights, pod.metadata.uid
        for index in (CONSUMER, OWNER):
            for claim in sights.claims.by_index(index, uid):
                self._add(claim)
            if sights.classic is not None:
                for classic in sights.classic.by_index(index, uid):
                    self._add(classic)
        for namespace, name in claims_named(pod):
            named = sights.claims.get(name, namespace)
            if named is not None and not named.status.reserved_for and named.status.allocation is not None:
                self._add(named)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim) -> None:
        before = old.status.reserved_for if old is not None else ()
        for consumer in new.status.reserved_for:
            if consumer not in before and self._seems_over(new.metadata.namespace, consumer):
                self._sights.doubt(consumer.uid)
        if next_for_claim(new, self._around):
            self._add(new)
        if new.status.allocation is not None and (old is None or old.status.allocation is None):
            for pod in self._sights.pods.by_index(CLAIM, (new.metadata.namespace, new.metadata.name)):
                if pod.spec.node_name:
                    self._add(pod)

    def _claim_went(self, claim: ResourceClaim) -> None:
        """A pod whose claim was deleted under its hands gets another."""
        self._uncollected_since.pop(claim.metadata.uid, None)
        for owner in claim.metadata.owner_references:
            pod = self._sights.pods.get(owner.name, claim.metadata.namespace) if owner.kind == "Pod" else None
            if pod is not None and pod.metadata.uid == owner.uid:
                self._add(pod)
        self._name_became_free(claim)

    def _template_came(self, template: ResourceClaimTemplate) -> None:
        for pod in self._sights.pods.by_index(TEMPLATE, claim_names.name_of(template.metadata)):
            self._add(pod)

    def _classic_changed(self, claim: ClassicClaim) -> None:
        if next_for_classic(claim, self._around):
            self._add(claim)

    def _name_became_free(self, claim: AnyClaim) -> None:
        """A claim is gone: pods whose inline template makes one of that name look again."""
        for pod in self._sights.pods.by_index(INLINE, claim_names.name_of(claim.metadata)):
            self._add(pod)

    def _add(self, obj: Pod | AnyClaim) -> None:
        self.queue.add(Item(type(obj), *claim_names.name_of(obj.metadata)))

    # --- pods ---

    async def _keep_pod(self, item: Item) -> None:
        pod = self._sights.pods.get(item.name, item.namespace)
        if pod is None or self._performer.is_behind(pod):
            return
        actions = next_for_pod(pod, self._around)
        # A template that was made a moment before its pod may be seen after it.
        if _tells(actions) and await self._performer.read_templates(templates_named(pod)):
            actions = next_for_pod(pod, self._around)
        creations = [action for action in actions if isinstance(action, CreateClaim)]
        if creations:
            await self._performer.create(creations)
            actions = next_for_pod(pod, self._around)
        for action in actions:
            if not isinstance(action, CreateClaim):
                await self._performer.perform(action)
        if pod.spec.node_name:
            await self._keep_reservations(item, pod)

    async def _keep_reservations(self, item: Item, pod: Pod) -> None:
        uid = pod.metadata.uid
        if not reservations(pod, self._around):
            self._unreserved_since.pop(uid, None)
            return
        waited = self._now() - self._unreserved_since.setdefault(uid, self._now())
        if waited < PATIENCE:
            self.queue.add_later(item, PATIENCE - waited)
            return
        for claim in self._claims_of(pod):
            await self._performer.read(claim)
        for action in reservations(pod, self._around):
            await self._performer.perform(action)

    def _claims_of(self, pod: Pod) -> list[AnyClaim]:
        entries, looks = pod.spec.resource_claims, (claim_of, classic_of)
        found = (look(pod, entry, self._around) for entry in entries for look in looks)
        return [claim for claim in found if claim is not None]

    # --- claims ---

    async def _keep_claim(self, item: Item) -> None:
        newest, decide = self._books[item.kind]
        listed = False
        for _ in range(STEPS):
            claim = newest.get(item.namespace, item.name)
            actions = [] if claim is None else decide(claim, self._around)
            if claim is None or not actions:
                return
            if await self._learns_of_pods(claim, actions):
                continue
            if self._is_about_to_go(item, claim, actions):
                return
            if not listed and _is_left_over(claim, actions):
                await self._performer.read_pods(item.namespace)
                listed = True
                continue
            try:
                for action in actions:
                    await self._performer.perform(action)
            except Conflict:
                await self._performer.read(claim)
        self.queue.retry(item)

    def _is_about_to_go(self, item: Item, claim: AnyClaim, actions: Iterable[Action]) -> bool:
        """Whether to leave a claim whose pod is gone to the collector of garbage, for a moment.

        Usually it is marked for deletion a moment later and can then go with its devices in one write. To
        take the devices first would cost two writes more, and race with the mark.
        """
        waits = (
            isinstance(claim, ResourceClaim)
            and claim.metadata.deletion_timestamp is None
            and any(isinstance(action, Release) for action in actions)
            and is_collected(claim, self._around)
        )
        if not waits:
            self._uncollected_since.pop(claim.metadata.uid, None)
            return False
        waited = self._now() - self._uncollected_since.setdefault(claim.metadata.uid, self._now())
        if waited < PATIENCE:
            self.queue.add_later(item, PATIENCE - waited)
        return waited < PATIENCE

    async def _learns_of_pods(self, claim: AnyClaim, actions: Iterable[Action]) -> bool:
        """Ask the server for pods that seem over only because they are not seen; whether there were any."""
        uids = frozenset[str]().union(*(each.uids for each in actions if isinstance(each, Release | LetGo)))
        namespace = claim.metadata.namespace
        unseen = [
            consumer
            for consumer in claim.status.reserved_for
            if consumer.uid in uids and not self._is_seen(namespace, consumer.name, consumer.uid)
        ]
        for consumer in unseen:
            await self._performer.read_pod(consumer.name, namespace, consumer.uid)
        return bool(unseen)

    def _seems_over(self, namespace: str, consumer: ConsumerReference) -> bool:
        if self._sights.is_gone(consumer.uid):
            return True
        pod = self._sights.newest_pods.get(namespace, consumer.name)
        return pod is not None and pod.metadata.uid == consumer.uid and reservation.is_over(pod)

    def _is_seen(self, namespace: str, name: str, uid: str) -> bool:
        """Whether what is known of a pod suffices: it is there, or it was seen to go."""
        if self._sights.is_doubted(uid):
            return False
        if self._sights.is_gone(uid):
            return True
        pod = self._sights.newest_pods.get(namespace, name)
        return pod is not None and pod.metadata.uid == uid


def _tells(actions: Iterable[Action]) -> bool:
    return any(isinstance(action, Tell) for action in actions)


def _is_placed(old: Pod, new: Pod) -> bool:
    """Whether a pod has a node and its claims, and one of them only now."""
    return bool(new.spec.node_name) and (
        not old.spec.node_name or new.status.resource_claim_statuses != old.status.resource_claim_statuses
    )


def _is_left_over(claim: AnyClaim, actions: Iterable[Action]) -> bool:
    """Whether devices are to be taken only because no pod is seen that wants them."""
    ending = claim.metadata.deletion_timestamp is not None
    return not ending and any(isinstance(action, Release) and not action.uids for action in actions)
