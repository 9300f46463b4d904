"""All pods of a node: each has its life, and what is left of pods that are gone is cleared away.

Theory of operation: pods come from the informer, containers and claims that an earlier agent left come from
the runtime and the record. At the start they are put together: a container whose pod is known goes on as
part of its life, one whose pod is gone is stopped and its claims are given back. A life that breaks by a
fault of ours is said and begun anew from what is there; the other pods do not notice.

When the agent ends, containers go on. When it is told to take its containers down instead, it notes which
pods it stopped, so that the next one starts them again whatever their restart policy says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dray.client.object_refs import key_of, uid_of
from dray.durable import Damaged, Newer, StateFile, remove
from dray.node.claims.preparer import Claims
from dray.node.containers.runtime.base import Found
from dray.node.pods.pod_worker import Life
from dray.node.pods.restart_policy import Ended, Running, Waiting
from dray.node.pods.worker_context import Shop

Document = dict[str, Any]

PAUSED: Final = StateFile("dray node pause", 1)
STOP_SECONDS: Final = 10.0
"""The longest time for containers that are stopped because their agent goes."""
AGAIN_SECONDS: Final = 5.0
"""After so long a life that broke is begun anew."""


class Pods:
    """The pods of one node."""

    def __init__(self, shop: Shop, root: Path) -> None:
        self._shop = shop
        self._paused = root / "paused"
        self._lives: dict[str, Life] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.begun = asyncio.Event()
        """Set when all pods that were there at the start are lived."""

    @property
    def claims(self) -> Claims:
        """The claim office of the node."""
        return self._shop.claims

    # --- what happens to pods ---

    def see(self, pod: Document) -> None:
        """A pod is bound to this node, or has changed."""
        life = self._lives.get(uid_of(pod))
        if life is None:
            self._begin(pod)
        else:
            life.see(pod)

    def changed(self, before: Document, pod: Document) -> None:
        """A pod has changed; under its name there may be another one now."""
        if uid_of(before) != uid_of(pod):
            self.vanish(before)
        self.see(pod)

    def vanish(self, pod: Document) -> None:
        """A pod is gone from the server."""
        life = self._lives.get(uid_of(pod))
        if life is not None:
            life.vanish()

    def look_again(self) -> None:
        """The health of devices is different."""
        for life in self._lives.values():
            life.look_again()

    def life(self, namespace: str, name: str, uid: str = "") -> Life | None:
        """The life of a pod, the newest should there be two of its name."""
        found = [
            life
            for life in self._lives.values()
            if life.key == (namespace, name) and (not uid or life.uid == uid)
        ]
        return found[-1] if found else None

    # --- the course of the agent ---

    async def run(self, pods: Callable[[], Sequence[Document]], follow: Callable[[], None]) -> None:
        """Take up what is there and live all pods, until cancelled; containers go on then.

        `follow` is called when `pods` have begun, and before anything else can happen to them.
        """
        by_pod: dict[str, list[Found]] = {}
        for one in await self._shop.runtime.running():
            by_pod.setdefault(one.id.pod_uid, []).append(one)
        resumed = self._resumed()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                there = pods()
                known = {uid_of(pod) for pod in there}
                for pod in there:
                    self._begin(pod, by_pod.get(uid_of(pod), ()), resumed=uid_of(pod) in resumed)
                follow()
                group.create_task(self._clear({*by_pod, *self._shop.claims.users()} - known, by_pod))
                remove(self._paused)
                self._shop.launcher.sweep(there)
                self.begun.set()
                await asyncio.Event().wait()
            finally:
                self._group = None

    def _begin(self, pod: Document, found: Sequence[Found] = (), *, resumed: bool = False) -> None:
        assert self._group is not None, "pods are seen only while they are lived"
        try:
            life = Life(pod, self._shop, found, resumed=resumed)
        except Exception as broken:  # one pod that nobody can read does not keep the others from running
            self._broke(pod, broken)
            return
        self._lives[life.uid] = life
        self._tasks[life.uid] = self._group.create_task(self._lived(life))

    async def _lived(self, life: Life) -> None:
        while True:
            try:
                await life.run()
                break
            except Exception as broken:  # whatever it is, the other pods go on
                self._broke(life.pod, broken)
            await self._shop.tempo.sleep(AGAIN_SECONDS)
            try:
                life = self._again(life, await self._shop.runtime.running())
            except Exception as broken:
                self._broke(life.pod, broken)
        if self._lives.get(life.uid) is life:
            del self._lives[life.uid], self._tasks[life.uid]
            if life.returned is not None:
                self._begin(life.returned)

    def _broke(self, pod: Document, broken: Exception) -> None:
        self._shop.log.error("the life of a pod broke; it begins anew", pod=key_of(pod), error=broken)
        note = f"the agent met a fault of its own and begins anew: {type(broken).__name__}: {broken}"
        self._shop.recorder.record(pod, "FailedSync", note, warning=True)

    def _again(self, life: Life, found: Iterable[Found]) -> Life:
        mine = [one for one in found if one.id.pod_uid == life.uid]
        new = Life(life.pod, self._shop, mine)
        if life.vanished:
            new.vanish()
            new.returned = life.returned
        self._lives[life.uid] = new
        return new

    async def _clear(self, gone: Iterable[str], found: Mapping[str, Sequence[Found]]) -> None:
        """Stop what runs of pods that are gone, then give back what nobody uses any more."""
        shop, left = self._shop, [one for uid in gone for one in found.get(uid, ())]
        await asyncio.gather(*(self._stopped(one) for one in left))
        assert self._group is not None
        self._group.create_task(shop.claims.run())
        for uid in gone:
            self._group.create_task(self._give_back(uid))
        for one in left:
            await shop.runtime.remove(one.id)

    async def _stopped(self, one: Found) -> None:
        """See that a container does not run: what it uses is given back after that, and not before."""
        while True:
            try:
                await self._shop.runtime.stop(one.id, 1.0)
                return
            except Exception as broken:
                self._shop.log.error("a container does not stop", container=one.id, error=broken)
            await self._shop.tempo.sleep(AGAIN_SECONDS)

    async def _give_back(self, uid: str) -> None:
        while await self._shop.claims.release(uid) is not None:
            await self._shop.claims.pause(uid)
        self._shop.log.info("cleared what was left of a pod that is gone", pod_uid=uid)

    # --- a pause ---

    async def pause(self) -> None:
        """Stop all containers so that the next agent starts them again; the pods stay as they are.

        To be called after `run` was cancelled.
        """
        running = [one for one in await self._shop.runtime.running() if one.exit is None]
        if not running:
            return
        PAUSED.write(self._paused, sorted({one.id.pod_uid for one in running}))
        await asyncio.gather(*(self._shop.runtime.stop(one.id, STOP_SECONDS) for one in running))
        for one in running:
            await self._shop.runtime.remove(one.id)

    def _resumed(self) -> frozenset[str]:
        try:
            read = PAUSED.read(self._paused)
        except (Damaged, Newer) as broken:
            self._shop.log.warning("which pods were stopped is not known", error=broken)
            return frozenset()
        return frozenset() if read is None else frozenset(msgspec.json.decode(read[1], type=list[str]))

    # --- numbers ---

    def running_pods(self) -> int:
        """Pods that have a container running."""
        return sum(
            any(isinstance(tale.state, Running) for tale in life.containers.tales)
            for life in self._lives.values()
        )

    def states(self) -> dict[str, int]:
        """How many containers are in which state."""
        counts = {"running": 0, "exited": 0, "created": 0}
        words = {Running: "running", Ended: "exited", Waiting: "created"}
        for life in self._lives.values():
            for tale in life.containers.tales:
                counts[words[type(tale.state)]] += 1
        return counts
