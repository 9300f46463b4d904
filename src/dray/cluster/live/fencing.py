"""Fencing a node, step by step: keep pods away, remove those that are there, let go of what it had.

Theory of operation: somebody said that a node uses nothing any more. First it gets the taint of nodes out of
service, so that nothing that becomes free is given to a pod on it. Then its pods are removed without asking
it; the controllers release their claims as for any pod that is gone. Then the node's preparations are
deleted, with which the ledger lets go of what the node had in its hands. Every step can be taken again, so
whoever was interrupted begins anew. A scheduler may have been about to bind a pod when the taint came; it is
removed with the next look.
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
    """What a node had before anything was done."""

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
        """Pods that were removed and are still there, kept by their finalizers."""

    @property
    def removed_count(self) -> int:
        """How many pods were on the node and are gone, whoever was faster."""
        return len(self._known_pods) - len(self.remaining_pods)

    async def inspect_node(self) -> NodeHoldings:
        """What the node has; nothing is changed."""
        pods = await self._list_pods()
        self._known_pods |= {pod.metadata.uid: pod for pod in pods}
        stakes = find_affected_devices(await self._read_ledger(), await self._read_node_context())
        return NodeHoldings(
            await self._read_node(), tuple(pods), tuple(await self._list_preparations()), tuple(stakes)
        )

    # --- steps, in their order ---

    async def add_taint(self) -> bool:
        """Put the taint on that keeps pods away; False when there is no such node."""
        now = format_timestamp(self._clock.now())
        return await self._update_taints(lambda taints: add_fence_taint(taints, now=now)) is not None

    async def remove_pods(self, pods: Sequence[Pod]) -> None:
        """Remove pods without asking the node."""
        for pod in pods:
            await self._remove_pod(pod)

    async def delete_preparations(self, preparations: Sequence[Preparation]) -> None:
        """Say in the node's place that it gave everything back."""
        for each in preparations:
            try:
                how = DeleteOptions(uid=each.metadata.uid)
                await self._client.delete(Preparation, each.metadata.name, "", how)
            except (NotFoundError, ConflictError):
                continue

    async def annotate_node(self) -> None:
        """Write on the node when it was fenced."""
        notes = {FENCED_AT_ANNOTATION: format_timestamp(self._clock.now())}
        restore = await self._read_restore_id()
        if restore:
            # Nor has it anything in its hands of which a server that was restored does not know.
            notes[ACCOUNTED_ANNOTATION] = restore
        await self._client.patch(Node, self._name, MergePatch({"metadata": {"annotations": notes}}))

    async def wait_until_free(
        self,
        stakes: Sequence[ClaimedDevice],
        seconds: float,
        on_waiting: Callable[[Sequence[RetainedDevice]], None],
    ) -> list[RetainedDevice]:
        """Wait until everything that should become free is; what is not, in the end, and why."""
        clock, tempo = self._clock, self._client.options.time_source
        end = clock.monotonic() + seconds
        backoff = Backoff(tempo, initial=0.1, maximum=1.0)
        while True:
            await self._remove_new_pods()
            found = find_retained_devices(stakes, await self._read_ledger(), await self._read_node_context())
            open_ones = [each for each in found if not each.expected]
            if not open_ones or clock.monotonic() >= end:
                return found
            on_waiting(open_ones)
            await backoff.wait()

    async def unfence(self) -> bool | None:
        """Take the node back into service; False when it was, None when there is no such node."""
        before = await self._update_taints(remove_fence_taint, {FENCED_AT_ANNOTATION: None})
        return None if before is None else remove_fence_taint(before) != before

    # --- how ---

    async def _update_taints(
        self, change: Callable[[Taints], Taints], annotations: dict[str, Any] | None = None
    ) -> Taints | None:
        """Change the taints of the node; those it had, None when there is no such node."""
        for tries_left in reversed(range(_MAX_ATTEMPTS)):
            node = await self._read_node()
            if node is None:
                return None
            before = node.spec.taints
            after = change(before)
            noted = bool(annotations and annotations.keys() & node.metadata.annotations.keys())
            if after == before and not noted:
                return before
            # Taints are one value to the server, so somebody else's change meanwhile must not get lost.
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
        over = reservation.is_pod_finished(pod)
        # Told before it goes: whoever waits for it hears how it ended, and finalizers keep no devices.
        self._known_pods[metadata.uid] = replace(pod, status=replace(pod.status, phase="Failed"))
        try:
            if not over:
                status = build_failed_status(pod, why, now=format_timestamp(self._clock.now()))
                patch = StrategicMergePatch({"metadata": {"uid": metadata.uid}, "status": status})
                await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")
            how = DeleteOptions(uid=metadata.uid, grace_seconds=0)
            await self._client.delete(Pod, metadata.name, metadata.namespace, how)
        except (NotFoundError, ConflictError):
            return  # the pod is gone, or another one has its name

    async def _remove_new_pods(self) -> None:
        node, pods = await self._read_node(), await self._list_pods()
        self.remaining_pods = tuple(pod for pod in pods if pod.metadata.uid in self._known_pods)
        for pod in pods:
            # Whoever tolerates the taint came in spite of it.
            if node is not None and pod.metadata.uid not in self._known_pods and must_evict(pod, node):
                await self._remove_pod(pod)

    async def _list_pods(self) -> list[Pod]:
        """Pods of the node that did not end, or that nobody lets go."""
        mine = ObjectSelector(fields=f"spec.nodeName={self._name}")
        found = (await self._client.list(Pod, "", mine)).items
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
        """From which restore the server goes on, if from any."""
        try:
            return str((await self._client.get_json(RESTORED_PATH))["id"])
        except NotFoundError:
            return ""

    async def _read_ledger(self) -> list[ClaimedDevice]:
        try:
            return parse_ledger_entries((await self._client.get_json(LEDGER_PATH, entries="true"))["entries"])
        except NotFoundError:
            return []  # not a server of ours: there a device is free when its claim lets go
