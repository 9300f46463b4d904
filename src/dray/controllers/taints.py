"""Eviction for taints of devices: pods that use a device which got a taint they do not tolerate are deleted.

Theory of operation: the taints of every published device are kept by its place. When a slice changes, the
claims that were given one of its devices are found by index, and their pods are looked at; so are the pods of
a claim that changes. A pod that must go later is looked at again then. What to do is in `claims/eviction`.

Rules for this file: a pod is judged anew at the moment it is deleted, and the deletion names its uid. Rules
for taints (`DeviceTaintRule`) are kept by the server and not acted on: a scheduler that does not know them
would put the next pod on the same device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from dray.api.core import Pod
from dray.api.resource import DeviceTaint, ResourceClaim, ResourceSlice
from dray.claims import reservation
from dray.claims.eviction import LONG_AGO, NO_EXECUTE, Eviction, Place, must_go
from dray.client.changes import StrategicPatch
from dray.client.client import Client, Deletion
from dray.client.events import EventRecorder
from dray.client.failures import Conflict, NotFound
from dray.client.informer import Informer
from dray.client.places import Key
from dray.clock import timestamp
from dray.controllers import metrics as measures
from dray.controllers.sights import CONSUMER, Sights, ways
from dray.controllers.workqueue import WorkQueue
from dray.telemetry.logs import Log
from dray.telemetry.metrics import Metrics

QUEUE: Final = "device_taint_eviction"
REASON: Final = "DeletionByDeviceTaintManager"
TOLD: Final = "DeviceTaintManagerEviction"
WORKERS: Final = 8
_DEVICE: Final = "device"


class TaintController:
    """Deletes pods that use devices they do not tolerate any more."""

    def __init__(
        self, client: Client, sights: Sights, recorder: EventRecorder, metrics: Metrics, log: Log
    ) -> None:
        self._client, self._sights = client, sights
        self._recorder, self._metrics, self._log = recorder, metrics, log
        self._clock = client.habits.tempo.clock
        self._slices = Informer(client, ResourceSlice, ways=ways(log))
        self.informers: tuple[Informer[Any], ...] = (self._slices,)
        sights.claims.add_index(_DEVICE, _places)
        self._taints: dict[Place, dict[Key, tuple[DeviceTaint, ...]]] = {}
        self.queue: WorkQueue[Key] = WorkQueue(QUEUE, client.habits.tempo, metrics)
        self._listen()

    def _listen(self) -> None:
        self._slices.listen(
            lambda new: self._slice_changed(None, new),
            self._slice_changed,
            lambda old: self._slice_changed(old, None),
        )
        self._sights.claims.listen(
            lambda claim: self._claim_changed(claim), lambda _old, new: self._claim_changed(new)
        )
        self._sights.pods.listen(updated=self._pod_changed)

    async def run(self) -> None:
        """Watch over taints, until cancelled; the informers have seen everything once."""
        await self.queue.run(self._look_at, self._troubled, WORKERS)

    def _troubled(self, key: Key, failed: Exception) -> None:
        self._log.warning("an eviction is tried again later", pod=str(key), why=str(failed))

    # --- what wakes whom ---

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        before, after = dict(_executing(old)), dict(_executing(new))
        if before == after:
            return
        holder = new or old
        assert holder is not None
        key = Key("", holder.metadata.name)
        for place in before.keys() | after.keys():
            self._note(place, key, after.get(place, ()))
            if before.get(place) != after.get(place):
                for claim in self._sights.claims.by_index(_DEVICE, place):
                    self._add_users(claim)

    def _note(self, place: Place, key: Key, taints: tuple[DeviceTaint, ...]) -> None:
        there = self._taints.setdefault(place, {})
        if taints:
            there[key] = taints
        else:
            there.pop(key, None)
        if not there:
            del self._taints[place]

    def _claim_changed(self, claim: ResourceClaim) -> None:
        if self._taints and any(place in self._taints for place in _places(claim)):
            self._add_users(claim)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if self._taints and new.spec.node_name and not old.spec.node_name and new.spec.resource_claims:
            self.queue.add(Key(new.metadata.namespace, new.metadata.name))

    def _add_users(self, claim: ResourceClaim) -> None:
        for consumer in claim.status.reserved_for:
            if reservation.is_pod(consumer):
                self.queue.add(Key(claim.metadata.namespace, consumer.name))

    # --- pods ---

    async def _look_at(self, key: Key) -> None:
        eviction = self._judged(key)
        if eviction is None:
            return
        left = (eviction.at - self._clock.now()).total_seconds()
        if left > 0:
            self.queue.add_later(key, left)
            return
        if await self._evict(eviction):
            self._metrics.count(measures.EVICTIONS)
            if eviction.at.year > LONG_AGO.year:  # a taint without a time was always there
                self._metrics.observe(measures.EVICTION_SECONDS, -left)

    def _judged(self, key: Key) -> Eviction | None:
        pod = self._sights.pods.get(key.name, key.namespace)
        if pod is None:
            return None
        return must_go(pod, self._sights.claims.by_index(CONSUMER, pod.metadata.uid), self._taints_of)

    def _taints_of(self, place: Place) -> Iterator[DeviceTaint]:
        for taints in self._taints.get(place, {}).values():
            yield from taints

    async def _evict(self, eviction: Eviction) -> bool:
        """Delete a pod, saying why; False when it was gone already."""
        metadata = eviction.pod.metadata
        self._recorder.record(eviction.pod, TOLD, f"the pod is deleted: {eviction.why}", warning=True)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": REASON,
            "message": f"Device taint manager: deleting due to NoExecute taint; {eviction.why}",
            "lastTransitionTime": timestamp(self._clock.now()),
        }
        patch = StrategicPatch({"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}})
        try:
            await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")
            await self._client.delete(Pod, metadata.name, metadata.namespace, Deletion(uid=metadata.uid))
        except (NotFound, Conflict):
            return False  # the pod is gone, or another one has its name
        self._log.info("a pod was evicted", pod=f"{metadata.namespace}/{metadata.name}", why=eviction.why)
        return True


def _places(claim: ResourceClaim) -> list[Place]:
    """The devices a claim was given."""
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [(result.driver, result.pool, result.device) for result in allocation.devices.results]


def _executing(holder: ResourceSlice | None) -> Iterable[tuple[Place, tuple[DeviceTaint, ...]]]:
    """The devices of a slice whose taints end pods, with those taints."""
    if holder is None:
        return
    spec = holder.spec
    for device in spec.devices:
        taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
        if taints:
            yield (spec.driver, spec.pool.name, device.name), taints
