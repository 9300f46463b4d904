"""Fencing a node, step by step: taint it, remove its pods, delete its preparations.

Theory of operation: an administrator declares that a node uses nothing any more. First it gets the
out-of-service taint, so that nothing that becomes free is given to a pod on it. Then its pods are removed
without grace; the controllers release their claims as for any deleted pod. Then the node's preparations are
deleted, with which the ledger releases what the node had prepared. Every step is idempotent, so an
interrupted fencing is simply repeated. A scheduler may have been about to bind a pod when the taint came; the
next check removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from dray.api.core import Node, Pod, Taint
from dray.api.preparation import ACCOUNTED_ANNOTATION, RESTORED_PATH, Preparation
from dray.api.resource import ResourceClaim
from dray.claims import reservation
from dray.claims.node_loss import (
    ClaimedDevice,
    NodeLossState,
    RetainedDevice,
    find_affected_devices,
    find_retained_devices,
    parse_ledger_entries,
)
from dray.client.client import Client, DeleteOptions
from dray.client.errors import ConflictError, NotFoundError
from dray.client.object_refs import ObjectSelector
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.client.timing import Backoff
from dray.clock import format_timestamp
from dray.placement.fencing import (
    FENCED_AT_ANNOTATION,
    add_fence_taint,
    build_failed_status,
    must_evict,
    remove_fence_taint,
)

LEDGER_PATH: Final = "/dray/ledger"
_MAX_ATTEMPTS: Final = 10

Taints = tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class NodeHoldings:
    """The pods, preparations and devices of a node before it is fenced."""

    node: Node | None
    pods: tuple[Pod, ...]
    preparations: tuple[Preparation, ...]
    stakes: tuple[ClaimedDevice, ...]


class NodeFencer:
    """Fences one node, or takes it back into service."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._clock = client.options.time_source.clock
        self._known_pods: dict[str, Pod] = {}
        """Pods that are or were on the node, by uid."""
        self.remaining_pods: tuple[Pod, ...] = ()
        """Pods that were deleted and still exist, kept by their finalizers."""

    @property
    def removed_count(self) -> int:
        """How many pods were on the node and are gone, whoever deleted them."""
        return len(self._known_pods) - len(self.remaining_pods)

    async def inspect_node(self) -> NodeHoldings:
        """Read what the node has; nothing is changed."""
        pods = await self._list_pods()
        self._known_pods |= {pod.metadata.uid: pod for pod in pods}
        stakes = find_affected_devices(await self._read_ledger(), await self._read_node_context())
        return NodeHoldings(
            await self._read_node(), tuple(pods), tuple(await self._list_preparations()), tuple(stakes)
        )

    # --- steps, in order ---

    async def add_taint(self) -> bool:
        """Add the taint that keeps pods away; False when there is no such node."""
        now = format_timestamp(self._clock.now())
        return await self._update_taints(lambda taints: add_fence_taint(taints, now=now)) is not None

    async def remove_pods(self, pods: Sequence[Pod]) -> None:
        """Remove pods without waiting for the node."""
        for pod in pods:
            await self._remove_pod(pod)

    async def delete_preparations(self, preparations: Sequence[Preparation]) -> None:
        """Delete the preparations in the node's place."""
        for each in preparations:
            try:
                options = DeleteOptions(uid=each.metadata.uid)
                await self._client.delete(Preparation, each.metadata.name, "", options)
            except (NotFoundError, ConflictError):
                continue

    async def annotate_node(self) -> None:
        """Record on the node when it was fenced."""
        notes = {FENCED_AT_ANNOTATION: format_timestamp(self._clock.now())}
        restore = await self._read_restore_id()
        if restore:
            # A fenced node has no devices prepared that a restored server does not know of.
            notes[ACCOUNTED_ANNOTATION] = restore
        await self._client.patch(Node, self._name, MergePatch({"metadata": {"annotations": notes}}))

    async def wait_until_free(
        self,
        stakes: Sequence[ClaimedDevice],
        seconds: float,
        on_waiting: Callable[[Sequence[RetainedDevice]], None],
    ) -> list[RetainedDevice]:
        """Wait until everything that should become free is; return what is not, and why."""
        clock, time_source = self._clock, self._client.options.time_source
        end = clock.monotonic() + seconds
        backoff = Backoff(time_source, initial=0.1, maximum=1.0)
        while True:
            await self._remove_new_pods()
            found = find_retained_devices(stakes, await self._read_ledger(), await self._read_node_context())
            unexpected = [each for each in found if not each.expected]
            if not unexpected or clock.monotonic() >= end:
                return found
            on_waiting(unexpected)
            await backoff.wait()

    async def unfence(self) -> bool | None:
        """Take the node back into service; False when it was in service, None when there is no such node."""
        before = await self._update_taints(remove_fence_taint, {FENCED_AT_ANNOTATION: None})
        return None if before is None else remove_fence_taint(before) != before

    # --- implementation ---

    async def _update_taints(
        self, change: Callable[[Taints], Taints], annotations: dict[str, Any] | None = None
    ) -> Taints | None:
        """Change the taints of the node; return those it had, None when there is no such node."""
        for tries_left in reversed(range(_MAX_ATTEMPTS)):
            node = await self._read_node()
            if node is None:
                return None
            before = node.spec.taints
            after = change(before)
            noted = bool(annotations and annotations.keys() & node.metadata.annotations.keys())
            if after == before and not noted:
                return before
            # The patch replaces the whole list, so a concurrent change must cause a conflict.
            metadata = {"resourceVersion": node.metadata.resource_version, "annotations": annotations or {}}
            patch = MergePatch({"metadata": metadata, "spec": {"taints": after or None}})
            try:
                await self._client.patch(Node, self._name, patch)
            except ConflictError:
                if not tries_left:
                    raise
                continue
            return before
        return None

    async def _remove_pod(self, pod: Pod) -> None:
        metadata, why = pod.metadata, f"node {self._name} was fenced"
        finished = reservation.is_pod_finished(pod)
        # The phase is written before the deletion, so that finalizers keep no devices and watchers see it.
        self._known_pods[metadata.uid] = replace(pod, status=replace(pod.status, phase="Failed"))
        try:
            if not finished:
                status = build_failed_status(pod, why, now=format_timestamp(self._clock.now()))
                patch = StrategicMergePatch({"metadata": {"uid": metadata.uid}, "status": status})
                await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")
            options = DeleteOptions(uid=metadata.uid, grace_seconds=0)
            await self._client.delete(Pod, metadata.name, metadata.namespace, options)
        except (NotFoundError, ConflictError):
            return  # the pod is gone, or another one has its name

    async def _remove_new_pods(self) -> None:
        node, pods = await self._read_node(), await self._list_pods()
        self.remaining_pods = tuple(pod for pod in pods if pod.metadata.uid in self._known_pods)
        for pod in pods:
            # Pods that tolerate the taint may stay.
            if node is not None and pod.metadata.uid not in self._known_pods and must_evict(pod, node):
                await self._remove_pod(pod)

    async def _list_pods(self) -> list[Pod]:
        """List the pods of the node that have not finished, or are terminating."""
        on_node = ObjectSelector(fields=f"spec.nodeName={self._name}")
        found = (await self._client.list(Pod, "", on_node)).items
        return [
            pod
            for pod in found
            if pod.metadata.deletion_timestamp is not None or not reservation.is_pod_finished(pod)
        ]

    async def _list_preparations(self) -> list[Preparation]:
        if not await self._client.serves(Preparation):
            return []
        found = (await self._client.list(Preparation)).items
        return [each for each in found if each.spec.node_name == self._name]

    async def _read_node(self) -> Node | None:
        try:
            return await self._client.get(Node, self._name)
        except NotFoundError:
            return None

    async def _read_node_context(self) -> NodeLossState:
        claims = (await self._client.list(ResourceClaim)).items
        return NodeLossState(self._name, {claim.metadata.uid: claim for claim in claims}, self._known_pods)

    async def _read_restore_id(self) -> str:
        """Return the id of the restore that the server continues from, if any."""
        try:
            return str((await self._client.get_json(RESTORED_PATH))["id"])
        except NotFoundError:
            return ""

    async def _read_ledger(self) -> list[ClaimedDevice]:
        try:
            return parse_ledger_entries((await self._client.get_json(LEDGER_PATH, entries="true"))["entries"])
        except NotFoundError:
            return []  # not dray's server: there a device is free when its claim is deallocated
