"""The pod evictor: writes the condition `DisruptionTarget`, records an event, and deletes the pod.

Theory of operation: first the condition is written, then the pod is deleted with its uid as a precondition;
its node stops it gracefully. When the deletion fails the caller tries again, and the condition is not written
a second time. A pod that may stay after all, before its deletion succeeded, gets the condition `False`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dray.api.core import Pod
from dray.client.client import Client, DeleteOptions
from dray.client.errors import ConflictError, NotFoundError
from dray.client.events import EventRecorder
from dray.client.patches import StrategicMergePatch
from dray.clock import format_timestamp

DISRUPTION_TARGET: Final = "DisruptionTarget"


@dataclass(frozen=True, slots=True)
class EvictionWording:
    """The texts of an eviction: the reasons of the condition and the event, and how the message begins."""

    reason: str
    event_reason: str
    actor: str
    action: str


class PodEvictor:
    """Evicts pods."""

    def __init__(self, client: Client, recorder: EventRecorder, wording: EvictionWording) -> None:
        self._client, self._recorder, self._wording = client, recorder, wording
        self._clock = client.options.time_source.clock
        self._marked: set[str] = set()
        """Pods with the condition written by this process that are not deleted yet."""

    async def evict(self, pod: Pod, why: str) -> bool:
        """Delete a pod and say why; False when it was gone already."""
        metadata = pod.metadata
        try:
            if metadata.uid not in self._marked and not self._is_target(pod):
                await self._mark_and_record(pod, why)
            await self._client.delete(Pod, metadata.name, metadata.namespace, DeleteOptions(uid=metadata.uid))
        except (NotFoundError, ConflictError):
            self._marked.discard(metadata.uid)
            return False  # the pod is gone, or another one has its name
        self._marked.discard(metadata.uid)
        return True

    async def cancel_eviction(self, pod: Pod) -> None:
        """Reset the condition of a pod that may stay, because its deletion failed until now."""
        if pod.metadata.deletion_timestamp is not None or pod.metadata.uid not in self._marked:
            return
        with suppress(NotFoundError, ConflictError):
            await self._write_condition(pod, "False", f"{self._wording.actor}: the taint is gone")
        self._marked.discard(pod.metadata.uid)

    async def _mark_and_record(self, pod: Pod, why: str) -> None:
        await self._write_condition(pod, "True", f"{self._wording.actor}: {self._wording.action}; {why}")
        self._marked.add(pod.metadata.uid)
        self._recorder.record(pod, self._wording.event_reason, f"the pod is deleted: {why}", warning=True)

    async def _write_condition(self, pod: Pod, status: str, message: str) -> None:
        condition = {
            "type": DISRUPTION_TARGET,
            "status": status,
            "reason": self._wording.reason,
            "message": message,
            "lastTransitionTime": format_timestamp(self._clock.now()),
        }
        metadata = pod.metadata
        patch = StrategicMergePatch(
            {"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}}
        )
        await self._client.patch(Pod, metadata.name, patch, metadata.namespace, subresource="status")

    def _is_target(self, pod: Pod) -> bool:
        """Whether the pod has the condition for this reason already."""
        return any(
            each.type == DISRUPTION_TARGET and each.status == "True" and each.reason == self._wording.reason
            for each in pod.status.conditions
        )
