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
from dray.api.preparation import ACCOUNTED, RESTORED_PAGE, Preparation
from dray.api.resource import ResourceClaim
from dray.claims import reservation
from dray.claims.node_loss import Kept, Scene, Stake, at_stake, in_ledger, kept
from dray.client.client import Client, Deletion
from dray.client.errors import Conflict, NotFound
from dray.client.object_refs import Selection
from dray.client.patches import MergePatch, StrategicPatch
from dray.client.timing import Backoff
from dray.clock import timestamp
from dray.placement.fencing import FENCED_AT, failed, fenced, is_unwelcome, unfenced

LEDGER: Final = "/dray/ledger"
_TRIES: Final = 10

Taints = tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What a node had before anything was done."""

    node: Node | None
    pods: tuple[Pod, ...]
    preparations: tuple[Preparation, ...]
    stakes: tuple[Stake, ...]


class Fencing:
    """Fences one node, or takes it back into service."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._clock = client.habits.tempo.clock
        self._seen: dict[str, Pod] = {}
        """Pods that are or were on the node, by uid."""
        self.left: tuple[Pod, ...] = ()
        """Pods that were removed and are still there, kept by their finalizers."""

    @property
    def removed(self) -> int:
        """How many pods were on the node and are gone, whoever was faster."""
        return len(self._seen) - len(self.left)

    async def find(self) -> Found:
        """What the node has; nothing is changed."""
        pods = await self._pods()
        self._seen |= {pod.metadata.uid: pod for pod in pods}
        stakes = at_stake(await self._ledger(), await self._scene())
        return Found(await self._node(), tuple(pods), tuple(await self._preparations()), tuple(stakes))

    # --- steps, in their order ---

    async def close(self) -> bool:
        """Put the taint on that keeps pods away; False when there is no such node."""
        now = timestamp(self._clock.now())
        return await self._tainted(lambda taints: fenced(taints, now=now)) is not None

    async def remove(self, pods: Sequence[Pod]) -> None:
        """Remove pods without asking the node."""
        for pod in pods:
            await self._remove(pod)

    async def let_go(self, preparations: Sequence[Preparation]) -> None:
        """Say in the node's place that it gave everything back."""
        for each in preparations:
            try:
                how = Deletion(uid=each.metadata.uid)
                await self._client.delete(Preparation, each.metadata.name, "", how)
            except (NotFound, Conflict):
                continue

    async def note(self) -> None:
        """Write on the node when it was fenced."""
        notes = {FENCED_AT: timestamp(self._clock.now())}
        restore = await self._restored()
        if restore:
            # Nor has it anything in its hands of which a server that was restored does not know.
            notes[ACCOUNTED] = restore
        await self._client.patch(Node, self._name, MergePatch({"metadata": {"annotations": notes}}))

    async def settle(
        self, stakes: Sequence[Stake], seconds: float, waiting: Callable[[Sequence[Kept]], None]
    ) -> list[Kept]:
        """Wait until everything that should become free is; what is not, in the end, and why."""
        clock, tempo = self._clock, self._client.habits.tempo
        end = clock.monotonic() + seconds
        backoff = Backoff(tempo, first=0.1, longest=1.0)
        while True:
            await self._remove_newcomers()
            found = kept(stakes, await self._ledger(), await self._scene())
            open_ones = [each for each in found if not each.rightly]
            if not open_ones or clock.monotonic() >= end:
                return found
            waiting(open_ones)
            await backoff.wait()

    async def open(self) -> bool | None:
        """Take the node back into service; False when it was, None when there is no such node."""
        before = await self._tainted(unfenced, {FENCED_AT: None})
        return None if before is None else unfenced(before) != before

    # --- how ---

    async def _tainted(
        self, change: Callable[[Taints], Taints], notes: dict[str, Any] | None = None
    ) -> Taints | None:
        """Change the taints of the node; those it had, None when there is no such node."""
        for tries_left in reversed(range(_TRIES)):
            node = await self._node()
            if node is None:
                return None
            before = node.spec.taints
            after = change(before)
            noted = bool(notes and notes.keys() & node.metadata.annotations.keys())
            if after == before and not noted:
                return before
            # Taints are one value to the server, so somebody else's change meanwhile must not get lost.
            metadata = {"resourceVersion": node.metadata.resource_version, "annotations": notes or {}}
            patch = MergePatch({"metadata": metadata, "spec": {"taints": after or None}})
            try:
                await self._client.patch(Node, self._name, patch)
            except Conflict:
                if not tries_left:
                    raise
                continue
            return before
        return None

    async def _remove(self, pod: Pod) -> None:
        metadata, why = pod.metadata, f"node {self._name} was fenced"
        over = reservation.is_over(pod)
        # Told before it goes: whoever waits for it hears how it ended, and finalizers keep no devices.
        self._seen[metadata.uid] = replace(pod, status=replace(pod.status, phase="Failed"))
        try:
            if not over:
                status = failed(pod, why, now=timestamp(self._clock.now()))
                patch = StrategicPatch({"metadata": {"uid": metadata.uid}, "status": status})
                await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")
            how = Deletion(uid=metadata.uid, grace=0)
            await self._client.delete(Pod, metadata.name, metadata.namespace, how)
        except (NotFound, Conflict):
            return  # the pod is gone, or another one has its name

    async def _remove_newcomers(self) -> None:
        node, pods = await self._node(), await self._pods()
        self.left = tuple(pod for pod in pods if pod.metadata.uid in self._seen)
        for pod in pods:
            # Whoever tolerates the taint came in spite of it.
            if node is not None and pod.metadata.uid not in self._seen and is_unwelcome(pod, node):
                await self._remove(pod)

    async def _pods(self) -> list[Pod]:
        """Pods of the node that did not end, or that nobody lets go."""
        mine = Selection(fields=f"spec.nodeName={self._name}")
        found = (await self._client.list(Pod, "", mine)).items
        return [
            pod
            for pod in found
            if pod.metadata.deletion_timestamp is not None or not reservation.is_over(pod)
        ]

    async def _preparations(self) -> list[Preparation]:
        if not await self._client.serves(Preparation):
            return []
        found = (await self._client.list(Preparation)).items
        return [each for each in found if each.spec.node_name == self._name]

    async def _node(self) -> Node | None:
        try:
            return await self._client.get(Node, self._name)
        except NotFound:
            return None

    async def _scene(self) -> Scene:
        claims = (await self._client.list(ResourceClaim)).items
        return Scene(self._name, {claim.metadata.uid: claim for claim in claims}, self._seen)

    async def _restored(self) -> str:
        """From which restore the server goes on, if from any."""
        try:
            return str((await self._client.document(RESTORED_PAGE))["id"])
        except NotFound:
            return ""

    async def _ledger(self) -> list[Stake]:
        try:
            return in_ledger((await self._client.document(LEDGER, entries="true"))["entries"])
        except NotFound:
            return []  # not a server of ours: there a device is free when its claim lets go
