"""Eviction for taints of devices: pods that use a device which got a taint they do not tolerate are deleted.

Theory of operation: when a taint comes or goes, the claims that were given one of its devices are found by
index, and their pods are looked at; so are the pods of a claim that changes. Whose pods those are is what the
claim says in `reservedFor`, and not what pods say of their claims: a pod may have devices without naming any
claim in its spec. A pod that must go later is looked at again then. What to do is in `claims/taint_eviction`.

Rules for this file: a pod is judged anew at the moment it is deleted. How it is deleted is in `evictor`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from dray.api.core import Pod
from dray.api.devices.taint_rules import rule_behind, selects
from dray.api.resource import DeviceTaintRule, ResourceClaim
from dray.claims import reservation
from dray.claims.taint_eviction import LONG_AGO, Eviction, Place, must_go
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.object_refs import Key
from dray.controllers import metrics as measures
from dray.controllers.device_taints import DeviceTaints
from dray.controllers.informers import CONSUMER, REMEMBERED, Sights
from dray.controllers.pod_evictor import Evictor, Words
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "device_taint_eviction"
WORDS: Final = Words(
    "DeletionByDeviceTaintManager",
    "DeviceTaintManagerEviction",
    "Device taint manager",
    "deleting due to NoExecute taint",
)
WORKERS: Final = 8
_DEVICE: Final = "device"


class Evicted:
    """Who was evicted since the controller began, and how many for which rule."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self.heard: Callable[[str], None] = lambda _rule: None
        """Told the rule that a pod had to go for."""

    def note(self, eviction: Eviction) -> None:
        self._uids[eviction.pod.metadata.uid] = None
        if len(self._uids) > REMEMBERED:
            self._uids.popitem(last=False)
        rule = rule_behind(eviction.taint)
        if rule:
            self._counts[rule] += 1
            self.heard(rule)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def count(self, rule: str) -> int:
        """How many pods went for a rule."""
        return self._counts[rule]

    def forget(self, rule: str) -> None:
        """A rule is gone; another one of its name begins anew."""
        self._counts.pop(rule, None)


class TaintController:
    """Deletes pods that use devices they do not tolerate any more."""

    def __init__(
        self,
        client: Client,
        sights: Sights,
        taints: DeviceTaints,
        recorder: EventRecorder,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self._client, self._sights, self._taints = client, sights, taints
        self._metrics, self._log = metrics, log
        self._evictor = Evictor(client, recorder, WORDS)
        self._clock = client.habits.tempo.clock
        self.informers = taints.informers
        self.evicted = Evicted()
        sights.claims.add_index(_DEVICE, places)
        self.queue: WorkQueue[Key] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        taints.listen(self._place_changed, self._rules_changed)
        sights.claims.listen(self._claim_changed, lambda _old, new: self._claim_changed(new))
        sights.pods.listen(self._pod_seen, self._pod_changed)

    async def run(self) -> None:
        """Watch over taints, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._look_at, self._troubled, WORKERS)

    def _troubled(self, key: Key, failed: Exception) -> None:
        self._log.warning("an eviction is tried again later", pod=str(key), why=str(failed))

    # --- what wakes whom ---

    def _place_changed(self, place: Place) -> None:
        for claim in self._sights.claims.by_index(_DEVICE, place):
            self._add_users(claim)

    def _rules_changed(self, rules: Iterable[DeviceTaintRule]) -> None:
        for claim in self._sights.claims.all():
            if any(selects(rule, *place) for place in places(claim) for rule in rules):
                self._add_users(claim)

    def _claim_changed(self, claim: ResourceClaim) -> None:
        if self._taints and any(any(self._taints.of(place)) for place in places(claim)):
            self._add_users(claim)

    def _pod_seen(self, pod: Pod) -> None:
        if self._taints and pod.spec.node_name and self._claims_of(pod):
            self.queue.add(Key(pod.metadata.namespace, pod.metadata.name))

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name != old.spec.node_name or new.metadata.uid != old.metadata.uid:
            self._pod_seen(new)

    def _add_users(self, claim: ResourceClaim) -> None:
        for consumer in claim.status.reserved_for:
            if reservation.is_pod(consumer):
                self.queue.add(Key(claim.metadata.namespace, consumer.name))

    # --- pods ---

    async def _look_at(self, key: Key) -> None:
        pod = self._sights.pods.get(key.name, key.namespace)
        eviction = None if pod is None else self._judged(pod)
        left = 0.0 if eviction is None else (eviction.at - self._clock.now()).total_seconds()
        if pod is not None and (eviction is None or left > 0):
            await self._evictor.spare(pod)
        if eviction is None:
            return
        if left > 0:
            self.queue.add_later(key, left)
            return
        if await self._evictor.evict(eviction.pod, eviction.why):
            self.evicted.note(eviction)
            self._log.info("a pod was evicted", pod=str(key), why=eviction.why)
            self._metrics.count(measures.EVICTIONS)
            if eviction.at.year > LONG_AGO.year:  # a taint without a time was always there
                self._metrics.observe(measures.EVICTION_SECONDS, -left)

    def _judged(self, pod: Pod) -> Eviction | None:
        if pod.metadata.uid in self.evicted:
            return None
        return must_go(pod, self._claims_of(pod), self._taints.of)

    def _claims_of(self, pod: Pod) -> list[ResourceClaim]:
        return self._sights.claims.by_index(CONSUMER, pod.metadata.uid)


def places(claim: ResourceClaim) -> list[Place]:
    """The devices a claim was given."""
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [(result.driver, result.pool, result.device) for result in allocation.devices.results]
