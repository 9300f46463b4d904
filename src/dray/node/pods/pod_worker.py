"""The worker of one pod: runs it from its binding to this node until nothing of it is left.

Theory of operation: `restart_policy` decides the next actions; the worker performs them and waits for the
next event: a container ends, the pod changes, a delay is over. Containers start only when the pod's claims
are prepared. They continue when the agent ends; a new agent finds them and its worker takes over. A pod
terminates when no container will restart, when it is deleted with or without a grace period, or when its
deadline has passed. Then, in this order: the containers stop, the claims are released, the final status is
written, the pod is deleted. The worker needs the server only to write and delete, not to decide.

Rules for this file: one task runs a pod; it starts and ends all other tasks that it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from dray.api.codec import decode_projection
from dray.api.core import Container, Pod
from dray.client.object_refs import get_key, get_kind, get_uid
from dray.client.patches import StrategicMergePatch
from dray.client.timing import Backoff
from dray.node.claims.outcomes import ClaimsPending, ClaimsReady, ClaimsRefused
from dray.node.claims.readiness import ABANDON_ANNOTATION
from dray.node.containers.runtime.base import FoundContainer
from dray.node.pods import restart_policy
from dray.node.pods.container_recovery import recover_containers
from dray.node.pods.pod_containers import MIN_GRACE_SECONDS, PodContainers
from dray.node.pods.pod_removal import PodRemoval
from dray.node.pods.pod_status import (
    ClaimDeviceHealth,
    PodPhaseOverride,
    PodStatusInputs,
    build_pod_status,
    format_time,
    parse_time,
    restore_containers,
)
from dray.node.pods.pod_status_writer import PodStatusWriter
from dray.node.pods.restart_policy import (
    FAILED,
    PENDING,
    RUNNING,
    TERMINAL_PHASES,
    ContainerRole,
    ContainerRunning,
    ContainerWaiting,
)
from dray.node.pods.worker_context import PodWorkerContext
from dray.tasks import cancel_and_wait, wait_for_first

POD: Final = get_kind("Pod")
REMOVED_POD_GRACE_SECONDS: Final = 1.0
"""The grace period of a pod that was deleted by force."""

T = TypeVar("T")
Document = dict[str, Any]


class PodWorker:
    """Runs one pod."""

    def __init__(
        self,
        pod: Document,
        context: PodWorkerContext,
        found: Sequence[FoundContainer] = (),
        *,
        resumed: bool = False,
    ) -> None:
        """`found` are its containers; `resumed` restarts those that were stopped with an earlier agent."""
        self.uid, self.key = get_uid(pod), get_key(pod)
        self.pod = pod
        self._context = context
        wrong = restart_policy.check_container_names(pod)
        known = () if wrong else restore_containers(pod, restart_policy.build_tracked_containers(pod))
        containers = recover_containers(
            known, found, context.runtime.name, context.restart_backoff, resumed=resumed
        )
        names = {tracked.name for tracked in containers}
        self._orphans = [one.id for one in found if one.id.name not in names]
        self._wake = asyncio.Event()
        self.containers = PodContainers(self.uid, containers, context, self._record_event, self._wake.set)
        self._status_writer = PodStatusWriter(context.client, self.key, self.uid, context.log)
        self._removal = PodRemoval(context.client, context.claims, self.key, self.uid, context.log)
        self._started_at = format_time(context.get_time())
        self.removed = False
        """Whether the server has deleted the pod."""
        self.readded_pod: Document | None = None
        """The pod, when it appears again while this worker ends: a restored server has it once more."""
        self._writer_task: asyncio.Task[None] | None = None
        self._final_status_set = False
        self._claims_ready = False
        self.blocker: ContainerWaiting | None = None
        """Why no container can start, or why its claims are not released."""
        self._failure = PodPhaseOverride(FAILED, "InvalidPod", wrong) if wrong else None
        self._warned_restart = ("", 0)

    # --- events ---

    def update_pod(self, pod: Document) -> None:
        """Take over a changed pod."""
        if self.removed:
            self.readded_pod = pod
            return
        before, self.pod = _get_deletion_grace(self.pod), pod
        if _get_deletion_grace(pod) != before:
            self.containers.shorten_grace(self._compute_grace())
        self._status_writer.observe_status(pod.get("status") or {})
        self._wake.set()

    def mark_removed(self) -> None:
        """Note that the server has deleted the pod."""
        self.removed, self.readded_pod = True, None
        self.containers.shorten_grace(self._compute_grace())
        self._wake.set()

    def refresh_status(self) -> None:
        """Report the status again, because the health of devices may have changed."""
        if self.has_started and not self.is_finished:
            self._report_status()

    @property
    def has_started(self) -> bool:
        """Whether any of its containers was ever started."""
        return any(tracked.has_started for tracked in self.containers.tracked)

    @property
    def is_terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.removed or bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def is_finished(self) -> bool:
        """Whether its final status is set or the server has a terminal phase."""
        return self._final_status_set or self._read_terminal_phase() is not None

    def _read_terminal_phase(self) -> PodPhaseOverride | None:
        """Read the terminal phase on the server, whoever wrote it; no pod leaves one."""
        status = self.pod.get("status") or {}
        phase, reason, message = (str(status.get(name) or "") for name in ("phase", "reason", "message"))
        return PodPhaseOverride(phase, reason, message) if phase in TERMINAL_PHASES else None

    # --- running ---

    async def run(self) -> None:
        """Run the pod until nothing of it is left."""
        self._writer_task = writing = asyncio.create_task(self._status_writer.run())
        writing.add_done_callback(lambda _: self._wake.set())
        try:
            self.containers.watch_running()
            # Containers that the pod does not name must not run when its claims are released.
            for orphan in self._orphans:
                await self._context.runtime.remove(orphan)
            if not self.is_finished:
                await self._run_containers()
            await self._terminate()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._context.claims.resume_withdrawal(self.uid)
            await self.containers.close()

    async def _run_containers(self) -> None:
        while not (
            self.is_terminating or self.is_finished or self._failure is not None or self._exceeds_deadline()
        ):
            actions = restart_policy.decide_actions(
                self.containers.tracked,
                self._restart_policy,
                self._context.get_time(),
                self._context.restart_backoff,
            )
            if actions.final_phase:
                return
            self._report_status()
            self._report_backoffs()
            self.containers.request_stop(actions.stop, self._spec_grace)
            # Claims of running containers may have to be prepared again after a restart of the machine.
            if (
                actions.start or self.containers.list_running(*ContainerRole)
            ) and not await self._ensure_claims_ready():
                if not self.is_terminating:
                    await self._wait_or_wake(self._context.claims.wait_for_retry(self.uid))
                continue
            for name in actions.start:
                if not self.is_terminating:
                    devices = self._context.claims.list_cdi_names(self.uid, self._get_container(name))
                    await self.containers.start(self.pod, name, devices)
            if not actions.start:
                await self._wait_or_wake(self._sleep_until(actions.recheck_at))

    @property
    def _restart_policy(self) -> str:
        return restart_policy.get_restart_policy(self.pod)

    async def _sleep_until(self, until: float | None) -> None:
        times = [time for time in (until, self._compute_deadline()) if time is not None]
        if times:
            await self._context.time_source.sleep(max(min(times) - self._context.get_time(), 0.0))
        else:
            await asyncio.Event().wait()

    async def _wait_or_wake(self, awaitable: Awaitable[object]) -> None:
        """Wait for an awaitable, or for any event of the pod."""
        try:
            await wait_for_first(awaitable, self._wake.wait())
            if self._writer_task is not None and self._writer_task.done():
                self._writer_task.result()
        finally:
            self._wake.clear()

    async def _wait_unless(self, should_stop: Callable[[], bool], awaitable: Awaitable[T]) -> T | None:
        """Wait for a result; cancel it and return None when an event of the pod stops the wait."""
        task = asyncio.ensure_future(awaitable)
        try:
            while not task.done() and not should_stop():
                await self._wait_or_wake(asyncio.wait({task}))
            return task.result() if task.done() else None
        finally:
            await cancel_and_wait(task)

    def _compute_deadline(self) -> float | None:
        """Compute the deadline of `activeDeadlineSeconds`; None without one."""
        seconds = (self.pod.get("spec") or {}).get("activeDeadlineSeconds")
        if not isinstance(seconds, int):
            return None
        started = (self.pod.get("status") or {}).get("startTime") or self._started_at
        return parse_time(started) + seconds

    def _exceeds_deadline(self) -> bool:
        deadline = self._compute_deadline()
        if deadline is None or self._context.get_time() < deadline:
            return False
        message = "Pod was active on the node longer than the specified deadline"
        self._failure = PodPhaseOverride(FAILED, "DeadlineExceeded", message)
        self._record_event("DeadlineExceeded", message, True)
        return True

    async def _ensure_claims_ready(self) -> bool:
        """Have the claims prepared, unless they are; a pod being deleted does not wait for it."""
        if self._claims_ready:
            return True
        preparing = self._context.claims.prepare(decode_projection(POD, self.pod))
        outcome = await self._wait_unless(lambda: self.is_terminating, preparing)
        if outcome is None:
            return False
        if isinstance(outcome, ClaimsReady):
            self._claims_ready, self.blocker = True, None
            self._report_status()
            return True
        if isinstance(outcome, ClaimsRefused) and outcome.is_final:
            self._failure = PodPhaseOverride(FAILED, str(outcome.reason), outcome.message)
            self._wake.set()
        self.blocker = ContainerWaiting(str(outcome.reason), outcome.message)
        self._report_status()
        return False

    def _get_container(self, name: str) -> Container:
        return next(one for one in self._list_containers() if one.name == name)

    def _list_containers(self) -> tuple[Container, ...]:
        pod: Pod = decode_projection(POD, self.pod)
        return (*pod.spec.init_containers, *pod.spec.containers)

    # --- termination ---

    @property
    def _spec_grace(self) -> float:
        seconds = (self.pod.get("spec") or {}).get("terminationGracePeriodSeconds")
        return float(seconds) if isinstance(seconds, int) else 30.0

    def _compute_grace(self) -> float:
        """Compute the grace period of containers when the pod terminates."""
        if self.removed:
            return REMOVED_POD_GRACE_SECONDS
        requested = _get_deletion_grace(self.pod)
        return max(self._spec_grace if requested is None else float(requested), MIN_GRACE_SECONDS)

    async def _terminate(self) -> None:
        unreported = not self.is_finished or bool(self.containers.list_running(*ContainerRole))
        await self.containers.stop_all(self._compute_grace())
        await self._release_claims()
        if unreported and not self.removed:
            self._report_status(final=True)
            await self._wait_until_reported()
        self._context.claims.resume_withdrawal(self.uid)
        await self.containers.remove_all()
        while not self.is_terminating:
            await self._wait_or_wake(asyncio.Event().wait())
        backoff = Backoff(self._context.time_source, initial=0.2, maximum=15.0)
        while not (self.removed or self._removal.done or await self._removal.try_delete()):
            await self._wait_or_wake(backoff.wait())
        self._context.launch_builder.delete_logs(self.pod)

    async def _release_claims(self) -> None:
        """Release the claims; the final status and the deletion come after that."""
        claims = self._context.claims
        while (pending := await self._try_release()) is not None:
            blocker = ContainerWaiting(str(pending.reason), pending.message)
            if blocker != self.blocker:
                self.blocker = blocker
                self._context.log.warning(
                    "claims of a pod are not released", pod=self.key, why=pending.message
                )
                self._report_status()
            await self._wait_or_wake(claims.wait_for_retry(self.uid))
        self._claims_ready, self.blocker = False, None

    async def _try_release(self) -> ClaimsPending | None:
        abandon = (self.pod["metadata"].get("annotations") or {}).get(ABANDON_ANNOTATION) == "true"
        return await self._context.claims.release(self.uid, abandon=abandon, defer_withdrawal=True)

    async def _wait_until_reported(self) -> None:
        """Wait until the final status is written, or the pod is deleted."""
        await self._wait_unless(lambda: self.removed, self._status_writer.wait_until_written())

    # --- status and events ---

    def _report_backoffs(self) -> None:
        """Record an event for each termination after which a restart is delayed, once."""
        for tracked in self.containers.tracked:
            restart = (tracked.name, tracked.restart_count)
            if restart != self._warned_restart and restart_policy.is_restart_delayed(
                tracked, self._restart_policy, self._context.restart_backoff
            ):
                self._warned_restart = restart
                note = f"Back-off restarting failed container {tracked.name} in pod {self.key.name}"
                self._record_event("BackOff", note, True)

    def _record_event(self, reason: str, note: str, warning: bool) -> None:
        self._context.recorder.record(self.pod, reason, note, warning=warning)

    def _report_status(self, *, final: bool = False) -> None:
        if self.removed or self._final_status_set:
            return
        self._final_status_set = final
        containers = self.containers.tracked
        inputs = PodStatusInputs(
            containers,
            self._context.get_time(),
            self._context.address,
            self._claims_ready or any(isinstance(tracked.state, ContainerRunning) for tracked in containers),
            self.blocker,
            self._decide_phase(final),
            self._collect_health(),
            self._started_at,
            self._status_writer.latest or {},
        )
        status = build_pod_status(self.pod, inputs, self._context.restart_backoff)
        if final:
            self._status_writer.set_final_status(status, self._write_last)
            return
        # While containers are about to start, another status follows soon.
        kept_waiting = self.blocker is not None or restart_policy.has_failed_to_start(containers)
        self._status_writer.set_status(status, urgent=kept_waiting or status["phase"] != PENDING)

    async def _write_last(self, status: StrategicMergePatch) -> bool:
        return await self._removal.write_last(status, delete=self.is_terminating)

    def _decide_phase(self, final: bool) -> PodPhaseOverride | None:
        containers = self.containers.tracked
        phase = restart_policy.compute_phase(containers, self._restart_policy)
        if final:
            return (
                self._read_terminal_phase()
                or self._failure
                or PodPhaseOverride(
                    phase if phase in TERMINAL_PHASES else restart_policy.compute_terminated_phase(containers)
                )
            )
        if phase not in TERMINAL_PHASES and self._failure is None:
            return None
        # A terminal phase implies that the claims are released.
        why = self.blocker or ContainerWaiting("")
        return PodPhaseOverride(
            RUNNING if restart_policy.is_initialized(containers) else PENDING, why.reason, why.message
        )

    def _collect_health(self) -> dict[str, tuple[ClaimDeviceHealth, ...]]:
        return {
            container.name: tuple(self._list_device_health(container))
            for container in self._list_containers()
            if container.resources.claims
        }

    def _list_device_health(self, container: Container) -> Iterable[ClaimDeviceHealth]:
        """List the health of a container's devices, named by the claims of its spec."""
        for one in self._context.claims.list_devices(self.uid, container):
            if one.device:
                known = self._context.health.get_health(one.driver, one.pool, one.device)
                yield ClaimDeviceHealth(one.resource_name, one.resource_id, *known)


def _get_deletion_grace(pod: Mapping[str, Any]) -> int | None:
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace if isinstance(grace, int) else None
