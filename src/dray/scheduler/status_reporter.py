"""The status reporter: writes the condition `PodScheduled` and an event that say why a pod has no node.

Theory of operation: an explanation costs more than a placement, and most pods wait only for a moment. So a
pod is explained only after it has waited a while, from its last refusal; after every step of an explanation
the reporter pauses four times as long as the step took, so that pods are placed in between. When explanations
fall behind, pods get a short summary first. A message that the condition already has is not written again. A
pod that only waits for its devices to become ready on its node is not unschedulable, and more nodes would not
help it: it gets `nominatedNodeName` and a normal event instead. The next refusal removes the nomination.

Rules for this file: a pod that has a node meanwhile never gets the condition: it is written on the version
that had none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.core import Pod
from dray.client.client import Client
from dray.client.errors import ApiError, ConflictError, NotFoundError
from dray.client.events import EventRecorder
from dray.client.patches import StrategicMergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.clock import format_timestamp
from dray.explain import WorkBudget
from dray.placement.pending_pod import PLUGIN_NAME
from dray.placement.rejections import PluginRejection
from dray.placement.scheduling_cycle import Unschedulable
from dray.placement.unschedulable_message import build_explanation, summarize_unschedulable
from dray.scheduler.queued_pod import PENDING_STATES, QueuedPod, QueuedPodState

REPORT_DELAY_SECONDS: Final = 0.5
"""Seconds a pod has waited before it is explained."""
MAX_REPORT_LAG_SECONDS: Final = 5.0
"""Seconds beyond which a pod gets a summary: a short message now is better than a full one much later."""
REST_FACTOR: Final = 4
"""The pause after a step of an explanation, as a multiple of the time the step took."""
MAX_FULL_REPORTS: Final = 256
"""Beyond so many pending reports, others are summaries: a full refusal keeps a snapshot of the cluster in
memory.
"""
FIRST_RETRYABLE_CODE: Final = 500
"""Responses with this code or a higher one may change with a retry."""
UNSCHEDULABLE_REASON: Final = "Unschedulable"
CONDITION_TYPE: Final = "PodScheduled"
WAITING_REASON: Final = "BindingConditionsPending"
"""The reason of the event for a pod that waits for its devices; kube-scheduler has the same."""

Refusal = Unschedulable | PluginRejection


@dataclass(slots=True)
class _PendingReport:
    """A pod to report on, when it is due, and its refusal."""

    queued: QueuedPod
    due: float
    refusal: Refusal
    in_flight: bool = False
    """Whether the pod is placed and waits for its devices or a search, so that it is not about to be refused.
    """
    node: str = ""
    """The node on which the pod waits for its devices."""


class SchedulingStatusReporter:
    """Reports why pods wait."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        admission: AllocatorGateFilter,
        get_latest_pod: Callable[[Pod], Pod | None],
    ) -> None:
        self._client, self._recorder, self._admission = client, recorder, admission
        self._get_latest_pod = get_latest_pod
        self._time_source = client.options.time_source
        self._pending: dict[str, _PendingReport] = {}
        self._changed = asyncio.Event()
        self.compute_effort: Callable[[Unschedulable], WorkBudget] = lambda _unplaceable: WorkBudget()
        """Returns the work budget of an explanation."""
        self.on_failure: Callable[[QueuedPod, Exception], None] = lambda _queued, _error: None
        """Receives reports that failed: they must not stop the reporter."""

    def enqueue(
        self, queued: QueuedPod, refusal: Refusal, *, in_flight: bool = False, node: str = ""
    ) -> None:
        """Report on a refused or waiting pod soon, unless it gets its node before; `node` is where it waits
        for its devices.
        """
        known = self._pending.get(queued.uid)
        if len(self._pending) >= MAX_FULL_REPORTS and isinstance(refusal, Unschedulable):
            refusal = PluginRejection(PLUGIN_NAME, summarize_unschedulable(refusal))
        due = self._time_source.clock.monotonic() + REPORT_DELAY_SECONDS if known is None else known.due
        self._pending[queued.uid] = _PendingReport(queued, due, refusal, in_flight, node)
        self._changed.set()

    def forget(self, uid: str) -> None:
        """Drop the report on a pod."""
        self._pending.pop(uid, None)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._changed.clear()
            first = next(iter(self._pending.values()), None)
            if first is None:
                await self._changed.wait()
                continue
            now = self._time_source.clock.monotonic()
            if first.due > now:
                await self._time_source.sleep(first.due - now)
                continue
            self._pending.pop(first.queued.uid, None)
            if first.queued.state in PENDING_STATES or (
                first.in_flight and first.queued.state is QueuedPodState.TRYING
            ):
                try:
                    await self._report(first, late=now - first.due > MAX_REPORT_LAG_SECONDS)
                except Exception as broken:
                    self.on_failure(first.queued, broken)
                    await self._throttle(now)

    async def _throttle(self, began: float) -> None:
        """Let other tasks work, in proportion to the time spent."""
        spent = self._time_source.clock.monotonic() - began
        await self._time_source.sleep(min(REST_FACTOR * spent, 1.0))

    async def _report(self, pending: _PendingReport, *, late: bool) -> None:
        text = await self._render_refusal(pending.refusal, late=late)
        pending.queued.message = text
        began = self._time_source.clock.monotonic()
        await self._publish(pending, text)
        await self._throttle(began)

    async def _publish(self, pending: _PendingReport, text: str) -> None:
        pod, node = pending.queued.pod, pending.node
        try:
            if node:
                await self._nominate_node(pod, node)
                self._recorder.record(pod, WAITING_REASON, f"{text} on node {node}", action="Scheduling")
            elif await self._update_condition(pod, text):
                self._recorder.record(pod, "FailedScheduling", text, warning=True, action="Scheduling")
        except CALL_ERRORS as failed:
            # A refused permission does not change with a retry.
            if (
                not isinstance(failed, ApiError)
                or isinstance(failed, ConflictError)
                or failed.code >= FIRST_RETRYABLE_CODE
            ):
                self._retry_later(pending, text)

    def _retry_later(self, pending: _PendingReport, text: str) -> None:
        """Schedule a report that could not be written again, unless the pod was refused anew by then."""
        pending.due = self._time_source.clock.monotonic() + REPORT_DELAY_SECONDS
        pending.refusal = PluginRejection(PLUGIN_NAME, text)
        self._pending.setdefault(pending.queued.uid, pending)

    async def _render_refusal(self, refusal: Refusal, *, late: bool) -> str:
        """Render a refusal as text."""
        if isinstance(refusal, PluginRejection):
            return refusal.reason
        if late:
            return summarize_unschedulable(refusal)
        steps = build_explanation(refusal, self._admission, work_budget=self.compute_effort(refusal))
        while True:
            began = self._time_source.clock.monotonic()
            try:
                next(steps)
            except StopIteration as found:
                return str(found.value)
            await self._throttle(began)

    async def _nominate_node(self, pod: Pod, node: str) -> bool:
        """Name the node of a pod that waits there; False when it is named already, or the pod is bound or
        gone.
        """
        return await self._patch_status(
            pod,
            lambda now: None if now.status.nominated_node_name == node else {"nominatedNodeName": node},
        )

    async def _update_condition(self, pod: Pod, text: str) -> bool:
        """Write the condition; False when it is there already, or the pod has a node or is gone."""
        return await self._patch_status(pod, lambda now: self._build_refused_status(now, text))

    def _build_refused_status(self, pod: Pod, text: str) -> dict[str, Any] | None:
        """Build the changes of the status of a refused pod; None without any."""
        old = next((each for each in pod.status.conditions if each.type == CONDITION_TYPE), None)
        condition = {
            "type": CONDITION_TYPE,
            "status": "False",
            "reason": UNSCHEDULABLE_REASON,
            "message": text,
        }
        nomination = {"nominatedNodeName": None} if pod.status.nominated_node_name else {}
        if (
            old is not None
            and not nomination
            and (old.status, old.reason, old.message)
            == (
                "False",
                UNSCHEDULABLE_REASON,
                text,
            )
        ):
            return None
        since = old.last_transition_time if old is not None and old.status == "False" else None
        condition["lastTransitionTime"] = since or format_timestamp(self._time_source.clock.now())
        return {"conditions": [condition], **nomination}

    async def _patch_status(self, pod: Pod, build: Callable[[Pod], dict[str, Any] | None]) -> bool:
        """Write what `build` wants to change of the latest status of a pod; False when that is nothing, or
        the pod has a node or is gone.
        """
        for left in reversed(range(3)):
            now = self._get_latest_pod(pod)
            if now is None or now.metadata.uid != pod.metadata.uid or now.spec.node_name:
                return False
            status = build(now)
            if status is None:
                return False
            # Pinned to the version that was seen without a node.
            pins = {"uid": now.metadata.uid, "resourceVersion": now.metadata.resource_version}
            change = StrategicMergePatch({"metadata": pins, "status": status})
            try:
                await self._client.patch(
                    Pod, pod.metadata.name, change, pod.metadata.namespace, subresource="status"
                )
                return True
            except ConflictError:
                if not left:
                    raise
                await self._time_source.sleep(0.05)  # the watch brings the newer version
            except NotFoundError:
                return False
        return False
