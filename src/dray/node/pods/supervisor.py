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

from dray.client.object_refs import get_key, get_uid
from dray.durable import CorruptFileError, StateFile, UnsupportedVersionError, remove_file
from dray.node.claims.preparer import PodClaimPreparer
from dray.node.containers.runtime.base import FoundContainer
from dray.node.pods.pod_worker import PodWorker
from dray.node.pods.restart_policy import ContainerRunning, ContainerTerminated, ContainerWaiting
from dray.node.pods.worker_context import PodWorkerContext

Document = dict[str, Any]

PAUSED_FILE: Final = StateFile("dray node pause", 1)
STOP_SECONDS: Final = 10.0
"""The longest time for containers that are stopped because their agent goes."""
RETRY_SECONDS: Final = 5.0
"""After so long a life that broke is begun anew."""


class PodSupervisor:
    """The pods of one node."""

    def __init__(self, context: PodWorkerContext, root: Path) -> None:
        self._context = context
        self._paused_path = root / "paused"
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.started = asyncio.Event()
        """Set when all pods that were there at the start are lived."""

    @property
    def claims(self) -> PodClaimPreparer:
        """The claim office of the node."""
        return self._context.claims

    # --- what happens to pods ---

    def handle_add(self, pod: Document) -> None:
        """A pod is bound to this node, or has changed."""
        life = self._workers.get(get_uid(pod))
        if life is None:
            self._start_worker(pod)
        else:
            life.update_pod(pod)

    def handle_update(self, before: Document, pod: Document) -> None:
        """A pod has changed; under its name there may be another one now."""
        if get_uid(before) != get_uid(pod):
            self.handle_delete(before)
        self.handle_add(pod)

    def handle_delete(self, pod: Document) -> None:
        """A pod is gone from the server."""
        life = self._workers.get(get_uid(pod))
        if life is not None:
            life.mark_removed()

    def refresh_statuses(self) -> None:
        """The health of devices is different."""
        for life in self._workers.values():
            life.refresh_status()

    def find_worker(self, namespace: str, name: str, uid: str = "") -> PodWorker | None:
        """The life of a pod, the newest should there be two of its name."""
        found = [
            life
            for life in self._workers.values()
            if life.key == (namespace, name) and (not uid or life.uid == uid)
        ]
        return found[-1] if found else None

    # --- the course of the agent ---

    async def run(
        self, list_pods: Callable[[], Sequence[Document]], start_watching: Callable[[], None]
    ) -> None:
        """Take up what is there and live all pods, until cancelled; containers go on then.

        `start_watching` is called when `list_pods` have begun, and before anything else can happen to them.
        """
        by_pod: dict[str, list[FoundContainer]] = {}
        for one in await self._context.runtime.list_containers():
            by_pod.setdefault(one.id.pod_uid, []).append(one)
        resumed = self._read_paused()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                there = list_pods()
                known = {get_uid(pod) for pod in there}
                for pod in there:
                    self._start_worker(pod, by_pod.get(get_uid(pod), ()), resumed=get_uid(pod) in resumed)
                start_watching()
                group.create_task(
                    self._clean_up_removed({*by_pod, *self._context.claims.list_users()} - known, by_pod)
                )
                remove_file(self._paused_path)
                self._context.launch_builder.delete_orphaned_logs(there)
                self.started.set()
                await asyncio.Event().wait()
            finally:
                self._group = None

    def _start_worker(
        self, pod: Document, found: Sequence[FoundContainer] = (), *, resumed: bool = False
    ) -> None:
        assert self._group is not None, "pods are seen only while they are lived"
        try:
            life = PodWorker(pod, self._context, found, resumed=resumed)
        except Exception as broken:  # one pod that nobody can read does not keep the others from running
            self._report_crash(pod, broken)
            return
        self._workers[life.uid] = life
        self._tasks[life.uid] = self._group.create_task(self._supervise(life))

    async def _supervise(self, worker: PodWorker) -> None:
        while True:
            try:
                await worker.run()
                break
            except Exception as broken:  # whatever it is, the other pods go on
                self._report_crash(worker.pod, broken)
            await self._context.time_source.sleep(RETRY_SECONDS)
            try:
                worker = self._recreate_worker(worker, await self._context.runtime.list_containers())
            except Exception as broken:
                self._report_crash(worker.pod, broken)
        if self._workers.get(worker.uid) is worker:
            del self._workers[worker.uid], self._tasks[worker.uid]
            if worker.readded_pod is not None:
                self._start_worker(worker.readded_pod)

    def _report_crash(self, pod: Document, error: Exception) -> None:
        self._context.log.error("the life of a pod broke; it begins anew", pod=get_key(pod), error=error)
        note = f"the agent met a fault of its own and begins anew: {type(error).__name__}: {error}"
        self._context.recorder.record(pod, "FailedSync", note, warning=True)

    def _recreate_worker(self, worker: PodWorker, found: Iterable[FoundContainer]) -> PodWorker:
        mine = [one for one in found if one.id.pod_uid == worker.uid]
        new = PodWorker(worker.pod, self._context, mine)
        if worker.removed:
            new.mark_removed()
            new.readded_pod = worker.readded_pod
        self._workers[worker.uid] = new
        return new

    async def _clean_up_removed(
        self, removed: Iterable[str], found: Mapping[str, Sequence[FoundContainer]]
    ) -> None:
        """Stop what runs of pods that are gone, then give back what nobody uses any more."""
        shop, left = self._context, [one for uid in removed for one in found.get(uid, ())]
        await asyncio.gather(*(self._ensure_stopped(one) for one in left))
        assert self._group is not None
        self._group.create_task(shop.claims.run())
        for uid in removed:
            self._group.create_task(self._release_claims(uid))
        for one in left:
            await shop.runtime.remove(one.id)

    async def _ensure_stopped(self, container: FoundContainer) -> None:
        """See that a container does not run: what it uses is given back after that, and not before."""
        while True:
            try:
                await self._context.runtime.stop(container.id, 1.0)
                return
            except Exception as broken:
                self._context.log.error("a container does not stop", container=container.id, error=broken)
            await self._context.time_source.sleep(RETRY_SECONDS)

    async def _release_claims(self, uid: str) -> None:
        while await self._context.claims.release(uid) is not None:
            await self._context.claims.wait_for_retry(uid)
        self._context.log.info("cleared what was left of a pod that is gone", pod_uid=uid)

    # --- a pause ---

    async def stop_for_restart(self) -> None:
        """Stop all containers so that the next agent starts them again; the pods stay as they are.

        To be called after `run` was cancelled.
        """
        running = [one for one in await self._context.runtime.list_containers() if one.exit is None]
        if not running:
            return
        PAUSED_FILE.write(self._paused_path, sorted({one.id.pod_uid for one in running}))
        await asyncio.gather(*(self._context.runtime.stop(one.id, STOP_SECONDS) for one in running))
        for one in running:
            await self._context.runtime.remove(one.id)

    def _read_paused(self) -> frozenset[str]:
        try:
            read = PAUSED_FILE.read(self._paused_path)
        except (CorruptFileError, UnsupportedVersionError) as broken:
            self._context.log.warning("which pods were stopped is not known", error=broken)
            return frozenset()
        return frozenset() if read is None else frozenset(msgspec.json.decode(read[1], type=list[str]))

    # --- numbers ---

    def count_running_pods(self) -> int:
        """Pods that have a container running."""
        return sum(
            any(isinstance(tale.state, ContainerRunning) for tale in life.containers.tracked)
            for life in self._workers.values()
        )

    def count_container_states(self) -> dict[str, int]:
        """How many containers are in which state."""
        counts = {"running": 0, "exited": 0, "created": 0}
        words = {ContainerRunning: "running", ContainerTerminated: "exited", ContainerWaiting: "created"}
        for life in self._workers.values():
            for tale in life.containers.tracked:
                counts[words[type(tale.state)]] += 1
        return counts
