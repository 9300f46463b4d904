"""The containers of one pod: started, followed to their ends, and stopped.

Theory of operation: what is known of each is its tale, and everything that happens to a container becomes a
new tale. One task follows each container that runs; another stops it when it is to stop. A stop that is under
way is asked for again when there is less time than there was.

Rules for this file: whether a container is to run is not decided here (see `restart_count`).
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
"""Seconds a container always gets to end by itself."""
RETRY_SECONDS: Final = 1.0
"""After so long a container is asked for again that could not be followed."""

Pod = Mapping[str, Any]
RecordEvent = Callable[[str, str, bool], None]
"""Tells people about the pod: a reason, a sentence, and whether it is a warning."""


class PodContainers:
    """Those of one pod. `on_exit` is called whenever one ended by itself."""

    def __init__(
        self,
        uid: str,
        containers: Iterable[TrackedContainer],
        context: PodWorkerContext,
        record_event: RecordEvent,
        on_exit: Callable[[], None],
    ) -> None:
        self._uid = uid
        self._tracked = {tale.name: tale for tale in containers}
        self._context = context
        self._record_event, self._on_exit = record_event, on_exit
        self._exits: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._grace_shortened = asyncio.Event()
        self._stop_deadline = 0.0

    @property
    def tracked(self) -> tuple[TrackedContainer, ...]:
        """What is known of each, in the order of the pod."""
        return tuple(self._tracked.values())

    def list_running(self, *roles: ContainerRole) -> list[str]:
        """Those that run and are there for one of these."""
        return [
            tale.name
            for tale in self.tracked
            if isinstance(tale.state, ContainerRunning) and tale.role in roles
        ]

    def watch_running(self) -> None:
        """Follow those that run already."""
        for name in self.list_running(*ContainerRole):
            self._start_watch(name)

    async def close(self) -> None:
        """Let go of them; they go on."""
        tasks = [*self._exits.values(), *self._stops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- starting ---

    async def start(self, pod: Pod, name: str, devices: tuple[str, ...]) -> None:
        """Start a container, or note why it could not be started."""
        shop, tale = self._context, self._tracked[name]
        attempt = (
            tale.restart_count + 1 if isinstance(tale.state, ContainerTerminated) else tale.restart_count
        )
        kind = CONTAINER if tale.role is ContainerRole.MAIN else INIT_CONTAINER
        launch = await shop.launch_builder.build_launch(pod, name, attempt, devices)
        begun = launch if isinstance(launch, ContainerNotStarted) else await shop.runtime.start(launch)
        if isinstance(begun, ContainerNotStarted):
            shop.metrics.count_start(kind, begun.reason)
            self._record_start_failure(tale, begun)
            return
        shop.metrics.count_start(kind)
        self._record_event("Started", f"Started container {name}", False)
        for note in begun.notes:
            self._record_event("DeviceEdits", f"container {name}: {note}", True)
        self._tracked[name] = restart_policy.mark_started(
            tale, ContainerRunning(self._format_status_id(begun.id), shop.get_time())
        )
        self._start_watch(name)
        if attempt:
            await shop.runtime.remove(ContainerId(self._uid, name, attempt - 1))
            shop.launch_builder.prune_logs(pod, name, attempt)

    def _record_start_failure(self, container: TrackedContainer, refusal: ContainerNotStarted) -> None:
        """It is tried again, after waits that grow."""
        tries = container.state.attempts + 1 if isinstance(container.state, ContainerWaiting) else 1
        until = self._context.get_time() + self._context.restart_backoff.compute_delay(tries + 1)
        last, count = container.last_termination, container.restart_count
        if isinstance(container.state, ContainerTerminated):
            last, count = container.state, count + 1
        waiting = ContainerWaiting(refusal.reason, refusal.message, until, tries)
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
        """How a container ended; asked again when nobody could tell, or its end would never be seen."""
        while True:
            try:
                return await self._context.runtime.wait(container)
            except Exception as broken:
                self._context.log.error("a container is not followed now", container=container, error=broken)
            await self._context.time_source.sleep(RETRY_SECONDS)

    # --- stopping ---

    def request_stop(self, names: Sequence[str], grace: float) -> None:
        """Stop some of them; their ends are told when they come."""
        for name in names:
            stopping = self._stops.get(name)
            if stopping is None:
                self._record_event("Killing", f"Stopping container {name}", False)
            if stopping is None or stopping.done():
                work = self._context.runtime.stop(self._build_id(name), grace)
                self._stops[name] = asyncio.create_task(work)

    def shorten_grace(self, grace: float) -> None:
        """There is less time than there was."""
        self._stop_deadline = min(self._stop_deadline, self._context.get_time() + grace)
        self._grace_shortened.set()

    async def stop_all(self, grace: float) -> None:
        """Stop everything and see it end: first the containers, then the sidecars, the last one first."""
        self._stop_deadline = self._context.get_time() + grace
        # Stops that are under way may have been given more time.
        under_way, self._stops = list(self._stops.values()), {}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
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
        """Take away what is left of all of them, except what they said."""
        for tale in self.tracked:
            for attempt in range(max(tale.restart_count - 1, 0), tale.restart_count + 1):
                await self._context.runtime.remove(ContainerId(self._uid, tale.name, attempt))
