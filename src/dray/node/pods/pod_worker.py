"""The life of one pod on this node, from the moment it is bound until nothing of it is left.

Theory of operation: `restart_count` says what is due, this file has it done and waits for what happens next:
a container ends, the pod changes, a wait is over. Containers start only when the pod's claims are prepared.
They go on when the agent ends; a new agent finds them and takes up where the old one was. A pod ends when no
container is to run again, when it is deleted, when it vanishes, or when its time is over. Then, in this
order: containers stop, claims are given back, the server is told how it ended, the pod is removed. What is
known here is enough for all of it; the server only needs to be there to hear of it.

Rules for this file: one task lives a pod; whatever else it needs is a task that it starts and ends itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final

from dray.api.codec import decode_projection
from dray.api.core import Container, Pod
from dray.client.client import DeleteOptions
from dray.client.errors import NotFoundError
from dray.client.object_refs import get_key, get_kind, get_uid
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.node.claims.outcomes import ClaimsReady, ClaimsRefused
from dray.node.claims.readiness import ABANDON_ANNOTATION
from dray.node.containers.runtime.base import FoundContainer
from dray.node.pods import restart_policy
from dray.node.pods.container_recovery import recover_containers
from dray.node.pods.pod_containers import MIN_GRACE_SECONDS, PodContainers
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
    ContainerTerminated,
    ContainerWaiting,
)
from dray.node.pods.worker_context import PodWorkerContext
from dray.tasks import wait_for_first

POD: Final = get_kind("Pod")
REMOVED_POD_GRACE_SECONDS: Final = 1.0
"""Seconds for the containers of a pod that was removed by force."""

Document = dict[str, Any]


class PodWorker:
    """One pod."""

    def __init__(
        self,
        pod: Document,
        context: PodWorkerContext,
        found: Sequence[FoundContainer] = (),
        *,
        resumed: bool = False,
    ) -> None:
        """`found` are its containers; `resumed` starts those again that were stopped for a pause."""
        self.uid, self.key = get_uid(pod), get_key(pod)
        self.pod = pod
        self._context = context
        wrong = restart_policy.check_container_names(pod)
        known = () if wrong else restore_containers(pod, restart_policy.build_tracked_containers(pod))
        tales = recover_containers(
            known, found, context.runtime.name, context.restart_backoff, resumed=resumed
        )
        self._orphans = [one.id for one in found if one.id.name not in {tale.name for tale in tales}]
        self._wake = asyncio.Event()
        self.containers = PodContainers(self.uid, tales, context, self._record_event, self._wake.set)
        self._status_writer = PodStatusWriter(context.client, self.key, self.uid, context.log)
        self._started_at = format_time(context.get_time())
        self.removed = False
        """Whether the server knows no such pod any more."""
        self.readded_pod: Document | None = None
        """The pod, when it is bound here again while this life ends: a restored server has it once more."""
        self._writer_task: asyncio.Task[None] | None = None
        self._final_status_set = False
        self._claims_ready = False
        self.blocker: ContainerWaiting | None = None
        """Why no container can start, or why its claims are not given back."""
        self._failure = PodPhaseOverride(FAILED, "InvalidPod", wrong) if wrong else None
        self._warned_restart = ("", 0)

    # --- what others tell ---

    def update_pod(self, pod: Document) -> None:
        """The pod as it is now."""
        if self.removed:
            self.readded_pod = pod
            return
        before, self.pod = _get_deletion_grace(self.pod), pod
        if _get_deletion_grace(pod) != before:
            self.containers.shorten_grace(self._compute_grace())
        self._status_writer.observe_status(pod.get("status") or {})
        self._wake.set()

    def mark_removed(self) -> None:
        """There is no such pod any more."""
        self.removed, self.readded_pod = True, None
        self.containers.shorten_grace(self._compute_grace())
        self._wake.set()

    def refresh_status(self) -> None:
        """Something about its devices may be different."""
        if self.has_started and not self.is_finished:
            self._report_status()

    @property
    def has_started(self) -> bool:
        """Whether a container of it was ever started."""
        return any(tale.has_started for tale in self.containers.tracked)

    @property
    def is_terminating(self) -> bool:
        """Whether the pod is to go."""
        return self.removed or bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def is_finished(self) -> bool:
        """Whether the server was told that it ended."""
        return self._final_status_set or self._read_terminal_phase() is not None

    def _read_terminal_phase(self) -> PodPhaseOverride | None:
        """How the server says that the pod ended; a phase that no pod leaves, whoever wrote it."""
        status = self.pod.get("status") or {}
        phase, reason, message = (str(status.get(name) or "") for name in ("phase", "reason", "message"))
        return PodPhaseOverride(phase, reason, message) if phase in TERMINAL_PHASES else None

    # --- its course ---

    async def run(self) -> None:
        """Live it."""
        self._writer_task = telling = asyncio.create_task(self._status_writer.run())
        telling.add_done_callback(lambda _: self._wake.set())
        try:
            self.containers.watch_running()
            # What no container of the pod stands for must not run when its claims are given back.
            for stray in self._orphans:
                await self._context.runtime.remove(stray)
            if not self.is_finished:
                await self._run_containers()
            await self._terminate()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await self.containers.close()

    async def _run_containers(self) -> None:
        while not (
            self.is_terminating or self.is_finished or self._failure is not None or self._exceeds_deadline()
        ):
            todo = restart_policy.decide_actions(
                self.containers.tracked,
                self._restart_policy,
                self._context.get_time(),
                self._context.restart_backoff,
            )
            if todo.final_phase:
                return
            self._report_status()
            self._report_backoffs()
            self.containers.request_stop(todo.stop, self._spec_grace)
            # What runs already has claims as well, and after a restart they may have to be asked for again.
            if (
                todo.start or self.containers.list_running(*ContainerRole)
            ) and not await self._ensure_claims_ready():
                if not self.is_terminating:
                    await self._wait_or_wake(self._context.claims.wait_for_retry(self.uid))
                continue
            for name in todo.start:
                if not self.is_terminating:
                    devices = self._context.claims.list_cdi_names(self.uid, self._get_container(name))
                    await self.containers.start(self.pod, name, devices)
            if not todo.start:
                await self._wait_or_wake(self._sleep_until(todo.recheck_at))

    @property
    def _restart_policy(self) -> str:
        return restart_policy.get_restart_policy(self.pod)

    async def _sleep_until(self, until: float | None) -> None:
        moments = [when for when in (until, self._compute_deadline()) if when is not None]
        if moments:
            await self._context.time_source.sleep(max(min(moments) - self._context.get_time(), 0.0))
        else:
            await asyncio.Event().wait()

    async def _wait_or_wake(self, awaitable: Awaitable[object]) -> None:
        """Wait for something, or until anything happens to the pod."""
        try:
            await wait_for_first(awaitable, self._wake.wait())
            if self._writer_task is not None and self._writer_task.done():
                self._writer_task.result()
        finally:
            self._wake.clear()

    def _compute_deadline(self) -> float | None:
        """When the pod's time is over."""
        seconds = (self.pod.get("spec") or {}).get("activeDeadlineSeconds")
        if not isinstance(seconds, int):
            return None
        began = (self.pod.get("status") or {}).get("startTime") or self._started_at
        return parse_time(began) + seconds

    def _exceeds_deadline(self) -> bool:
        deadline = self._compute_deadline()
        if deadline is None or self._context.get_time() < deadline:
            return False
        message = "Pod was active on the node longer than the specified deadline"
        self._failure = PodPhaseOverride(FAILED, "DeadlineExceeded", message)
        self._record_event("DeadlineExceeded", message, True)
        return True

    async def _ensure_claims_ready(self) -> bool:
        """Have the claims prepared, unless they are; a pod that is to go does not wait for it."""
        if self._claims_ready:
            return True
        asking = asyncio.ensure_future(self._context.claims.prepare(decode_projection(POD, self.pod)))
        try:
            while not asking.done() and not self.is_terminating:
                await self._wait_or_wake(asyncio.wait({asking}))
            if not asking.done():
                return False
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        answer = asking.result()
        if isinstance(answer, ClaimsReady):
            self._claims_ready, self.blocker = True, None
            self._report_status()
            return True
        if isinstance(answer, ClaimsRefused) and answer.is_final:
            self._failure = PodPhaseOverride(FAILED, str(answer.reason), answer.message)
            self._wake.set()
        self.blocker = ContainerWaiting(str(answer.reason), answer.message)
        self._report_status()
        return False

    def _get_container(self, name: str) -> Container:
        return next(one for one in self._list_containers() if one.name == name)

    def _list_containers(self) -> tuple[Container, ...]:
        pod: Pod = decode_projection(POD, self.pod)
        return (*pod.spec.init_containers, *pod.spec.containers)

    # --- ending ---

    @property
    def _spec_grace(self) -> float:
        seconds = (self.pod.get("spec") or {}).get("terminationGracePeriodSeconds")
        return float(seconds) if isinstance(seconds, int) else 30.0

    def _compute_grace(self) -> float:
        """Seconds that containers have to end when the pod is to go."""
        if self.removed:
            return REMOVED_POD_GRACE_SECONDS
        asked = _get_deletion_grace(self.pod)
        return max(self._spec_grace if asked is None else float(asked), MIN_GRACE_SECONDS)

    async def _terminate(self) -> None:
        untold = not self.is_finished or bool(self.containers.list_running(*ContainerRole))
        await self.containers.stop_all(self._compute_grace())
        await self._release_claims()
        if untold and not self.removed:
            self._report_status(final=True)
            await self._wait_until_reported()
        await self.containers.remove_all()
        while not self.is_terminating:
            await self._wait_or_wake(asyncio.Event().wait())
        await self._delete_pod()
        self._context.launch_builder.delete_logs(self.pod)

    async def _release_claims(self) -> None:
        """Give back the claims; nothing is reported and nothing removed before that."""
        claims = self._context.claims
        while (answer := await claims.release(self.uid, abandon=self._abandons_devices())) is not None:
            hindrance = ContainerWaiting(str(answer.reason), answer.message)
            if hindrance != self.blocker:
                self.blocker = hindrance
                self._context.log.warning(
                    "claims of a pod are not given back", pod=self.key, why=answer.message
                )
                self._report_status()
            await self._wait_or_wake(claims.wait_for_retry(self.uid))
        self._claims_ready, self.blocker = False, None

    def _abandons_devices(self) -> bool:
        return (self.pod["metadata"].get("annotations") or {}).get(ABANDON_ANNOTATION) == "true"

    async def _wait_until_reported(self) -> None:
        """Wait until the server knows how the pod ended, or the pod is gone."""
        waiting = asyncio.ensure_future(self._status_writer.wait_until_written())
        try:
            while not waiting.done() and not self.removed:
                await self._wait_or_wake(asyncio.wait({waiting}))
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _delete_pod(self) -> None:
        """Let the server remove the pod, and no other of its name."""
        backoff = Backoff(self._context.time_source, initial=0.2, maximum=15.0)
        while not self.removed:
            try:
                how = DeleteOptions(uid=self.uid, grace_seconds=0)
                await self._context.client.delete(Pod, self.key.name, self.key.namespace, how)
                return
            except NotFoundError:
                return
            except CALL_ERRORS as trouble:
                # A conflict, too: that another pod has its name is told by whoever tells of pods.
                self._context.log.debug("a pod is not removed yet", pod=self.key, error=trouble)
                await self._wait_or_wake(backoff.wait())

    # --- telling ---

    def _report_backoffs(self) -> None:
        """Say once for each end that a container is not started again at once."""
        for tale in self.containers.tracked:
            waits = (
                isinstance(tale.state, ContainerTerminated)
                and self._context.restart_backoff.compute_delay(tale.crashes) > 0
            )
            if (
                waits
                and restart_policy.should_restart(tale, self._restart_policy)
                and self._warned_restart != (tale.name, tale.restart_count)
            ):
                self._warned_restart = (tale.name, tale.restart_count)
                note = f"Back-off restarting failed container {tale.name} in pod {self.key.name}"
                self._record_event("BackOff", note, True)

    def _record_event(self, reason: str, note: str, warning: bool) -> None:
        self._context.recorder.record(self.pod, reason, note, warning=warning)

    def _report_status(self, *, final: bool = False) -> None:
        if self.removed or self._final_status_set:
            return
        self._final_status_set = final
        tales = self.containers.tracked
        scene = PodStatusInputs(
            tales,
            self._context.get_time(),
            self._context.address,
            self._claims_ready or any(isinstance(tale.state, ContainerRunning) for tale in tales),
            self.blocker,
            self._decide_phase(final),
            self._collect_health(),
            self._started_at,
        )
        self._status_writer.set_status(build_pod_status(self.pod, scene, self._context.restart_backoff))

    def _decide_phase(self, final: bool) -> PodPhaseOverride | None:
        tales = self.containers.tracked
        phase = restart_policy.compute_phase(tales, self._restart_policy)
        if final:
            return (
                self._read_terminal_phase()
                or self._failure
                or PodPhaseOverride(
                    phase if phase in TERMINAL_PHASES else restart_policy.compute_terminated_phase(tales)
                )
            )
        if phase not in TERMINAL_PHASES and self._failure is None:
            return None
        # Whoever reads that a pod is over may count on its claims being given back.
        why = self.blocker or ContainerWaiting("")
        return PodPhaseOverride(
            RUNNING if restart_policy.is_initialized(tales) else PENDING, why.reason, why.message
        )

    def _collect_health(self) -> dict[str, tuple[ClaimDeviceHealth, ...]]:
        return {
            container.name: tuple(self._list_device_health(container))
            for container in self._list_containers()
            if container.resources.claims
        }

    def _list_device_health(self, container: Container) -> Iterable[ClaimDeviceHealth]:
        """The devices of a container by the claims it names, as its spec names them."""
        by_request = {claim.name for claim in container.resources.claims if claim.request}
        for one in self._context.claims.list_devices(self.uid, container):
            if one.device:
                name = f"{one.entry}/{one.request}" if one.entry in by_request else one.entry
                known = self._context.health.get_health(one.driver, one.pool, one.device)
                yield ClaimDeviceHealth(f"claim:{name}", f"{one.driver}/{one.pool}/{one.device}", *known)


def _get_deletion_grace(pod: Mapping[str, Any]) -> int | None:
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace if isinstance(grace, int) else None
