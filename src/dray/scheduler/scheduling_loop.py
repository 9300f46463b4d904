"""The scheduler: takes pods from the queue, decides them, assumes the placement, and binds it in the
background.

Theory of operation: one pod at a time is decided, on a snapshot that includes every placement assumed before;
bindings are written concurrently. A placement that fails is forgotten and the pod is tried again. A pod that
gets no node waits for a signal that could help, and its status says why meanwhile. A pod whose device search
is unfinished gives up its slot and is decided when the search has a result (see `search_worker`).

Rules for this file: whatever is assumed is released in a `finally`, however a binding ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import ApiError
from dray.client.events import EventRecorder
from dray.client.leases import LeaderElector, LeadershipLostError
from dray.client.rest_client import CALL_ERRORS
from dray.placement.classic_negotiation import ReserveClassic, WaitForDrivers
from dray.placement.framework import Phase
from dray.placement.pending_pod import PLUGIN_NAME
from dray.placement.plugins.classic_resources import decide_next_step, post_filter
from dray.placement.plugins.dynamic_resources import find_unreachable_claim
from dray.placement.rejections import PluginRejection
from dray.placement.scheduling_cycle import Placement, Unschedulable
from dray.scheduler import metrics as scheduler_metrics
from dray.scheduler.binding import classic_claims
from dray.scheduler.binding.binder import Binder
from dray.scheduler.binding.duplicate_check import DuplicateCheck
from dray.scheduler.binding.errors import (
    DevicesNotReadyError,
    DuplicateAllocationError,
    PodGoneOrBoundError,
    StalePlacementError,
)
from dray.scheduler.cache import SchedulerCache
from dray.scheduler.informers import SchedulerInformers
from dray.scheduler.ledger_monitor import LedgerKind, LedgerMonitor
from dray.scheduler.metrics import AttemptResult
from dray.scheduler.options import SchedulerOptions
from dray.scheduler.pod_placer import PodPlacer
from dray.scheduler.queue import SCHEDULING_GATES, SchedulingQueue
from dray.scheduler.queued_pod import QueuedPod, QueuedPodState
from dray.scheduler.queueing_hints import CAPACITY_FREED, DEVICES_CHANGED
from dray.scheduler.status_reporter import Refusal, SchedulingStatusReporter

DUPLICATE_REASON = "DuplicateAllocation"
"""The reason of the event for a pod whose devices another claim has, too."""
FIRST_UNCERTAIN_CODE = 500
"""Responses with this code or a higher one do not say whether the write happened."""
MAX_PROMPT_ATTEMPTS = 20
"""Attempts after which a pod waits out its backoff even for answers of drivers that do not agree."""


class Scheduler:
    """Assigns pods to nodes."""

    def __init__(self, client: Client, options: SchedulerOptions) -> None:
        self._elector: LeaderElector | None = None
        self._unguarded_client = client
        if options.leader_elect:
            client = client.guard_writes(self._is_leader)
        self._client, self._options = client, options
        self._clock = client.options.time_source.clock
        name = options.placement.scheduler_name
        self._cache = SchedulerCache(options.admission, on_freed=lambda: self._queue.notify(DEVICES_CHANGED))
        self._binder = Binder(client, self._cache.claims, options.max_binding_wait)
        self._queue = SchedulingQueue(
            client.options.time_source,
            pre_enqueue=lambda pod: self._placer.check_pre_enqueue(pod),
            timing=options.queue_timing,
            on_enqueued=self._on_enqueued,
        )
        self.metrics = scheduler_metrics.SchedulerMetrics(name)
        self.metrics.track_queue(self._queue)
        self.ledger = LedgerMonitor(client, options.log)
        self._informers = SchedulerInformers(
            client, self._cache, self._queue, self._binder, frozenset({name})
        )
        self._placer = PodPlacer(
            options, self._clock, self._cache, self._queue, self.metrics, self._informers.get_classic_claim
        )
        self._recorder = EventRecorder(client, name, options.identity)
        self._reporter = SchedulingStatusReporter(
            client, self._recorder, options.admission, self._informers.get_pod
        )
        self._slots = asyncio.Semaphore(options.max_in_flight)
        self._slot_released: set[str] = set()
        """Pods that wait for searches or devices and have given up their slot."""
        self.ready = asyncio.Event()
        """Set when the informers are synced; another scheduler may still lead."""
        self._connect_callbacks()
        self._register_metrics()

    def _register_metrics(self) -> None:
        add, reservations = self.metrics.add_callback, self._binder.reservations
        add(scheduler_metrics.CONFLICTS, lambda: [((), reservations.conflicts)])
        add(scheduler_metrics.DUPLICATES, lambda: [((), reservations.duplicates)])
        add(scheduler_metrics.DUPLICATE_DEVICES, lambda: [((), self._cache.count_duplicates())])
        add(
            scheduler_metrics.LEDGER,
            lambda: [((kind.value,), float(kind is self.ledger.kind)) for kind in LedgerKind],
        )

    def _connect_callbacks(self) -> None:
        self._binder.transactions.has_node = self._cache.has_node
        reservations = self._binder.reservations
        reservations.duplicate_check = DuplicateCheck(
            self._client.options.time_source, self._informers.allocations, reservations.locks
        )
        reservations.needs_duplicate_check = lambda: not self.ledger.has_ledger
        devices, log = self._placer.devices, self._options.log
        self._cache.on_capacity_freed = lambda: self._queue.notify(CAPACITY_FREED)
        self._reporter.compute_effort = lambda refused: devices.build_work_budget(
            refused.pending_pod, refused.snapshot
        )
        self._reporter.on_failure = self._log_report_failure
        self._informers.on_pod_dropped = self._reporter.forget
        self._informers.on_failure = lambda error: log.warning("waiting for the server", why=str(error))

    async def run(self) -> None:
        """Schedule until cancelled; with leader election, only while this scheduler leads."""
        options = self._options
        async with asyncio.TaskGroup() as tasks:
            await self._informers.start(tasks, claims=options.handle_claims)
            if options.handle_claims:
                await self.ledger.check()
                tasks.create_task(self.ledger.run())
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._reporter.run())
            self.ready.set()
            if not options.leader_elect:
                await self._lead()
            while True:
                elector = self._elector = LeaderElector(
                    self._unguarded_client,
                    options.lease_name,
                    options.lease_namespace,
                    options.identity,
                    options.lease_timing,
                )
                try:
                    await elector.run(self._lead)
                except LeadershipLostError as lost:
                    options.log.warning("another scheduler leads now", why=str(lost))

    def _is_leader(self) -> bool:
        return self._elector is not None and self._elector.is_leader

    async def _lead(self) -> None:
        self._options.log.info("scheduling", pods=len(self._queue), nodes=len(self._informers.nodes))
        # A task that was cancelled before it started has put back neither its pod nor its slot.
        self._queue.requeue_in_flight()
        self._slots, self._slot_released = asyncio.Semaphore(self._options.max_in_flight), set()
        async with asyncio.TaskGroup() as writing:
            writing.create_task(self._placer.search_worker.run())
            while True:
                async with self._slots:  # leadership may end while no pod is ready
                    queued = await self._queue.pop()
                await self._slots.acquire()  # a slot is free: no other task takes it in between
                writing.create_task(self._schedule_one(queued))
                # Informers get a turn between two pods.
                await asyncio.sleep(0)

    def _log_report_failure(self, queued: QueuedPod, error: Exception) -> None:
        self._options.log.error("cannot report why a pod waits", pod=queued.name, why=error)

    async def _schedule_one(self, queued: QueuedPod) -> None:
        """Decide one pod and write the decision; an error concerns this pod only."""
        began, result = self._clock.monotonic(), AttemptResult.ERROR
        try:
            if queued.state is not QueuedPodState.TRYING:
                return  # it was deleted, or bound by another writer, since it was taken
            result = await self._attempt(queued)
        except Exception as error:
            self._options.log.error("cannot schedule a pod", pod=queued.name, why=error)
        finally:
            self._release_slot(queued)
            self._slot_released.discard(queued.uid)
            self.metrics.record_attempt(result, self._clock.monotonic() - began)
            if queued.state is QueuedPodState.TRYING:
                self._queue.requeue(queued, frozenset(), retry=True)

    def _release_slot(self, queued: QueuedPod) -> None:
        """Release the slot of a pod, once."""
        if queued.uid not in self._slot_released:
            self._slot_released.add(queued.uid)
            self._slots.release()

    def _on_enqueued(self, queued: QueuedPod, event: str) -> None:
        """Count a pod that came into a queue, and report why a gated one may not be tried."""
        self.metrics.count_incoming(queued, event)
        if queued.state is QueuedPodState.GATED and queued.refusing_plugins != {SCHEDULING_GATES}:
            self._reporter.enqueue(queued, PluginRejection(PLUGIN_NAME, queued.message))

    async def _attempt(self, queued: QueuedPod) -> AttemptResult:
        """Decide one pod and act on the decision. Nothing is awaited between decision and assumption."""
        found, sequence = await self._placer.decide(queued, self._report_searching)
        if isinstance(found, PluginRejection):
            return self._requeue_unschedulable(queued, found, sequence)
        pending_pod = found.pending_pod
        if isinstance(found, Unschedulable):
            if found.unfinished:
                return self._requeue_unschedulable(queued, found, sequence)
            return await self._handle_unschedulable(queued, found, sequence)
        reserves: Sequence[ReserveClassic] = ()
        if pending_pod.classic_claims:
            chosen = found.node_state.name
            step = decide_next_step(pending_pod, (chosen, *found.other_nodes), chosen)
            if isinstance(step, WaitForDrivers):
                return await self._propose_to_drivers(queued, step, sequence)
            reserves = step.actions
        return await self._bind(queued, found, reserves)

    # --- binding ---

    async def _bind(
        self, queued: QueuedPod, placement: Placement, reserves: Sequence[ReserveClassic]
    ) -> AttemptResult:
        """Assume a placement and write it; forget it when that fails."""
        pod, claims = queued.pod, self._cache.claims
        for claim, allocation in placement.allocations:
            claims.add_pending_allocation(claim, allocation, queued.uid)
        for claim in placement.pending_pod.claims:
            claims.add_pending_user(claim, queued.uid)
        self._cache.assume_pod(pod, placement.node_state.name, placement.pending_pod.requests)
        bound = False
        try:
            await self._write_placement(queued, placement, reserves)
            bound = True
            return self._report_bound(queued, placement)
        except CALL_ERRORS as failed:
            if not isinstance(failed, ApiError) or failed.code >= FIRST_UNCERTAIN_CODE:
                await self._binder.reread_claims(placement)
            return self._handle_binding_failure(queued, failed)
        except StalePlacementError as failed:
            return self._handle_binding_failure(queued, failed)
        finally:
            self._binder.forget_placement(placement)
            for claim in placement.pending_pod.claims:
                claims.remove_pending_user(claim, queued.uid)
            if not bound:
                self._cache.forget_pod(pod)

    async def _write_placement(
        self, queued: QueuedPod, placement: Placement, reserves: Sequence[ReserveClassic]
    ) -> None:
        if reserves and not await classic_claims.reserve(self._client, reserves):
            raise StalePlacementError("a claim changed before it could be reserved")
        try:
            if reserves or not await self._try_bind_together(placement):
                await self._run_pre_bind(queued, placement)
                await self._binder.bind_pod(placement)
        except (ApiError, StalePlacementError) as failed:
            if not isinstance(failed, PodGoneOrBoundError):
                await classic_claims.unreserve(self._client, reserves)
            raise

    async def _try_bind_together(self, placement: Placement) -> bool:
        """Bind the claims and the pod in one transaction; False when that is not possible."""
        began = self._clock.monotonic()
        bound = await self._binder.try_bind_together(placement)
        if bound:
            # The binding is a part of the same write.
            self.metrics.record_plugin_time(PLUGIN_NAME, Phase.PRE_BIND, self._clock.monotonic() - began)
        return bound

    async def _run_pre_bind(self, queued: QueuedPod, placement: Placement) -> None:
        """Bind the claims, wait for their devices, and check that the node is still there."""
        if not placement.pending_pod.claims:
            return
        began = self._clock.monotonic()
        node = placement.node_state.name
        await self._binder.bind_claims(
            placement, on_waiting=lambda why: self._report_waiting(queued, node, why)
        )
        self.metrics.record_plugin_time(PLUGIN_NAME, Phase.PRE_BIND, self._clock.monotonic() - began)
        if not self._cache.has_node(node):
            await self._binder.unreserve_claims(placement)
            raise StalePlacementError(f"node {node} is gone")

    def _report_searching(self, queued: QueuedPod, rejection: PluginRejection) -> None:
        """Release the slot of a pod that waits for its searches, and report it."""
        self._release_slot(queued)
        self._reporter.enqueue(queued, rejection, in_flight=True)

    def _report_waiting(self, queued: QueuedPod, node: str, why: str) -> None:
        """Release the slot of a pod whose devices on its node are not ready, and report it."""
        self._release_slot(queued)
        self._reporter.enqueue(queued, PluginRejection(PLUGIN_NAME, why), in_flight=True, node=node)

    def _report_bound(self, queued: QueuedPod, placement: Placement) -> AttemptResult:
        self.metrics.record_bound(queued, self._clock.monotonic())
        self._queue.mark_bound(queued.uid)
        self._reporter.forget(queued.uid)
        node = placement.node_state.name
        text = f"Successfully assigned {queued.name} to {node}"
        self._recorder.record(queued.pod, "Scheduled", text, action="Binding")
        self._options.log.debug("bound", pod=queued.name, node=node)
        return AttemptResult.SCHEDULED

    def _handle_binding_failure(self, queued: QueuedPod, error: Exception) -> AttemptResult:
        """Retry a pod whose placement could not be written, and report why when retries do not help."""
        self._options.log.info("binding failed", pod=queued.name, why=str(error))
        queued.message = str(error)
        self._queue.requeue(queued, frozenset(), retry=True)
        if isinstance(error, DuplicateAllocationError):
            self._recorder.record(queued.pod, DUPLICATE_REASON, str(error), warning=True, action="Scheduling")
        if queued.attempts > 1 or isinstance(error, DevicesNotReadyError):
            self._reporter.enqueue(queued, PluginRejection(PLUGIN_NAME, str(error)))
        return AttemptResult.ERROR

    # --- refusals ---

    def _requeue_unschedulable(self, queued: QueuedPod, refusal: Refusal, since: int) -> AttemptResult:
        again = refusal.retry
        if isinstance(refusal, PluginRejection):
            queued.refusing_plugins = frozenset({refusal.plugin})
        else:
            queued.refusing_plugins = frozenset(refused.rejection.plugin for refused in refusal.rejected)
        self._queue.requeue(queued, refusal.wake_signals, retry=again, since=since)
        self._reporter.enqueue(queued, refusal)
        return AttemptResult.UNSCHEDULABLE

    async def _handle_unschedulable(
        self, queued: QueuedPod, unplaceable: Unschedulable, since: int
    ) -> AttemptResult:
        """Requeue a pod without a node; release a claim that keeps it from nodes and has no other user."""
        freed = self._find_obstructing_claim(unplaceable)
        give_back = post_filter(
            unplaceable.pending_pod,
            [refused.rejection for refused in unplaceable.rejected],
            self._placer.cycle,
        )
        if freed is None and not give_back:
            return self._requeue_unschedulable(queued, unplaceable, since)
        if await self._binder.is_gone_or_bound(queued.pod):
            return self._handle_binding_failure(
                queued, PodGoneOrBoundError("the pod is gone or has a node; the watch does not show it yet")
            )
        try:
            for action in give_back:
                await classic_claims.write_action(self._client, action)
            if freed is not None and not give_back:
                await self._binder.reservations.release(freed, queued.pod)
        except (*CALL_ERRORS, StalePlacementError) as failed:
            return self._handle_binding_failure(queued, failed)
        self._reporter.enqueue(queued, unplaceable)
        again = freed is not None or unplaceable.retry
        prompt = bool(give_back) and queued.attempts < MAX_PROMPT_ATTEMPTS
        self._queue.requeue(queued, unplaceable.wake_signals, retry=again, skip_backoff=prompt, since=since)
        return AttemptResult.UNSCHEDULABLE

    def _find_obstructing_claim(self, unplaceable: Unschedulable) -> ResourceClaim | None:
        """Return a claim with devices elsewhere that only this pod would use: it may get others."""
        pending_pod = unplaceable.pending_pod
        nodes = unplaceable.snapshot.nodes.values()
        for claim in pending_pod.claims:
            alone = all(user.uid == pending_pod.pod.metadata.uid for user in claim.status.reserved_for)
            if (
                claim.status.allocation is None
                or not alone
                or self._cache.claims.has_pending_allocation(claim)
            ):
                continue
            if any(find_unreachable_claim((claim,), node) is not None for node in nodes) or not nodes:
                return claim
        return None

    async def _propose_to_drivers(self, queued: QueuedPod, step: WaitForDrivers, since: int) -> AttemptResult:
        """Write the proposals for the drivers of classic claims; the pod waits for their answers."""
        try:
            done = [await classic_claims.write_action(self._client, action) for action in step.actions]
        except CALL_ERRORS as failed:
            return self._handle_binding_failure(queued, failed)
        queued.refusing_plugins = frozenset({step.rejection.plugin})
        prompt = queued.attempts < MAX_PROMPT_ATTEMPTS
        self._queue.requeue(
            queued, step.rejection.wake_signals, retry=not all(done), skip_backoff=prompt, since=since
        )
        self._reporter.enqueue(queued, step.rejection)
        return AttemptResult.UNSCHEDULABLE
