"""The life of one pod on this node, from the moment it is bound until nothing of it is left.

Theory of operation: `restarts` says what is due, this file has it done and waits for what happens next: a
container ends, the pod changes, a wait is over. Containers start only when the pod's claims are prepared.
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

from dray.api.codec import view_of
from dray.api.core import Container, Pod
from dray.client.client import Deletion
from dray.client.errors import NotFound
from dray.client.object_refs import key_of, kind_called, uid_of
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.node.claims.outcomes import Ready, Refusal
from dray.node.claims.preparer import ABANDON
from dray.node.containers.runtime.base import Found
from dray.node.pods import restart_policy
from dray.node.pods.container_recovery import taken_up
from dray.node.pods.pod_containers import LEAST_GRACE, Containers
from dray.node.pods.pod_status import Health, Scene, Verdict, moment, remembered, seconds_of, status_of
from dray.node.pods.pod_status_writer import Teller
from dray.node.pods.restart_policy import FAILED, OVER, PENDING, RUNNING, Ended, Role, Running, Waiting
from dray.node.pods.worker_context import Shop

POD: Final = kind_called("Pod")
VANISHED_GRACE: Final = 1.0
"""Seconds for the containers of a pod that was removed by force."""

Document = dict[str, Any]


class Life:
    """One pod."""

    def __init__(
        self, pod: Document, shop: Shop, found: Sequence[Found] = (), *, resumed: bool = False
    ) -> None:
        """`found` are its containers; `resumed` starts those again that were stopped for a pause."""
        self.uid, self.key = uid_of(pod), key_of(pod)
        self.pod = pod
        self._shop = shop
        wrong = restart_policy.wrong_with(pod)
        known = () if wrong else remembered(pod, restart_policy.tales_of(pod))
        tales = taken_up(known, found, shop.runtime.name, shop.pace, resumed=resumed)
        self._strays = [one.id for one in found if one.id.name not in {tale.name for tale in tales}]
        self._wake = asyncio.Event()
        self.containers = Containers(self.uid, tales, shop, self._say, self._wake.set)
        self._teller = Teller(shop.client, self.key, self.uid, shop.log)
        self._began = moment(shop.now())
        self.vanished = False
        """Whether the server knows no such pod any more."""
        self.returned: Document | None = None
        """The pod, when it is bound here again while this life ends: a restored server has it once more."""
        self._telling: asyncio.Task[None] | None = None
        self._told_all = False
        self._claims_ready = False
        self.hindrance: Waiting | None = None
        """Why no container can start, or why its claims are not given back."""
        self._failure = Verdict(FAILED, "InvalidPod", wrong) if wrong else None
        self._warned = ("", 0)

    # --- what others tell ---

    def see(self, pod: Document) -> None:
        """The pod as it is now."""
        if self.vanished:
            self.returned = pod
            return
        before, self.pod = _grace_in(self.pod), pod
        if _grace_in(pod) != before:
            self.containers.hurry(self._grace())
        self._teller.see(pod.get("status") or {})
        self._wake.set()

    def vanish(self) -> None:
        """There is no such pod any more."""
        self.vanished, self.returned = True, None
        self.containers.hurry(self._grace())
        self._wake.set()

    def look_again(self) -> None:
        """Something about its devices may be different."""
        if self.begun and not self.over:
            self._tell()

    @property
    def begun(self) -> bool:
        """Whether a container of it was ever started."""
        return any(tale.begun for tale in self.containers.tales)

    @property
    def leaving(self) -> bool:
        """Whether the pod is to go."""
        return self.vanished or bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def over(self) -> bool:
        """Whether the server was told that it ended."""
        return self._told_all or self._ended_by_others() is not None

    def _ended_by_others(self) -> Verdict | None:
        """How the server says that the pod ended; a phase that no pod leaves, whoever wrote it."""
        status = self.pod.get("status") or {}
        phase, reason, message = (str(status.get(name) or "") for name in ("phase", "reason", "message"))
        return Verdict(phase, reason, message) if phase in OVER else None

    # --- its course ---

    async def run(self) -> None:
        """Live it."""
        self._telling = telling = asyncio.create_task(self._teller.run())
        telling.add_done_callback(lambda _: self._wake.set())
        try:
            self.containers.follow_all()
            # What no container of the pod stands for must not run when its claims are given back.
            for stray in self._strays:
                await self._shop.runtime.remove(stray)
            if not self.over:
                await self._live()
            await self._end()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await self.containers.close()

    async def _live(self) -> None:
        while not (self.leaving or self.over or self._failure is not None or self._out_of_time()):
            todo = restart_policy.due(self.containers.tales, self._policy, self._shop.now(), self._shop.pace)
            if todo.over:
                return
            self._tell()
            self._tell_of_crashes()
            self.containers.ask_to_stop(todo.stop, self._spec_grace)
            # What runs already has claims as well, and after a restart they may have to be asked for again.
            if (todo.start or self.containers.running(*Role)) and not await self._claims_are_ready():
                if not self.leaving:
                    await self._either(self._shop.claims.pause(self.uid))
                continue
            for name in todo.start:
                if not self.leaving:
                    devices = self._shop.claims.cdi(self.uid, self._container(name))
                    await self.containers.start(self.pod, name, devices)
            if not todo.start:
                await self._either(self._sleep(todo.again))

    @property
    def _policy(self) -> str:
        return restart_policy.policy_of(self.pod)

    async def _sleep(self, until: float | None) -> None:
        moments = [when for when in (until, self._deadline()) if when is not None]
        if moments:
            await self._shop.tempo.sleep(max(min(moments) - self._shop.now(), 0.0))
        else:
            await asyncio.Event().wait()

    async def _either(self, other: Awaitable[object]) -> None:
        """Wait for something, or until anything happens to the pod."""
        waiting = [asyncio.ensure_future(other), asyncio.ensure_future(self._wake.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting[0].done():
                waiting[0].result()
            if self._telling is not None and self._telling.done():
                self._telling.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            self._wake.clear()

    def _deadline(self) -> float | None:
        """When the pod's time is over."""
        seconds = (self.pod.get("spec") or {}).get("activeDeadlineSeconds")
        if not isinstance(seconds, int):
            return None
        began = (self.pod.get("status") or {}).get("startTime") or self._began
        return seconds_of(began) + seconds

    def _out_of_time(self) -> bool:
        deadline = self._deadline()
        if deadline is None or self._shop.now() < deadline:
            return False
        message = "Pod was active on the node longer than the specified deadline"
        self._failure = Verdict(FAILED, "DeadlineExceeded", message)
        self._say("DeadlineExceeded", message, True)
        return True

    async def _claims_are_ready(self) -> bool:
        """Have the claims prepared, unless they are; a pod that is to go does not wait for it."""
        if self._claims_ready:
            return True
        asking = asyncio.ensure_future(self._shop.claims.prepare(view_of(POD, self.pod)))
        try:
            while not asking.done() and not self.leaving:
                await self._either(asyncio.wait({asking}))
            if not asking.done():
                return False
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        answer = asking.result()
        if isinstance(answer, Ready):
            self._claims_ready, self.hindrance = True, None
            self._tell()
            return True
        if isinstance(answer, Refusal) and answer.final:
            self._failure = Verdict(FAILED, str(answer.reason), answer.message)
            self._wake.set()
        self.hindrance = Waiting(str(answer.reason), answer.message)
        self._tell()
        return False

    def _container(self, name: str) -> Container:
        return next(one for one in self._containers() if one.name == name)

    def _containers(self) -> tuple[Container, ...]:
        pod: Pod = view_of(POD, self.pod)
        return (*pod.spec.init_containers, *pod.spec.containers)

    # --- ending ---

    @property
    def _spec_grace(self) -> float:
        seconds = (self.pod.get("spec") or {}).get("terminationGracePeriodSeconds")
        return float(seconds) if isinstance(seconds, int) else 30.0

    def _grace(self) -> float:
        """Seconds that containers have to end when the pod is to go."""
        if self.vanished:
            return VANISHED_GRACE
        asked = _grace_in(self.pod)
        return max(self._spec_grace if asked is None else float(asked), LEAST_GRACE)

    async def _end(self) -> None:
        untold = not self.over or bool(self.containers.running(*Role))
        await self.containers.stop_all(self._grace())
        await self._release()
        if untold and not self.vanished:
            self._tell(final=True)
            await self._until_told()
        await self.containers.clear()
        while not self.leaving:
            await self._either(asyncio.Event().wait())
        await self._remove()
        self._shop.launcher.forget(self.pod)

    async def _release(self) -> None:
        """Give back the claims; nothing is reported and nothing removed before that."""
        claims = self._shop.claims
        while (answer := await claims.release(self.uid, abandon=self._abandons())) is not None:
            hindrance = Waiting(str(answer.reason), answer.message)
            if hindrance != self.hindrance:
                self.hindrance = hindrance
                self._shop.log.warning("claims of a pod are not given back", pod=self.key, why=answer.message)
                self._tell()
            await self._either(claims.pause(self.uid))
        self._claims_ready, self.hindrance = False, None

    def _abandons(self) -> bool:
        return (self.pod["metadata"].get("annotations") or {}).get(ABANDON) == "true"

    async def _until_told(self) -> None:
        """Wait until the server knows how the pod ended, or the pod is gone."""
        waiting = asyncio.ensure_future(self._teller.settled())
        try:
            while not waiting.done() and not self.vanished:
                await self._either(asyncio.wait({waiting}))
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _remove(self) -> None:
        """Let the server remove the pod, and no other of its name."""
        backoff = Backoff(self._shop.tempo, first=0.2, longest=15.0)
        while not self.vanished:
            try:
                how = Deletion(uid=self.uid, grace=0)
                await self._shop.client.delete(Pod, self.key.name, self.key.namespace, how)
                return
            except NotFound:
                return
            except TROUBLE as trouble:
                # A conflict, too: that another pod has its name is told by whoever tells of pods.
                self._shop.log.debug("a pod is not removed yet", pod=self.key, error=trouble)
                await self._either(backoff.wait())

    # --- telling ---

    def _tell_of_crashes(self) -> None:
        """Say once for each end that a container is not started again at once."""
        for tale in self.containers.tales:
            waits = isinstance(tale.state, Ended) and self._shop.pace.after(tale.crashes) > 0
            if (
                waits
                and restart_policy.restarts_again(tale, self._policy)
                and self._warned != (tale.name, tale.restarts)
            ):
                self._warned = (tale.name, tale.restarts)
                note = f"Back-off restarting failed container {tale.name} in pod {self.key.name}"
                self._say("BackOff", note, True)

    def _say(self, reason: str, note: str, warning: bool) -> None:
        self._shop.recorder.record(self.pod, reason, note, warning=warning)

    def _tell(self, *, final: bool = False) -> None:
        if self.vanished or self._told_all:
            return
        self._told_all = final
        tales = self.containers.tales
        scene = Scene(
            tales,
            self._shop.now(),
            self._shop.address,
            self._claims_ready or any(isinstance(tale.state, Running) for tale in tales),
            self.hindrance,
            self._verdict(final),
            self._health(),
            self._began,
        )
        self._teller.say(status_of(self.pod, scene, self._shop.pace))

    def _verdict(self, final: bool) -> Verdict | None:
        tales = self.containers.tales
        phase = restart_policy.phase_of(tales, self._policy)
        if final:
            return (
                self._ended_by_others()
                or self._failure
                or Verdict(phase if phase in OVER else restart_policy.cut_short(tales))
            )
        if phase not in OVER and self._failure is None:
            return None
        # Whoever reads that a pod is over may count on its claims being given back.
        why = self.hindrance or Waiting("")
        return Verdict(RUNNING if restart_policy.initialized(tales) else PENDING, why.reason, why.message)

    def _health(self) -> dict[str, tuple[Health, ...]]:
        return {
            container.name: tuple(self._devices(container))
            for container in self._containers()
            if container.resources.claims
        }

    def _devices(self, container: Container) -> Iterable[Health]:
        """The devices of a container by the claims it names, as its spec names them."""
        by_request = {claim.name for claim in container.resources.claims if claim.request}
        for one in self._shop.claims.devices(self.uid, container):
            if one.device:
                name = f"{one.entry}/{one.request}" if one.entry in by_request else one.entry
                known = self._shop.health.of(one.driver, one.pool, one.device)
                yield Health(f"claim:{name}", f"{one.driver}/{one.pool}/{one.device}", *known)


def _grace_in(pod: Mapping[str, Any]) -> int | None:
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace if isinstance(grace, int) else None
