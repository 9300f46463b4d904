"""The pod placer: decides one pod at a time on the current snapshot, and waits for device searches.

Theory of operation: a decision resolves the claims of a pod and runs the placement framework on a snapshot
that includes every assumed pod and pending allocation. When searches for devices are unfinished and no node
was found, the pod waits for the search worker and is decided anew; meanwhile other pods are placed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dray.allocator.search.resumable import TimeLimit
from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.claims.pod_claims import PodClaimLookup
from dray.clock import Clock
from dray.placement.device_searches import DeviceSearches
from dray.placement.pending_pod import PendingPod, resolve_pending_pod
from dray.placement.plugins.classic_resources import ClassicResources
from dray.placement.plugins.dynamic_resources import DynamicResources
from dray.placement.profile import build_profile
from dray.placement.rejections import PluginRejection
from dray.placement.resource_requests import compute_requests
from dray.placement.scheduling_cycle import Placement, PluginTimer, Unschedulable, place_pod
from dray.scheduler import metrics as scheduler_metrics
from dray.scheduler.cache import SchedulerCache
from dray.scheduler.options import SchedulerOptions
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queued_pod import QueuedPod, QueuedPodState
from dray.scheduler.search_worker import DECISION_SECONDS, MAX_WAITING_PODS, SearchWorker

PLUGIN_TIMING_INTERVAL = 10
"""One cycle in so many is timed plugin by plugin."""


class PodPlacer:
    """Decides where a pod goes, and runs the searches that this needs."""

    def __init__(
        self,
        options: SchedulerOptions,
        clock: Clock,
        cache: SchedulerCache,
        queue: SchedulingQueue,
        metrics: scheduler_metrics.SchedulerMetrics,
        get_classic_claim: Callable[[str, str], ClassicResourceClaim | None],
    ) -> None:
        self._handle_claims = options.handle_claims
        self._clock, self._cache, self._queue, self._metrics = clock, cache, queue, metrics
        limit = TimeLimit(clock.monotonic, options.search_seconds)
        self.searches = DeviceSearches(limit, DECISION_SECONDS)
        self.devices = DynamicResources(
            options.admission, options.new_share_id, self.searches, options.placement.device_normalizer
        )
        self.search_worker = SearchWorker(
            self.searches, clock.monotonic, lambda: queue.count_pending()[QueuedPodState.ACTIVE] > 0
        )
        self._profile = build_profile(options.placement, [self.devices, ClassicResources()])
        self.claim_lookup = PodClaimLookup(cache.claims.get, get_classic_claim)
        self.cycle = 0
        self._register_metrics()

    def _register_metrics(self) -> None:
        metrics, searches = self._metrics, self.searches
        metrics.add_callback(
            scheduler_metrics.SEARCHES,
            lambda: [((ending,), count) for ending, count in searches.ending_counts.items()],
        )
        metrics.add_callback(scheduler_metrics.SEARCH_SECONDS, lambda: [((), searches.total_seconds)])
        metrics.add_callback(scheduler_metrics.UNFINISHED_SEARCHES, lambda: [((), searches.unfinished)])
        metrics.add_callback(
            scheduler_metrics.PODS_AWAITING_SEARCH, lambda: [((), self.search_worker.waiting)]
        )
        metrics.add_callback(
            scheduler_metrics.NODE_GROUPS, lambda: [((), len(self._cache.last_snapshot.groups))]
        )
        metrics.add_callback(scheduler_metrics.CACHE_ENTRIES, self._collect_cache_sizes)

    def _collect_cache_sizes(self) -> list[tuple[tuple[str, ...], float]]:
        sizes = {**self._cache.last_snapshot.inventory.count_cached(), "claims": self.devices.cached_queries}
        return [((name,), count) for name, count in sizes.items()]

    def check_pre_enqueue(self, pod: Pod) -> PluginRejection | None:
        """Return what keeps a pod from being tried at all (PreEnqueue)."""
        found = self._resolve_pod(pod) if pod.spec.resource_claims else None
        return found if isinstance(found, PluginRejection) else None

    def _resolve_pod(self, pod: Pod, attempts: int = 0) -> PendingPod | PluginRejection:
        """Return a pod with its claims, or what it waits for."""
        if not self._handle_claims:
            return PendingPod(pod, compute_requests(pod), attempts=attempts)
        return resolve_pending_pod(pod, self.claim_lookup, attempts=attempts)

    async def decide(
        self, queued: QueuedPod, on_search: Callable[[QueuedPod, PluginRejection], None]
    ) -> tuple[Placement | Unschedulable | PluginRejection, int]:
        """Decide a pod; return the decision, and the number of the last signal it took into account.

        `on_search` receives the reason before the pod waits for searches, which may take long.
        """
        seconds_spent = 0.0
        while True:
            sequence = self._queue.sequence
            pending_pod = self._resolve_pod(queued.pod, queued.attempts - 1)
            if isinstance(pending_pod, PluginRejection):
                return pending_pod, sequence
            before = self.searches.total_seconds
            found = self.run_cycle(
                replace(pending_pod, search_seconds=seconds_spent) if seconds_spent else pending_pod
            )
            seconds_spent += self.searches.total_seconds - before
            undecided = isinstance(found, Unschedulable) and found.unfinished
            if not undecided or self.search_worker.waiting >= MAX_WAITING_PODS:
                self.search_worker.drop_unwanted_searches()
                return found, sequence
            assert isinstance(found, Unschedulable)
            on_search(queued, next(each.rejection for each in found.rejected if each.rejection.unfinished))
            seconds_spent += await self._await_search(queued, found, sequence)
            if queued.state is not QueuedPodState.TRYING:
                return found, sequence  # the pod was deleted, or bound by another writer, meanwhile

    async def _await_search(self, queued: QueuedPod, undecided: Unschedulable, sequence: int) -> float:
        """Wait for the searches of a pod; return the seconds they worked."""
        query = self.devices.get_query(undecided.pending_pod, undecided.snapshot)
        before = query.seconds_spent
        signals = undecided.wake_signals
        await self.search_worker.wait(query, lambda: self._queue.is_stale(queued, sequence, signals))
        return query.seconds_spent - before

    def run_cycle(self, pending_pod: PendingPod) -> Placement | Unschedulable:
        """Run one scheduling cycle on the current snapshot."""
        self.cycle += 1
        began = self._clock.monotonic()
        timer = (
            PluginTimer(self._clock.monotonic, self._metrics.record_plugin_time)
            if self.cycle % PLUGIN_TIMING_INTERVAL == 0
            else None
        )
        snapshot = self._cache.update_snapshot()
        found = place_pod(snapshot, pending_pod, self._profile, rotation=self.cycle, timer=timer)
        self._metrics.observe(scheduler_metrics.ALGORITHM_SECONDS, self._clock.monotonic() - began)
        return found
