"""The informers of the scheduler, which update its cache and notify its queue and binder.

Rules for this file: the cache takes over a change before the queue is notified of it, so that a pod that a
change wakes is tried on a cluster that includes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Node, Pod
from dray.api.devices.interning import DeviceInterner
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.client.client import Client
from dray.client.informers.informer import Informer, InformerOptions, strip_managed_fields
from dray.client.version_negotiation import find_out_if_served
from dray.placement.profile import DEFAULT_SCHEDULER
from dray.scheduler.binding.binder import Binder
from dray.scheduler.binding.stored_allocations import StoredAllocations
from dray.scheduler.cache import SchedulerCache
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queueing_hints import compute_signals
from dray.scheduler.snapshot_worker import SnapshotWorker

T = TypeVar("T")


class SchedulerInformers:
    """The informers of a scheduler."""

    def __init__(
        self,
        client: Client,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        binder: Binder,
        scheduler_names: frozenset[str],
    ) -> None:
        self._client, self._cache, self._queue, self._binder = client, cache, queue, binder
        self._scheduler_names = scheduler_names
        self._snapshot_worker = SnapshotWorker(cache, client.options.time_source.sleep)
        self.allocations = StoredAllocations(cache.list_pool_slices)
        """What claims hold, in the order in which the server stored it."""
        self.on_failure: Callable[[Exception], None] | None = None
        self.on_pod_dropped: Callable[[str], None] = lambda _uid: None
        """Receives the uid of every pod that needs no node any more."""
        options = InformerOptions(
            transform=strip_managed_fields, on_failure=self._report_failure, may_share=True
        )
        self.pods: Informer[Pod] = Informer(client, Pod, options=options)
        self.claims: Informer[ResourceClaim] = Informer(client, ResourceClaim, options=options)
        self.classic_claims: Informer[ClassicResourceClaim] = Informer(
            client, ClassicResourceClaim, options=options
        )
        self.nodes: Informer[Node] = Informer(client, Node, options=options)
        interner = DeviceInterner()
        interning = replace(
            options, transform=lambda seen: interner.intern_devices(strip_managed_fields(seen))
        )
        self.slices: Informer[ResourceSlice] = Informer(client, ResourceSlice, options=interning)
        self.classes: Informer[DeviceClass] = Informer(client, DeviceClass, options=options)
        self.rules: Informer[DeviceTaintRule] = Informer(client, DeviceTaintRule, options=options)

    async def start(self, tasks: asyncio.TaskGroup, *, claims: bool = True) -> None:
        """Start the informers and wait until all are synced; without `claims` only nodes and pods.

        A server that has claims switched off is not waited for: pods without claims find their nodes all the
        same, and kinds that it serves later are synced then.
        """
        informers: list[Informer[Any]] = [self.nodes]
        if claims:
            informers += [self.slices, self.classes, self.claims]
        for extra in (self.classic_claims, self.rules) if claims else ():
            if await self._is_served(extra):
                informers.append(extra)
        self._register_listeners()
        for informer in informers:
            tasks.create_task(informer.run())
        for informer in informers:
            if await self._is_served(informer):
                await informer.wait_for_sync()
        tasks.create_task(self._snapshot_worker.run())
        # Pods last: the first pod should be tried on a complete cluster.
        tasks.create_task(self.pods.run())
        await self.pods.wait_for_sync()

    async def _is_served(self, informer: Informer[Any]) -> bool:
        return await find_out_if_served(self._client, informer.kind, self._report_failure)

    def get_pod(self, pod: Pod) -> Pod | None:
        """Return a pod as it was seen last."""
        return self.pods.get(pod.metadata.name, pod.metadata.namespace)

    def get_classic_claim(self, namespace: str, name: str) -> ClassicResourceClaim | None:
        """Return a classic claim as it was seen last."""
        return self.classic_claims.get(name, namespace)

    def _report_failure(self, error: Exception) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def _register_listeners(self) -> None:
        cache = self._cache
        self._add_listeners(self.nodes, cache.update_node, cache.remove_node)
        self._add_listeners(self.slices, cache.update_slice, cache.remove_slice)
        self._add_listeners(self.classes, cache.update_class, cache.remove_class)
        self._add_listeners(self.rules, cache.update_taint_rule, cache.remove_taint_rule)
        self._add_listeners(self.claims, self._on_claim_updated, self._on_claim_deleted, self._on_claim_added)
        self._add_listeners(self.classic_claims, lambda _claim: None, lambda _claim: None)
        self._add_listeners(self.pods, self._on_pod_updated, self._on_pod_deleted)

    def _add_listeners(
        self,
        informer: Informer[T],
        update: Callable[[T], Any],
        remove: Callable[[T], Any],
        add: Callable[[T], Any] | None = None,
    ) -> None:
        def on_added(new: T) -> None:
            (add or update)(new)
            self._notify_queue(None, new)

        def on_updated(old: T, new: T) -> None:
            update(new)
            self._notify_queue(old, new)

        def on_deleted(old: T) -> None:
            remove(old)
            self._notify_queue(old, None)

        informer.listen(on_added, on_updated, on_deleted)

    def _notify_queue(self, old: Any, new: Any) -> None:
        for signal in compute_signals(old, new):
            self._queue.notify(signal)

    def _on_claim_added(self, claim: ResourceClaim) -> None:
        self.allocations.observe(claim, is_listed=self.claims.is_replacing)
        self._cache.claims.add(claim)
        self._binder.reservations.locks.notify_changed(claim)

    def _on_claim_updated(self, claim: ResourceClaim) -> None:
        self.allocations.observe(claim, is_listed=self.claims.is_replacing)
        self._cache.claims.update(claim)
        self._binder.reservations.locks.notify_changed(claim)

    def _on_claim_deleted(self, claim: ResourceClaim) -> None:
        self.allocations.forget(claim)
        self._cache.claims.remove(claim)
        self._binder.reservations.locks.notify_changed(claim)

    def _on_pod_updated(self, pod: Pod) -> None:
        self._cache.update_pod(pod)
        if self._is_responsible_for(pod):
            self._queue.add(pod)
        else:
            self._drop_pod(pod)

    def _on_pod_deleted(self, pod: Pod) -> None:
        self._cache.remove_pod(pod)
        self._drop_pod(pod)

    def _drop_pod(self, pod: Pod) -> None:
        self._queue.remove(pod.metadata.uid)
        self.on_pod_dropped(pod.metadata.uid)

    def _is_responsible_for(self, pod: Pod) -> bool:
        return (
            not pod.spec.node_name and (pod.spec.scheduler_name or DEFAULT_SCHEDULER) in self._scheduler_names
        )
