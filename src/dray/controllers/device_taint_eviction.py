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
from dray.api.devices.taint_rules import get_rule_name, rule_selects
from dray.api.resource import DeviceTaintRule, ResourceClaim
from dray.claims import reservation
from dray.claims.taint_eviction import LONG_AGO, DeviceEviction, DevicePath, find_device_eviction
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.object_refs import ObjectKey
from dray.controllers import metrics as measures
from dray.controllers.device_taints import DeviceTaintIndex
from dray.controllers.informers import CONSUMER_INDEX, MAX_REMEMBERED_PODS, SharedInformers
from dray.controllers.pod_evictor import EvictionWording, PodEvictor
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry

QUEUE_NAME: Final = "device_taint_eviction"
WORDING: Final = EvictionWording(
    "DeletionByDeviceTaintManager",
    "DeviceTaintManagerEviction",
    "Device taint manager",
    "deleting due to NoExecute taint",
)
WORKERS: Final = 8
_DEVICE_INDEX: Final = "device"


class EvictionHistory:
    """Who was evicted since the controller began, and how many for which rule."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self.on_evicted: Callable[[str], None] = lambda _rule: None
        """Told the rule that a pod had to go for."""

    def record(self, eviction: DeviceEviction) -> None:
        self._uids[eviction.pod.metadata.uid] = None
        if len(self._uids) > MAX_REMEMBERED_PODS:
            self._uids.popitem(last=False)
        rule = get_rule_name(eviction.taint)
        if rule:
            self._counts[rule] += 1
            self.on_evicted(rule)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def count_for_rule(self, rule: str) -> int:
        """How many pods went for a rule."""
        return self._counts[rule]

    def forget_rule(self, rule: str) -> None:
        """A rule is gone; another one of its name begins anew."""
        self._counts.pop(rule, None)


class DeviceTaintEvictionController:
    """Deletes pods that use devices they do not tolerate any more."""

    def __init__(
        self,
        client: Client,
        shared_informers: SharedInformers,
        taints: DeviceTaintIndex,
        recorder: EventRecorder,
        metrics: MetricsRegistry,
        log: StructuredLogger,
    ) -> None:
        self._client, self._shared_informers, self._taints = client, shared_informers, taints
        self._metrics, self._log = metrics, log
        self._evictor = PodEvictor(client, recorder, WORDING)
        self._clock = client.options.time_source.clock
        self.informers = taints.informers
        self.history = EvictionHistory()
        shared_informers.claims.add_index(_DEVICE_INDEX, list_allocated_devices)
        self.queue: WorkQueue[ObjectKey] = WorkQueue(QUEUE_NAME, client.options.time_source, metrics)
        taints.listen(self._on_device_taints_changed, self._on_rules_changed)
        shared_informers.claims.listen(self._on_claim_changed, lambda _old, new: self._on_claim_changed(new))
        shared_informers.pods.listen(self._on_pod_added, self._on_pod_updated)

    async def run(self) -> None:
        """Watch over taints, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._reconcile, self._log_failure, WORKERS)

    def _log_failure(self, key: ObjectKey, error: Exception) -> None:
        self._log.warning("an eviction is tried again later", pod=str(key), why=str(error))

    # --- what wakes whom ---

    def _on_device_taints_changed(self, device: DevicePath) -> None:
        for claim in self._shared_informers.claims.get_by_index(_DEVICE_INDEX, device):
            self._enqueue_consumers(claim)

    def _on_rules_changed(self, rules: Iterable[DeviceTaintRule]) -> None:
        for claim in self._shared_informers.claims.list_all():
            if any(rule_selects(rule, *place) for place in list_allocated_devices(claim) for rule in rules):
                self._enqueue_consumers(claim)

    def _on_claim_changed(self, claim: ResourceClaim) -> None:
        if self._taints and any(
            any(self._taints.get_taints(place)) for place in list_allocated_devices(claim)
        ):
            self._enqueue_consumers(claim)

    def _on_pod_added(self, pod: Pod) -> None:
        if self._taints and pod.spec.node_name and self._list_pod_claims(pod):
            self.queue.add(ObjectKey(pod.metadata.namespace, pod.metadata.name))

    def _on_pod_updated(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name != old.spec.node_name or new.metadata.uid != old.metadata.uid:
            self._on_pod_added(new)

    def _enqueue_consumers(self, claim: ResourceClaim) -> None:
        for consumer in claim.status.reserved_for:
            if reservation.is_pod_consumer(consumer):
                self.queue.add(ObjectKey(claim.metadata.namespace, consumer.name))

    # --- pods ---

    async def _reconcile(self, key: ObjectKey) -> None:
        pod = self._shared_informers.pods.get(key.name, key.namespace)
        eviction = None if pod is None else self._decide_eviction(pod)
        left = 0.0 if eviction is None else (eviction.at - self._clock.now()).total_seconds()
        if pod is not None and (eviction is None or left > 0):
            await self._evictor.cancel_eviction(pod)
        if eviction is None:
            return
        if left > 0:
            self.queue.add_after(key, left)
            return
        if await self._evictor.evict(eviction.pod, eviction.why):
            self.history.record(eviction)
            self._log.info("a pod was evicted", pod=str(key), why=eviction.why)
            self._metrics.count(measures.EVICTIONS)
            if eviction.at.year > LONG_AGO.year:  # a taint without a time was always there
                self._metrics.observe(measures.EVICTION_SECONDS, -left)

    def _decide_eviction(self, pod: Pod) -> DeviceEviction | None:
        if pod.metadata.uid in self.history:
            return None
        return find_device_eviction(pod, self._list_pod_claims(pod), self._taints.get_taints)

    def _list_pod_claims(self, pod: Pod) -> list[ResourceClaim]:
        return self._shared_informers.claims.get_by_index(CONSUMER_INDEX, pod.metadata.uid)


def list_allocated_devices(claim: ResourceClaim) -> list[DevicePath]:
    """The devices a claim was given."""
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [(result.driver, result.pool, result.device) for result in allocation.devices.results]
