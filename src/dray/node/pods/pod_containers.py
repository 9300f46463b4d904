"""The containers of one pod: starts them, waits for their exits, and stops them.

Theory of operation: each container has a `TrackedContainer`, which every event replaces by a new one. One
task waits for the exit of each running container; another stops it when requested. A stop in progress is
repeated when the grace period becomes shorter.

Rules for this file: `restart_policy` decides which containers run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from dray.node.agent_metrics import CONTAINER, INIT_CONTAINER
from dray.node.containers.runtime.base import ContainerExit, ContainerId, ContainerNotStarted
from dray.node.pods import restart_policy
from dray.node.pods.container_recovery import build_termination
from dray.node.pods.restart_policy import (
    ContainerRole,
    ContainerRunning,
    ContainerTerminated,
    ContainerWaiting,
    TrackedContainer,
)
from dray.node.pods.worker_context import PodWorkerContext
from dray.tasks import wait_for_first

MIN_GRACE_SECONDS: Final = 1.0
"""The shortest grace period of a container."""
RETRY_SECONDS: Final = 1.0
"""Delay after a failed wait for an exit."""

Pod = Mapping[str, Any]
RecordEvent = Callable[[str, str, bool], None]
"""Records an event of the pod: a reason, a message, and whether it is a warning."""


class PodContainers:
    """The containers of one pod; `on_exit` is called after the exit of each."""

    def __init__(
        self,
        uid: str,
        containers: Iterable[TrackedContainer],
        context: PodWorkerContext,
        record_event: RecordEvent,
        on_exit: Callable[[], None],
    ) -> None:
        self._uid = uid
        self._tracked = {tracked.name: tracked for tracked in containers}
        self._context = context
        self._record_event, self._on_exit = record_event, on_exit
        self._exits: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._grace_shortened = asyncio.Event()
        self._stop_deadline = 0.0

    @property
    def tracked(self) -> tuple[TrackedContainer, ...]:
        """The state of each container, in the order of the pod's spec."""
        return tuple(self._tracked.values())

    def list_running(self, *roles: ContainerRole) -> list[str]:
        """List the running containers of these roles."""
        return [
            tracked.name
            for tracked in self.tracked
            if isinstance(tracked.state, ContainerRunning) and tracked.role in roles
        ]

    def watch_running(self) -> None:
        """Wait for the exits of containers that run already."""
        for name in self.list_running(*ContainerRole):
            self._start_watch(name)

    async def close(self) -> None:
        """Stop watching the containers; they continue."""
        tasks = [*self._exits.values(), *self._stops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- start ---

    async def start(self, pod: Pod, name: str, devices: tuple[str, ...]) -> None:
        """Start a container, or record why it could not be started."""
        context, tracked = self._context, self._tracked[name]
        attempt = (
            tracked.restart_count + 1
            if isinstance(tracked.state, ContainerTerminated)
            else tracked.restart_count
        )
        kind = CONTAINER if tracked.role is ContainerRole.MAIN else INIT_CONTAINER
        launch = await context.launch_builder.build_launch(pod, name, attempt, devices)
        outcome = launch if isinstance(launch, ContainerNotStarted) else await context.runtime.start(launch)
        if isinstance(outcome, ContainerNotStarted):
            context.metrics.count_start(kind, outcome.reason)
            self._record_start_failure(tracked, outcome)
            return
        context.metrics.count_start(kind)
        self._record_event("Started", f"Started container {name}", False)
        for note in outcome.notes:
            self._record_event("DeviceEdits", f"container {name}: {note}", True)
        self._tracked[name] = restart_policy.mark_started(
            tracked, ContainerRunning(self._format_status_id(outcome.id), context.get_time())
        )
        self._start_watch(name)
        if attempt:
            await context.runtime.remove(ContainerId(self._uid, name, attempt - 1))
            context.launch_builder.prune_logs(pod, name, attempt)

    def _record_start_failure(self, container: TrackedContainer, refusal: ContainerNotStarted) -> None:
        """Record why a container was not started; it is retried after growing delays."""
        attempts = container.state.attempts + 1 if isinstance(container.state, ContainerWaiting) else 1
        until = self._context.get_time() + self._context.restart_backoff.compute_delay(attempts + 1)
        last, count = container.last_termination, container.restart_count
        if isinstance(container.state, ContainerTerminated):
            last, count = container.state, count + 1
        waiting = ContainerWaiting(refusal.reason, refusal.message, until, attempts)
        self._tracked[container.name] = replace(
            container, state=waiting, last_termination=last, restart_count=count
        )
        self._record_event("Failed", f"container {container.name}: {refusal.message}", True)

    def _build_id(self, name: str) -> ContainerId:
        return ContainerId(self._uid, name, self._tracked[name].restart_count)

    def _format_status_id(self, container: ContainerId) -> str:
        return f"{self._context.runtime.name}://{container}"

    def _start_watch(self, name: str) -> None:
        self._exits[name] = asyncio.create_task(self._watch_container(name, self._build_id(name)))

    async def _watch_container(self, name: str, container: ContainerId) -> None:
        exit = await self._wait_for_exit(container)
        end = build_termination(exit, self._format_status_id(container))
        self._tracked[name] = restart_policy.mark_terminated(
            self._tracked[name], end, self._context.restart_backoff
        )
        self._on_exit()

    async def _wait_for_exit(self, container: ContainerId) -> ContainerExit:
        """Wait for a container's exit; retried after errors, because the exit must not be missed."""
        while True:
            try:
                return await self._context.runtime.wait(container)
            except Exception as error:
                self._context.log.error("waiting for a container failed", container=container, error=error)
            await self._context.time_source.sleep(RETRY_SECONDS)

    # --- stop ---

    def request_stop(self, names: Sequence[str], grace: float) -> None:
        """Start to stop some containers, without waiting for their exits."""
        for name in names:
            stopping = self._stops.get(name)
            if stopping is None:
                self._record_event("Killing", f"Stopping container {name}", False)
            if stopping is None or stopping.done():
                work = self._context.runtime.stop(self._build_id(name), grace)
                self._stops[name] = asyncio.create_task(work)

    def shorten_grace(self, grace: float) -> None:
        """Shorten the grace period of a stop in progress."""
        self._stop_deadline = min(self._stop_deadline, self._context.get_time() + grace)
        self._grace_shortened.set()

    async def stop_all(self, grace: float) -> None:
        """Stop all containers and wait: first the main ones, then the sidecars in reverse order."""
        self._stop_deadline = self._context.get_time() + grace
        # Stops in progress may have a longer grace period.
        in_progress, self._stops = list(self._stops.values()), {}
        for task in in_progress:
            task.cancel()
        await asyncio.gather(*in_progress, return_exceptions=True)
        await self._stop_containers(self.list_running(ContainerRole.MAIN, ContainerRole.INIT))
        for name in reversed(self.list_running(ContainerRole.SIDECAR)):
            await self._stop_containers([name])

    async def _stop_containers(self, names: list[str]) -> None:
        while names := [name for name in names if isinstance(self._tracked[name].state, ContainerRunning)]:
            self._grace_shortened.clear()
            self.request_stop(names, max(self._stop_deadline - self._context.get_time(), MIN_GRACE_SECONDS))
            stopping = asyncio.gather(*(self._stops[name] for name in names))
            if await wait_for_first(stopping, self._grace_shortened.wait()) == 0:
                await asyncio.gather(*(self._exits[name] for name in names))
            for name in names:
                self._stops.pop(name, None)

    async def remove_all(self) -> None:
        """Remove what is left of all containers, except their logs."""
        for tracked in self.tracked:
            for attempt in range(max(tracked.restart_count - 1, 0), tracked.restart_count + 1):
                await self._context.runtime.remove(ContainerId(self._uid, tracked.name, attempt))
