"""What the scheduler sees: informers that feed the overlay, the queue and whoever waits for devices.

Rules for this file: the overlay knows of a change before the queue hears the signal of it, so that a pod that
is woken by something is tried on a cluster that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from dray.api.classic import ClassicClaim
from dray.api.core import Node, Pod
from dray.api.devices.interning import DeviceSharing
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.client.client import Client
from dray.client.informers.informer import Informer, Ways, without_managed_fields
from dray.placement.profile import DEFAULT_SCHEDULER
from dray.scheduler.binder import Binder
from dray.scheduler.cache import Overlay
from dray.scheduler.queue import Queue
from dray.scheduler.queueing_hints import signals_of

T = TypeVar("T")


class Sights:
    """The informers of a scheduler."""

    def __init__(
        self, client: Client, overlay: Overlay, queue: Queue, binder: Binder, names: frozenset[str]
    ) -> None:
        self._client, self._overlay, self._queue, self._binder = client, overlay, queue, binder
        self._names = names
        self.trouble: Callable[[Exception], None] | None = None
        self.left: Callable[[str], None] = lambda _uid: None
        """Told the uid of every pod that needs no node any more."""
        ways = Ways(keep=without_managed_fields, trouble=self._told)
        self.pods: Informer[Pod] = Informer(client, Pod, ways=ways)
        self.claims: Informer[ResourceClaim] = Informer(client, ResourceClaim, ways=ways)
        self.classic: Informer[ClassicClaim] = Informer(client, ClassicClaim, ways=ways)
        self.nodes: Informer[Node] = Informer(client, Node, ways=ways)
        sharing = DeviceSharing()
        sparing = replace(ways, keep=lambda kept: sharing.share(without_managed_fields(kept)))
        self.slices: Informer[ResourceSlice] = Informer(client, ResourceSlice, ways=sparing)
        self.classes: Informer[DeviceClass] = Informer(client, DeviceClass, ways=ways)
        self.rules: Informer[DeviceTaintRule] = Informer(client, DeviceTaintRule, ways=ways)

    async def begin(self, tasks: asyncio.TaskGroup, *, claims: bool = True) -> None:
        """Watch everything, and wait until it was seen once; without `claims` only nodes and pods.

        A server that has claims switched off is not waited for: pods without claims find their nodes all the
        same, and whatever it serves later is seen then.
        """
        informers: list[Informer[Any]] = [self.nodes]
        if claims:
            informers += [self.slices, self.classes, self.claims]
        for extra in (self.classic, self.rules) if claims else ():
            if await self._client.serves(extra.kind):
                informers.append(extra)
        self._listen()
        for informer in informers:
            tasks.create_task(informer.run())
        for informer in informers:
            if await self._client.serves(informer.kind):
                await informer.synced()
        # Pods last: whoever is tried first should meet a cluster that is complete.
        tasks.create_task(self.pods.run())
        await self.pods.synced()

    def latest(self, pod: Pod) -> Pod | None:
        """A pod as it was seen last."""
        return self.pods.get(pod.metadata.name, pod.metadata.namespace)

    def classic_claim(self, namespace: str, name: str) -> ClassicClaim | None:
        """A classic claim as it was seen last."""
        return self.classic.get(name, namespace)

    def _told(self, failed: Exception) -> None:
        if self.trouble is not None:
            self.trouble(failed)

    def _listen(self) -> None:
        overlay = self._overlay
        self._feed(self.nodes, overlay.saw_node, overlay.lost_node)
        self._feed(self.slices, overlay.saw_slice, overlay.lost_slice)
        self._feed(self.classes, overlay.saw_class, overlay.lost_class)
        self._feed(self.rules, overlay.saw_rule, overlay.lost_rule)
        self._feed(self.claims, self._saw_claim, self._lost_claim, self._came_claim)
        self._feed(self.classic, lambda _claim: None, lambda _claim: None)
        self._feed(self.pods, self._saw_pod, self._lost_pod)

    def _feed(
        self,
        informer: Informer[T],
        saw: Callable[[T], Any],
        lost: Callable[[T], Any],
        came: Callable[[T], Any] | None = None,
    ) -> None:
        def added(new: T) -> None:
            (came or saw)(new)
            self._wake(None, new)

        def updated(old: T, new: T) -> None:
            saw(new)
            self._wake(old, new)

        def deleted(old: T) -> None:
            lost(old)
            self._wake(old, None)

        informer.listen(added, updated, deleted)

    def _wake(self, old: Any, new: Any) -> None:
        for signal in signals_of(old, new):
            self._queue.wake(signal)

    def _came_claim(self, claim: ResourceClaim) -> None:
        self._overlay.claims.came(claim)
        self._binder.heard(claim)

    def _saw_claim(self, claim: ResourceClaim) -> None:
        self._overlay.claims.saw(claim)
        self._binder.heard(claim)

    def _lost_claim(self, claim: ResourceClaim) -> None:
        self._overlay.claims.lost(claim)
        self._binder.heard(claim)

    def _saw_pod(self, pod: Pod) -> None:
        self._overlay.saw_pod(pod)
        if self._is_ours(pod):
            self._queue.add(pod)
        else:
            self._leave(pod)

    def _lost_pod(self, pod: Pod) -> None:
        self._overlay.lost_pod(pod)
        self._leave(pod)

    def _leave(self, pod: Pod) -> None:
        self._queue.remove(pod.metadata.uid)
        self.left(pod.metadata.uid)

    def _is_ours(self, pod: Pod) -> bool:
        return not pod.spec.node_name and (pod.spec.scheduler_name or DEFAULT_SCHEDULER) in self._names
