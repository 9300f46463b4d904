"""The scheduler: takes the next pod, asks placement, promises what it got, and has it written.

Theory of operation: one pod at a time is decided, on a photograph that includes everything promised before;
writing goes on in the background, many at once. A placement that fails is taken back and the pod is tried
again. A pod without a node sleeps until something happens that could help, and is told why meanwhile. A pod
whose devices are still searched for steps aside, and is decided when the search has news (see `searching`).

Rules for this file: whatever is promised is let go in a `finally`, however a binding ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from dray.allocator.search.resumable import TimeLimit
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.claims.pod_claims import PodClaimLookup
from dray.client.client import Client
from dray.client.errors import ApiError
from dray.client.events import EventRecorder
from dray.client.leases import LeaderElector, LeadershipLostError
from dray.client.rest_client import CALL_ERRORS
from dray.placement.classic_negotiation import ReserveClassic, WaitForDrivers
from dray.placement.device_searches import DeviceSearches
from dray.placement.framework import Phase
from dray.placement.pending_pod import PLUGIN_NAME, PendingPod, resolve_pending_pod
from dray.placement.plugins.classic_resources import ClassicResources, decide_next_step, post_filter
from dray.placement.plugins.dynamic_resources import DynamicResources, find_unreachable_claim
from dray.placement.profile import build_profile
from dray.placement.rejections import PluginRejection
from dray.placement.resource_requests import compute_requests
from dray.placement.scheduling_cycle import Placement, PluginTimer, Unschedulable, place_pod
from dray.scheduler import classic_claims
from dray.scheduler import metrics as measures
from dray.scheduler.binder import Binder, DevicesNotReadyError, PodGoneOrBoundError, StalePlacementError
from dray.scheduler.cache import SchedulerCache
from dray.scheduler.informers import SchedulerInformers
from dray.scheduler.metrics import AttemptResult
from dray.scheduler.options import SchedulerOptions
from dray.scheduler.queue import SCHEDULING_GATES, SchedulingQueue
from dray.scheduler.queued_pod import QueuedPod, QueuedPodState
from dray.scheduler.queueing_hints import CAPACITY_FREED, DEVICES_CHANGED
from dray.scheduler.search_worker import DECISION_SECONDS, MAX_WAITING_PODS, SearchWorker
from dray.scheduler.status_reporter import Refusal, SchedulingStatusReporter

PLUGIN_TIMING_INTERVAL = 10
"""One cycle in so many is timed plugin by plugin."""
FIRST_UNCERTAIN_CODE = 500
"""An answer from here on tells that something went wrong, and not that nothing was written."""
MAX_PROMPT_ATTEMPTS = 20
"""Attempts after which a pod waits out its backoff even for the answers of drivers: they do not agree."""


class Scheduler:
    """Gives pods their nodes."""

    def __init__(self, client: Client, options: SchedulerOptions) -> None:
        self._elector: LeaderElector | None = None
        self._unguarded_client = client
        if options.leader_elect:
            client = client.guard_writes(self._is_leader)
        self._client, self._options = client, options
        self._clock = client.options.time_source.clock
        self._cache = SchedulerCache(options.admission, on_freed=lambda: self._queue.notify(DEVICES_CHANGED))
        self._binder = Binder(client, self._cache.claims, options.max_binding_wait)
        self.metrics = measures.SchedulerMetrics(options.placement.scheduler_name)
        self._queue = SchedulingQueue(
            client.options.time_source,
            pre_enqueue=self._check_pre_enqueue,
            timing=options.queue_timing,
            on_enqueued=self._on_enqueued,
        )
        limit = TimeLimit(self._clock.monotonic, options.search_seconds)
        searches = DeviceSearches(limit, DECISION_SECONDS)
        self._devices = DynamicResources(
            options.admission, options.new_share_id, searches, options.placement.device_normalizer
        )
        self._search_worker = SearchWorker(
            searches, self._clock.monotonic, lambda: self._queue.count_pending()[QueuedPodState.ACTIVE] > 0
        )
        self._profile = build_profile(options.placement, [self._devices, ClassicResources()])
        names = frozenset({options.placement.scheduler_name})
        self._informers = SchedulerInformers(client, self._cache, self._queue, self._binder, names)
        self._recorder = EventRecorder(client, options.placement.scheduler_name, options.identity)
        self._reporter = SchedulingStatusReporter(
            client, self._recorder, options.admission, self._informers.get_pod
        )
        self._reporter.compute_effort = lambda refused: self._devices.build_work_budget(
            refused.pending_pod, refused.snapshot
        )
        self._claim_lookup = PodClaimLookup(self._cache.claims.get, self._informers.get_classic_claim)
        self._slots = asyncio.Semaphore(options.max_in_flight)
        self._slot_released: set[str] = set()
        """Pods that wait for their devices to become ready, and keep nobody from being written meanwhile."""
        self._cycle = 0
        self.ready = asyncio.Event()
        """Set when everything was seen once; leadership may still be another's."""
        self._informers.on_pod_dropped = self._reporter.forget
        self._reporter.on_failure = self._log_report_failure
        self._register_metrics()
        self._informers.on_failure = lambda failed: options.log.warning(
            "waiting for the server", why=str(failed)
        )

    async def run(self) -> None:
        """Schedule, until cancelled; with election, whenever it is this one's turn."""
        choices = self._options
        async with asyncio.TaskGroup() as tasks:
            await self._informers.start(tasks, claims=choices.handle_claims)
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._reporter.run())
            self.ready.set()
            if not choices.leader_elect:
                await self._lead()
            while True:
                election = self._elector = LeaderElector(
                    self._unguarded_client,
                    choices.lease_name,
                    choices.lease_namespace,
                    choices.identity,
                    choices.lease_timing,
                )
                try:
                    await election.run(self._lead)
                except LeadershipLostError as lost:
                    choices.log.warning("another scheduler leads now", why=str(lost))

    def _is_leader(self) -> bool:
        return self._elector is not None and self._elector.is_leader

    def _register_metrics(self) -> None:
        numbers = self.metrics
        numbers.track_queue(self._queue)
        searches = self._devices.searches
        numbers.add_callback(
            measures.SEARCHES,
            lambda: [((ending,), count) for ending, count in searches.ending_counts.items()],
        )
        numbers.add_callback(measures.SEARCH_SECONDS, lambda: [((), searches.total_seconds)])
        numbers.add_callback(measures.UNFINISHED_SEARCHES, lambda: [((), searches.unfinished)])
        numbers.add_callback(measures.PODS_AWAITING_SEARCH, lambda: [((), self._search_worker.waiting)])
        numbers.add_callback(measures.NODE_GROUPS, lambda: [((), len(self._cache.last_snapshot.groups))])
        numbers.add_callback(measures.CACHE_ENTRIES, self._collect_cache_sizes)
        numbers.add_callback(measures.CONFLICTS, lambda: [((), self._binder.conflicts)])

    def _collect_cache_sizes(self) -> list[tuple[tuple[str, ...], float]]:
        sizes = {**self._cache.last_snapshot.inventory.count_cached(), "claims": self._devices.cached_queries}
        return [((name,), count) for name, count in sizes.items()]

    async def _lead(self) -> None:
        self._options.log.info("scheduling", pods=len(self._queue), nodes=len(self._informers.nodes))
        # A task that was cancelled before it began has put nothing back: neither its pod nor its room.
        self._queue.requeue_in_flight()
        self._slots, self._slot_released = asyncio.Semaphore(self._options.max_in_flight), set()
        async with asyncio.TaskGroup() as writing:
            writing.create_task(self._search_worker.run())
            while True:
                async with self._slots:  # leadership may end while nobody is there to be tried
                    entry = await self._queue.pop()
                await self._slots.acquire()  # there is room: nobody else takes it in between
                writing.create_task(self._schedule_one(entry))
                # Whoever brings news gets a turn between two pods.
                await asyncio.sleep(0)

    def _log_report_failure(self, queued: QueuedPod, error: Exception) -> None:
        self._options.log.error("a pod could not be told why it waits", pod=queued.name, why=error)

    async def _schedule_one(self, queued: QueuedPod) -> None:
        """One pod, from decision to writing; its mistakes are its own, and nobody else's."""
        began, result = self._clock.monotonic(), AttemptResult.ERROR
        try:
            if queued.state is not QueuedPodState.TRYING:
                return  # it was deleted, or bound by somebody, since it was taken
            result = await self._attempt(queued)
        except Exception as broken:
            self._options.log.error("a pod could not be tried", pod=queued.name, why=broken)
        finally:
            self._release_slot(queued)
            self._slot_released.discard(queued.uid)
            self.metrics.record_attempt(result, self._clock.monotonic() - began)
            if queued.state is QueuedPodState.TRYING:
                self._queue.requeue(queued, frozenset(), retry=True)

    def _release_slot(self, queued: QueuedPod) -> None:
        """Make room for another pod, once."""
        if queued.uid not in self._slot_released:
            self._slot_released.add(queued.uid)
            self._slots.release()

    def _check_pre_enqueue(self, pod: Pod) -> PluginRejection | None:
        """What keeps a pod from being tried at all (PreEnqueue)."""
        found = self._build_subject(pod) if pod.spec.resource_claims else None
        return found if isinstance(found, PluginRejection) else None

    def _build_subject(self, pod: Pod, attempts: int = 0) -> PendingPod | PluginRejection:
        """A pod with its claims, or what it waits for."""
        if not self._options.handle_claims:
            return PendingPod(pod, compute_requests(pod), attempts=attempts)
        return resolve_pending_pod(pod, self._claim_lookup, attempts=attempts)

    def _on_enqueued(self, queued: QueuedPod, event: str) -> None:
        """A pod came into a queue; one that may not be tried is told why."""
        self.metrics.count_incoming(queued, event)
        if queued.state is QueuedPodState.GATED and queued.refusing_plugins != {SCHEDULING_GATES}:
            self._reporter.enqueue(queued, PluginRejection(PLUGIN_NAME, queued.message))

    async def _attempt(self, queued: QueuedPod) -> AttemptResult:
        """Decide one pod, and do what was decided. Nothing is awaited before the promise is made."""
        found, moment = await self._decide(queued)
        if isinstance(found, PluginRejection):
            return self._requeue_unschedulable(queued, found, moment)
        subject = found.pending_pod
        if isinstance(found, Unschedulable):
            if found.unfinished:
                return self._requeue_unschedulable(queued, found, moment)
            return await self._handle_unschedulable(queued, found, moment)
        reserves: Sequence[ReserveClassic] = ()
        if subject.classic_claims:
            chosen = found.node_state.name
            step = decide_next_step(subject, (chosen, *found.other_nodes), chosen)
            if isinstance(step, WaitForDrivers):
                return await self._propose_to_drivers(queued, step, moment)
            reserves = step.actions
        return await self._bind(queued, found, reserves)

    async def _decide(self, queued: QueuedPod) -> tuple[Placement | Unschedulable | PluginRejection, int]:
        """What becomes of a pod, and the moment of what it was judged by; awaits searches that take long."""
        worked = 0.0
        while True:
            moment = self._queue.sequence
            subject = self._build_subject(queued.pod, queued.attempts - 1)
            if isinstance(subject, PluginRejection):
                return subject, moment
            before = self._devices.searches.total_seconds
            found = self._run_placement(replace(subject, search_seconds=worked) if worked else subject)
            worked += self._devices.searches.total_seconds - before
            undecided = isinstance(found, Unschedulable) and found.unfinished
            if not undecided or self._search_worker.waiting >= MAX_WAITING_PODS:
                self._search_worker.drop_unwanted_searches()
                return found, moment
            assert isinstance(found, Unschedulable)
            worked += await self._await_search(queued, found, moment)
            if queued.state is not QueuedPodState.TRYING:
                return found, moment  # it was deleted, or bound by somebody, meanwhile

    async def _await_search(self, queued: QueuedPod, undecided: Unschedulable, sequence: int) -> float:
        """Wait for the searches of a pod, which keeps nobody from being placed; the seconds they worked."""
        question = self._devices.get_query(undecided.pending_pod, undecided.snapshot)
        before = question.seconds_spent
        self._release_slot(queued)
        unfinished = next(each.rejection for each in undecided.rejected if each.rejection.unfinished)
        self._reporter.enqueue(queued, unfinished, in_flight=True)
        wakes = undecided.wake_signals
        await self._search_worker.wait(question, lambda: self._queue.is_stale(queued, sequence, wakes))
        return question.seconds_spent - before

    def _run_placement(self, subject: PendingPod) -> Placement | Unschedulable:
        self._cycle += 1
        began = self._clock.monotonic()
        stopwatch = (
            PluginTimer(self._clock.monotonic, self.metrics.record_plugin_time)
            if self._cycle % PLUGIN_TIMING_INTERVAL == 0
            else None
        )
        snapshot = self._cache.update_snapshot()
        found = place_pod(snapshot, subject, self._profile, rotation=self._cycle, timer=stopwatch)
        self.metrics.observe(measures.ALGORITHM_SECONDS, self._clock.monotonic() - began)
        return found

    # --- yes ---

    async def _bind(
        self, queued: QueuedPod, placement: Placement, reserves: Sequence[ReserveClassic]
    ) -> AttemptResult:
        """Make a placement true; take it back when that fails."""
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
            if not bound and self._cache.forget_pod(pod):
                self._queue.notify(CAPACITY_FREED)

    async def _write_placement(
        self, queued: QueuedPod, placement: Placement, reserves: Sequence[ReserveClassic]
    ) -> None:
        if reserves and not await classic_claims.reserve(self._client, reserves):
            raise StalePlacementError("a claim changed before it could be reserved")
        try:
            await self._run_pre_bind(queued, placement)
            await self._binder.bind_pod(placement)
        except (ApiError, StalePlacementError) as failed:
            if not isinstance(failed, PodGoneOrBoundError):
                await classic_claims.unreserve(self._client, reserves)
            raise

    async def _run_pre_bind(self, queued: QueuedPod, placement: Placement) -> None:
        """The claims have their devices, which are ready, and the node is still there."""
        if not placement.pending_pod.claims:
            return
        began = self._clock.monotonic()
        await self._binder.bind_claims(placement, on_waiting=lambda why: self._report_waiting(queued, why))
        self.metrics.record_plugin_time(PLUGIN_NAME, Phase.PRE_BIND, self._clock.monotonic() - began)
        if not self._cache.has_node(placement.node_state.name):
            await self._binder.unreserve_claims(placement)
            raise StalePlacementError(f"node {placement.node_state.name} is gone")

    def _report_waiting(self, queued: QueuedPod, why: str) -> None:
        """The devices of a pod are not ready: it waits, says so, and keeps nobody from being written."""
        self._release_slot(queued)
        self._reporter.enqueue(queued, PluginRejection(PLUGIN_NAME, why), in_flight=True)

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
        """A placement could not be written: the pod is tried again, and told why when that does not help."""
        self._options.log.info("binding failed", pod=queued.name, why=str(error))
        queued.message = str(error)
        self._queue.requeue(queued, frozenset(), retry=True)
        if queued.attempts > 1 or isinstance(error, DevicesNotReadyError):
            self._reporter.enqueue(queued, PluginRejection(PLUGIN_NAME, str(error)))
        return AttemptResult.ERROR

    # --- no ---

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
        """No node: the pod waits; a claim that keeps it from nodes, and is used by nobody else, goes back."""
        freed = self._find_obstructing_claim(unplaceable)
        give_back = post_filter(
            unplaceable.pending_pod, [refused.rejection for refused in unplaceable.rejected], self._cycle
        )
        if freed is None and not give_back:
            return self._requeue_unschedulable(queued, unplaceable, since)
        if await self._binder.is_gone_or_bound(queued.pod):
            return self._handle_binding_failure(
                queued, PodGoneOrBoundError("it is gone, or has a node; we have not seen it yet")
            )
        try:
            for action in give_back:
                await classic_claims.write_action(self._client, action)
            if freed is not None and not give_back:
                await self._binder.release_claim(freed, queued.pod)
        except (*CALL_ERRORS, StalePlacementError) as failed:
            return self._handle_binding_failure(queued, failed)
        self._reporter.enqueue(queued, unplaceable)
        again = freed is not None or unplaceable.retry
        prompt = bool(give_back) and queued.attempts < MAX_PROMPT_ATTEMPTS
        self._queue.requeue(queued, unplaceable.wake_signals, retry=again, skip_backoff=prompt, since=since)
        return AttemptResult.UNSCHEDULABLE

    def _find_obstructing_claim(self, unplaceable: Unschedulable) -> ResourceClaim | None:
        """A claim with devices elsewhere that only this pod would use: it may get others."""
        subject = unplaceable.pending_pod
        nodes = unplaceable.snapshot.nodes.values()
        for claim in subject.claims:
            alone = all(user.uid == subject.pod.metadata.uid for user in claim.status.reserved_for)
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
        """Tell the drivers of classic claims what is wanted; the pod waits for them."""
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
