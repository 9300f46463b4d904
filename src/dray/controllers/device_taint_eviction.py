"""The controller that evicts pods from devices with `NoExecute` taints they do not tolerate.

Theory of operation: when a taint is added or removed, an index gives the claims that have one of its devices,
and the controller checks their pods; it also checks the pods of a claim that changes. The pods of a claim are
those in its `reservedFor`, not those that name the claim: a pod may have devices without naming any claim in
its spec. A pod that must go later is checked again then. The decision is in `claims/taint_eviction`.

Rules for this file: a pod is evaluated anew at the moment it is deleted. `pod_evictor` deletes it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from dray.api.core import Pod
from dray.api.devices.taint_rules import get_rule_name, rule_selects
from dray.api.resource import DeviceTaintRule, ResourceClaim
from dray.api.tolerations import LONG_AGO
from dray.claims import reservation
from dray.claims.taint_eviction import DeviceEviction, DevicePath, find_device_eviction
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.object_refs import ObjectKey
from dray.controllers import metrics as controller_metrics
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
    """The pods evicted since the controller started, and their number per rule."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self.on_evicted: Callable[[str], None] = lambda _rule: None
        """Receives the name of the rule that evicted a pod."""

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
        """Count the pods that a rule evicted."""
        return self._counts[rule]

    def forget_rule(self, rule: str) -> None:
        """Forget a deleted rule; another one of its name starts at zero."""
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
        self._shared_informers, self.taints = shared_informers, taints
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
        """Evict pods until cancelled; the informers are synced."""
        await self.queue.run(self._reconcile, self._log_failure, WORKERS)

    def _log_failure(self, key: ObjectKey, error: Exception) -> None:
        self._log.warning("an eviction failed and is tried again later", pod=str(key), why=str(error))

    # --- event handlers ---

    def _on_device_taints_changed(self, device: DevicePath) -> None:
        for claim in self._shared_informers.claims.get_by_index(_DEVICE_INDEX, device):
            self._enqueue_consumers(claim)

    def _on_rules_changed(self, rules: Iterable[DeviceTaintRule]) -> None:
        for claim in self._shared_informers.claims.list_all():
            if any(rule_selects(rule, *device) for device in list_allocated_devices(claim) for rule in rules):
                self._enqueue_consumers(claim)

    def _on_claim_changed(self, claim: ResourceClaim) -> None:
        if self.taints and any(
            any(self.taints.get_taints(device)) for device in list_allocated_devices(claim)
        ):
            self._enqueue_consumers(claim)

    def _on_pod_added(self, pod: Pod) -> None:
        if self.taints and pod.spec.node_name and self._list_pod_claims(pod):
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
            self._metrics.count(controller_metrics.EVICTIONS)
            if eviction.at.year > LONG_AGO.year:  # a taint without a time has no duration
                self._metrics.observe(controller_metrics.EVICTION_SECONDS, -left)

    def _decide_eviction(self, pod: Pod) -> DeviceEviction | None:
        if pod.metadata.uid in self.history:
            return None
        return find_device_eviction(pod, self._list_pod_claims(pod), self.taints.get_taints)

    def _list_pod_claims(self, pod: Pod) -> list[ResourceClaim]:
        return self._shared_informers.claims.get_by_index(CONSUMER_INDEX, pod.metadata.uid)


def list_allocated_devices(claim: ResourceClaim) -> list[DevicePath]:
    """List the devices allocated to a claim."""
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [(result.driver, result.pool, result.device) for result in allocation.devices.results]
