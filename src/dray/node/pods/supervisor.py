"""The supervisor of pod workers: one worker per pod of the node, and cleanup after deleted pods.

Theory of operation: pods come from the informer, containers and claims of an earlier agent from the runtime
and the record. At the start the supervisor matches them: a container whose pod exists is passed to its
worker, one whose pod is deleted is stopped and its claims are released. A worker that fails with an
unexpected error is logged and replaced; other pods are not affected.

When the agent ends, containers continue. When it stops its containers instead, it records which pods it
stopped, so that the next agent restarts them whatever their restart policy.
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
"""The grace period of containers that are stopped together with the agent."""
RETRY_SECONDS: Final = 5.0
"""Delay before a failed worker is replaced."""


class PodSupervisor:
    """Supervises the pod workers of one node."""

    def __init__(self, context: PodWorkerContext, root: Path) -> None:
        self._context = context
        self._paused_path = root / "paused"
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.started = asyncio.Event()
        """Set when all pods that existed at the start have workers."""

    @property
    def claims(self) -> PodClaimPreparer:
        """The claim preparer of the node."""
        return self._context.claims

    # --- events of pods ---

    def handle_add(self, pod: Document) -> None:
        """Start a worker for a pod bound to this node, or update its worker."""
        worker = self._workers.get(get_uid(pod))
        if worker is None:
            self._start_worker(pod)
        else:
            worker.update_pod(pod)

    def handle_update(self, before: Document, pod: Document) -> None:
        """Update the worker of a pod; another pod may have its name now."""
        if get_uid(before) != get_uid(pod):
            self.handle_delete(before)
        self.handle_add(pod)

    def handle_delete(self, pod: Document) -> None:
        """Let the worker of a deleted pod end."""
        worker = self._workers.get(get_uid(pod))
        if worker is not None:
            worker.mark_removed()

    def refresh_statuses(self) -> None:
        """Write all statuses again after a change in the health of devices."""
        for worker in self._workers.values():
            worker.refresh_status()

    def find_worker(self, namespace: str, name: str, uid: str = "") -> PodWorker | None:
        """Find the worker of a pod; the newest if two pods have its name."""
        found = [
            worker
            for worker in self._workers.values()
            if worker.key == (namespace, name) and (not uid or worker.uid == uid)
        ]
        return found[-1] if found else None

    # --- workers ---

    async def run(
        self, list_pods: Callable[[], Sequence[Document]], start_watching: Callable[[], None]
    ) -> None:
        """Recover existing pods and run all workers until cancelled; containers continue then.

        `start_watching` is called when the pods of `list_pods` have workers, before any event of theirs.
        """
        by_pod: dict[str, list[FoundContainer]] = {}
        for one in await self._context.runtime.list_containers():
            by_pod.setdefault(one.id.pod_uid, []).append(one)
        resumed = self._read_paused()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                existing = list_pods()
                known = {get_uid(pod) for pod in existing}
                for pod in existing:
                    self._start_worker(pod, by_pod.get(get_uid(pod), ()), resumed=get_uid(pod) in resumed)
                start_watching()
                group.create_task(
                    self._clean_up_removed({*by_pod, *self._context.claims.list_users()} - known, by_pod)
                )
                remove_file(self._paused_path)
                self._context.launch_builder.delete_orphaned_logs(existing)
                self.started.set()
                await asyncio.Event().wait()
            finally:
                self._group = None

    def _start_worker(
        self, pod: Document, found: Sequence[FoundContainer] = (), *, resumed: bool = False
    ) -> None:
        assert self._group is not None, "pods are handled only while `run` runs"
        try:
            worker = PodWorker(pod, self._context, found, resumed=resumed)
        except Exception as error:  # an unreadable pod must not keep the others from running
            self._report_crash(pod, error)
            return
        self._workers[worker.uid] = worker
        self._tasks[worker.uid] = self._group.create_task(self._supervise(worker))

    async def _supervise(self, worker: PodWorker) -> None:
        while True:
            try:
                await worker.run()
                break
            except Exception as error:  # whatever it is, the other pods continue
                self._report_crash(worker.pod, error)
            await self._context.time_source.sleep(RETRY_SECONDS)
            try:
                worker = self._recreate_worker(worker, await self._context.runtime.list_containers())
            except Exception as error:
                self._report_crash(worker.pod, error)
        if self._workers.get(worker.uid) is worker:
            del self._workers[worker.uid], self._tasks[worker.uid]
            if worker.readded_pod is not None:
                self._start_worker(worker.readded_pod)

    def _report_crash(self, pod: Document, error: Exception) -> None:
        self._context.log.error("a pod worker failed and is restarted", pod=get_key(pod), error=error)
        note = f"the worker of this pod failed and is restarted: {type(error).__name__}: {error}"
        self._context.recorder.record(pod, "FailedSync", note, warning=True)

    def _recreate_worker(self, worker: PodWorker, found: Iterable[FoundContainer]) -> PodWorker:
        own = [one for one in found if one.id.pod_uid == worker.uid]
        new = PodWorker(worker.pod, self._context, own)
        if worker.removed:
            new.mark_removed()
            new.readded_pod = worker.readded_pod
        self._workers[worker.uid] = new
        return new

    async def _clean_up_removed(
        self, removed: Iterable[str], found: Mapping[str, Sequence[FoundContainer]]
    ) -> None:
        """Stop the containers of deleted pods, then release their claims."""
        context, orphans = self._context, [one for uid in removed for one in found.get(uid, ())]
        await asyncio.gather(*(self._ensure_stopped(one) for one in orphans))
        assert self._group is not None
        self._group.create_task(context.claims.run())
        for uid in removed:
            self._group.create_task(self._release_claims(uid))
        for one in orphans:
            await context.runtime.remove(one.id)

    async def _ensure_stopped(self, container: FoundContainer) -> None:
        """Stop a container, retrying: its claims are released after that, and not before."""
        while True:
            try:
                await self._context.runtime.stop(container.id, 1.0)
                return
            except Exception as error:
                self._context.log.error("a container does not stop", container=container.id, error=error)
            await self._context.time_source.sleep(RETRY_SECONDS)

    async def _release_claims(self, uid: str) -> None:
        while await self._context.claims.release(uid) is not None:
            await self._context.claims.wait_for_retry(uid)
        self._context.log.info("released the claims of a deleted pod", pod_uid=uid)

    # --- restart of the agent ---

    async def stop_for_restart(self) -> None:
        """Stop all containers so that the next agent starts them again; the pods stay unchanged.

        Call it after `run` was cancelled.
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
        except (CorruptFileError, UnsupportedVersionError) as error:
            self._context.log.warning("the list of stopped pods cannot be read", error=error)
            return frozenset()
        return frozenset() if read is None else frozenset(msgspec.json.decode(read[1], type=list[str]))

    # --- metrics ---

    def count_running_pods(self) -> int:
        """Count the pods with a running container."""
        return sum(
            any(isinstance(tracked.state, ContainerRunning) for tracked in worker.containers.tracked)
            for worker in self._workers.values()
        )

    def count_container_states(self) -> dict[str, int]:
        """Count the containers in each state."""
        counts = {"running": 0, "exited": 0, "created": 0}
        labels = {ContainerRunning: "running", ContainerTerminated: "exited", ContainerWaiting: "created"}
        for worker in self._workers.values():
            for tracked in worker.containers.tracked:
                counts[labels[type(tracked.state)]] += 1
        return counts
