"""How a pod is made to go: it is said why, once, and the pod is deleted as anybody would delete it.

Theory of operation: first the condition `DisruptionTarget` is written, then the pod is deleted, naming its
uid; its node stops it in its own time. When the deletion fails it is tried again by whoever asked, and
nothing is said a second time. A pod that may stay after all, before its deletion succeeded, is no target any
more.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dray.api.core import Pod
from dray.client.client import Client, Deletion
from dray.client.errors import Conflict, NotFound
from dray.client.events import EventRecorder
from dray.client.patches import StrategicPatch
from dray.clock import timestamp

TARGET: Final = "DisruptionTarget"


@dataclass(frozen=True, slots=True)
class Words:
    """In whose name pods go: the reason of the condition, that of the event, and how its message begins."""

    reason: str
    event: str
    who: str
    what: str


class Evictor:
    """Makes pods go, and says why."""

    def __init__(self, client: Client, recorder: EventRecorder, words: Words) -> None:
        self._client, self._recorder, self._words = client, recorder, words
        self._clock = client.habits.tempo.clock
        self._marked: set[str] = set()
        """Pods that were called targets, and are not deleted yet."""

    async def evict(self, pod: Pod, why: str) -> bool:
        """Delete a pod, saying why; False when it was gone already."""
        metadata = pod.metadata
        try:
            if metadata.uid not in self._marked and not self._is_target(pod):
                await self._say(pod, why)
            await self._client.delete(Pod, metadata.name, metadata.namespace, Deletion(uid=metadata.uid))
        except (NotFound, Conflict):
            self._marked.discard(metadata.uid)
            return False  # the pod is gone, or another one has its name
        self._marked.discard(metadata.uid)
        return True

    async def spare(self, pod: Pod) -> None:
        """Take back what was said of a pod whose deletion failed until it could stay."""
        if pod.metadata.deletion_timestamp is not None or pod.metadata.uid not in self._marked:
            return
        with suppress(NotFound, Conflict):
            await self._mark(pod, "False", f"{self._words.who}: the taint is gone")
        self._marked.discard(pod.metadata.uid)

    async def _say(self, pod: Pod, why: str) -> None:
        await self._mark(pod, "True", f"{self._words.who}: {self._words.what}; {why}")
        self._marked.add(pod.metadata.uid)
        self._recorder.record(pod, self._words.event, f"the pod is deleted: {why}", warning=True)

    async def _mark(self, pod: Pod, status: str, message: str) -> None:
        condition = {
            "type": TARGET,
            "status": status,
            "reason": self._words.reason,
            "message": message,
            "lastTransitionTime": timestamp(self._clock.now()),
        }
        metadata = pod.metadata
        patch = StrategicPatch({"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}})
        await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")

    def _is_target(self, pod: Pod) -> bool:
        """Whether it was said already that a pod must go for this."""
        return any(
            each.type == TARGET and each.status == "True" and each.reason == self._words.reason
            for each in pod.status.conditions
        )
