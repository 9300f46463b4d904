"""The containers of one pod: started, followed to their ends, and stopped.

Theory of operation: what is known of each is its tale, and everything that happens to a container becomes a
new tale. One task follows each container that runs; another stops it when it is to stop. A stop that is under
way is asked for again when there is less time than there was.

Rules for this file: whether a container is to run is not decided here (see `restarts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from dray.node.agent_metrics import CONTAINER, INIT_CONTAINER
from dray.node.containers.runtime.base import ContainerId, Exit, NotStarted
from dray.node.pods import restart_policy
from dray.node.pods.container_recovery import end_of
from dray.node.pods.restart_policy import Ended, Role, Running, Tale, Waiting
from dray.node.pods.worker_context import Shop

LEAST_GRACE: Final = 1.0
"""Seconds a container always gets to end by itself."""
AGAIN_SECONDS: Final = 1.0
"""After so long a container is asked for again that could not be followed."""

Pod = Mapping[str, Any]
Say = Callable[[str, str, bool], None]
"""Tells people about the pod: a reason, a sentence, and whether it is a warning."""


class Containers:
    """Those of one pod. `changed` is called whenever one ended by itself."""

    def __init__(
        self, uid: str, tales: Iterable[Tale], shop: Shop, say: Say, changed: Callable[[], None]
    ) -> None:
        self._uid = uid
        self._tales = {tale.name: tale for tale in tales}
        self._shop = shop
        self._say, self._changed = say, changed
        self._exits: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._hurry = asyncio.Event()
        self._end = 0.0

    @property
    def tales(self) -> tuple[Tale, ...]:
        """What is known of each, in the order of the pod."""
        return tuple(self._tales.values())

    def running(self, *roles: Role) -> list[str]:
        """Those that run and are there for one of these."""
        return [tale.name for tale in self.tales if isinstance(tale.state, Running) and tale.role in roles]

    def follow_all(self) -> None:
        """Follow those that run already."""
        for name in self.running(*Role):
            self._follow(name)

    async def close(self) -> None:
        """Let go of them; they go on."""
        tasks = [*self._exits.values(), *self._stops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- starting ---

    async def start(self, pod: Pod, name: str, devices: tuple[str, ...]) -> None:
        """Start a container, or note why it could not be started."""
        shop, tale = self._shop, self._tales[name]
        attempt = tale.restarts + 1 if isinstance(tale.state, Ended) else tale.restarts
        kind = CONTAINER if tale.role is Role.MAIN else INIT_CONTAINER
        launch = await shop.launcher.launch(pod, name, attempt, devices)
        begun = launch if isinstance(launch, NotStarted) else await shop.runtime.start(launch)
        if isinstance(begun, NotStarted):
            shop.metrics.started(kind, begun.reason)
            self._could_not_start(tale, begun)
            return
        shop.metrics.started(kind)
        self._say("Started", f"Started container {name}", False)
        for note in begun.notes:
            self._say("DeviceEdits", f"container {name}: {note}", True)
        self._tales[name] = restart_policy.started(tale, Running(self._called(begun.id), shop.now()))
        self._follow(name)
        if attempt:
            await shop.runtime.remove(ContainerId(self._uid, name, attempt - 1))
            shop.launcher.trim(pod, name, attempt)

    def _could_not_start(self, tale: Tale, why: NotStarted) -> None:
        """It is tried again, after waits that grow."""
        tries = tale.state.tries + 1 if isinstance(tale.state, Waiting) else 1
        until = self._shop.now() + self._shop.pace.after(tries + 1)
        last, count = tale.last, tale.restarts
        if isinstance(tale.state, Ended):
            last, count = tale.state, count + 1
        waiting = Waiting(why.reason, why.message, until, tries)
        self._tales[tale.name] = replace(tale, state=waiting, last=last, restarts=count)
        self._say("Failed", f"container {tale.name}: {why.message}", True)

    def _id(self, name: str) -> ContainerId:
        return ContainerId(self._uid, name, self._tales[name].restarts)

    def _called(self, container: ContainerId) -> str:
        return f"{self._shop.runtime.name}://{container}"

    def _follow(self, name: str) -> None:
        self._exits[name] = asyncio.create_task(self._followed(name, self._id(name)))

    async def _followed(self, name: str, container: ContainerId) -> None:
        exit = await self._end_of(container)
        end = end_of(exit, self._called(container))
        self._tales[name] = restart_policy.ended(self._tales[name], end, self._shop.pace)
        self._changed()

    async def _end_of(self, container: ContainerId) -> Exit:
        """How a container ended; asked again when nobody could tell, or its end would never be seen."""
        while True:
            try:
                return await self._shop.runtime.wait(container)
            except Exception as broken:
                self._shop.log.error("a container is not followed now", container=container, error=broken)
            await self._shop.tempo.sleep(AGAIN_SECONDS)

    # --- stopping ---

    def ask_to_stop(self, names: Sequence[str], grace: float) -> None:
        """Stop some of them; their ends are told when they come."""
        for name in names:
            stopping = self._stops.get(name)
            if stopping is None:
                self._say("Killing", f"Stopping container {name}", False)
            if stopping is None or stopping.done():
                work = self._shop.runtime.stop(self._id(name), grace)
                self._stops[name] = asyncio.create_task(work)

    def hurry(self, grace: float) -> None:
        """There is less time than there was."""
        self._end = min(self._end, self._shop.now() + grace)
        self._hurry.set()

    async def stop_all(self, grace: float) -> None:
        """Stop everything and see it end: first the containers, then the sidecars, the last one first."""
        self._end = self._shop.now() + grace
        # Stops that are under way may have been given more time.
        under_way, self._stops = list(self._stops.values()), {}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._stop(self.running(Role.MAIN, Role.INIT))
        for name in reversed(self.running(Role.SIDECAR)):
            await self._stop([name])

    async def _stop(self, names: list[str]) -> None:
        while names := [name for name in names if isinstance(self._tales[name].state, Running)]:
            self._hurry.clear()
            self.ask_to_stop(names, max(self._end - self._shop.now(), LEAST_GRACE))
            work = asyncio.gather(*(self._stops[name] for name in names))
            hurry = asyncio.create_task(self._hurry.wait())
            try:
                await asyncio.wait((work, hurry), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    await work
                    await asyncio.gather(*(self._exits[name] for name in names))
            finally:
                hurry.cancel()
                work.cancel()
                await asyncio.gather(work, hurry, return_exceptions=True)
            for name in names:
                self._stops.pop(name, None)

    async def clear(self) -> None:
        """Take away what is left of all of them, except what they said."""
        for tale in self.tales:
            for attempt in range(max(tale.restarts - 1, 0), tale.restarts + 1):
                await self._shop.runtime.remove(ContainerId(self._uid, tale.name, attempt))
