"""The scheduling queue: pods that need a node, in the states active, backoff, unschedulable and gated.

    queue = SchedulingQueue(time_source, pre_enqueue=..., timing=QueueTiming(), on_enqueued=...)
                                   `on_enqueued(queued, event)` receives every move to a pending state
    queue.add(pod)                 the watch shows a pod; a known pod is an update
    queue.update(old, new)         a changed spec is tried again, a changed status is not
    queue.remove(uid)              the pod is deleted or has a node
    queued = await queue.pop()     the next pod to try; `queue.pop_ready()` does not wait
    queue.mark_bound(uid)          the pod has its node
    queue.requeue(queued, signals, retry=..., skip_backoff=..., since=...) -> QueuedPodState
                                   it was not placed; set `message` and `refusing_plugins` before
    queue.requeue_in_flight()      a loop starts anew: put back the pods that were being tried
    queue.notify(signal)           wake the pods that wait for a signal
    queue.sequence                 the number of the last signal, for `since`
    queue.is_stale(queued, since, signals)
                                   whether a decision of that moment no longer holds

Theory of operation: every pod is one `QueuedPod` in one state. PreEnqueue makes a new pod gated or active.
Active pods come by priority, then by age. A pod that was taken must be requeued or marked as bound. When a
change could help, it waits for the signals of its refusals, and those wake it; when nothing has to change
first (`retry`), or one of the signals came while it was tried, it is tried again after a backoff that doubles
with every attempt. A pod that is woken after its backoff is active at once, and so is one that was put back
with `skip_backoff` because it only waited for an answer. A pod that waits for very long is woken anyway: a
signal that no hint foresaw costs time, and nothing else.

Heaps are cleaned lazily: a pod that moves gets a new token, which makes its older heap entries void.

Rules for this file: only `pop` awaits, and no signal scans all pods. A pod must not be tried without being
taken, nor twice at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from dray.api.core import Pod
from dray.client.timing import TimeSource
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.scheduler.queued_pod import (
    PENDING_STATES,
    QueuedPod,
    QueuedPodState,
    has_claim_status_changes,
    has_scheduling_changes,
    needs_no_scheduling,
)
from dray.scheduler.signal_index import SignalLog, WaitingPodIndex
from dray.tasks import wait_for_first

SCHEDULING_GATES = "SchedulingGates"
"""The plugin that refuses pods with scheduling gates, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class QueueTiming:
    """Backoff and longest wait, in seconds; the defaults are those of Kubernetes."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_wait: float = 300.0

    def __post_init__(self) -> None:
        if min(self.initial_backoff, self.max_backoff, self.max_wait) <= 0:
            raise ValueError(f"backoff and wait must be longer than 0 seconds: {self}")

    def compute_backoff(self, attempts: int) -> float:
        """Return the backoff after so many attempts."""
        if not attempts:
            return 0.0
        # Beyond 32 doublings any backoff is the maximum; a float would not hold much more.
        return min(self.initial_backoff * 2.0 ** min(attempts - 1, 32), self.max_backoff)


PreEnqueueCheck = Callable[[Pod], PluginRejection | None]
"""Returns why a pod may not be tried yet (PreEnqueue), and which signals could change that."""


def _allow_all(_pod: Pod) -> PluginRejection | None:
    return None


def _ignore_event(_queued: QueuedPod, _event: str) -> None:
    return None


class SchedulingQueue:
    """Pods that need a node."""

    def __init__(
        self,
        time_source: TimeSource,
        *,
        pre_enqueue: PreEnqueueCheck = _allow_all,
        timing: QueueTiming | None = None,
        on_enqueued: Callable[[QueuedPod, str], None] = _ignore_event,
    ) -> None:
        self._time_source, self._pre_enqueue, self._on_enqueued = time_source, pre_enqueue, on_enqueued
        self._timing = timing or QueueTiming()
        self._pods: dict[str, QueuedPod] = {}
        self._counts: Counter[QueuedPodState] = Counter()
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._wait_deadlines: OrderedDict[str, float] = OrderedDict()
        """When waiting and gated pods are woken anyway; the first to be woken comes first."""
        self._waiting_pods, self._signal_log = WaitingPodIndex(), SignalLog()
        self._heap_tokens = 0
        self._changed = asyncio.Event()

    # --- adding and removing ---

    def add(self, pod: Pod) -> None:
        """Add a pod that needs a node."""
        known = self._pods.get(pod.metadata.uid)
        if known is not None:
            self.update(known.pod, pod)
        elif not needs_no_scheduling(pod):
            now = self._now()
            queued = self._pods[pod.metadata.uid] = QueuedPod(pod, queued_at=now, eligible_since=now)
            self._enqueue(queued, "PodAdd")

    def update(self, _old: Pod, new: Pod) -> None:
        """Update a pod. It is compared with the version the queue has, which may be older than `_old`."""
        queued = self._pods.get(new.metadata.uid)
        if queued is None:
            self.add(new)
        elif needs_no_scheduling(new):
            self.remove(new.metadata.uid)
        else:
            old, queued.pod = queued.pod, new
            self._handle_pod_update(queued, old)

    def remove(self, uid: str) -> None:
        """Remove a pod that needs no node any more; the task that tries it finds it `GONE`."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._move(queued, QueuedPodState.GONE)

    # --- trying ---

    async def pop(self) -> QueuedPod:
        """Take the next pod to try. When one is ready this does not yield to other tasks: that is up to the
        loop.
        """
        while (queued := self.pop_ready()) is None:
            await self._wait_for_change()
        return queued

    def pop_ready(self) -> QueuedPod | None:
        """Take the next pod to try, if one is ready now."""
        self._promote_due()
        while self._active:
            *_, token, queued = heappop(self._active)
            if token == queued.heap_token:
                self._move(queued, QueuedPodState.TRYING)
                queued.attempts += 1
                queued.taken_sequence = self._signal_log.sequence
                queued.refusing_plugins, queued.skip_backoff, queued.changed_in_flight = (
                    frozenset(),
                    False,
                    False,
                )
                return queued
        return None

    def mark_bound(self, uid: str) -> None:
        """Mark a pod that was tried as bound.

        It is kept until the watch shows its node: updates until then are older than the binding.
        """
        queued = self._pods.get(uid)
        if queued is not None:
            self._move(queued, QueuedPodState.DONE)

    def requeue(
        self,
        queued: QueuedPod,
        signals: frozenset[Signal],
        *,
        retry: bool = False,
        skip_backoff: bool = False,
        since: int | None = None,
    ) -> QueuedPodState:
        """Put back a pod that was tried and got no node; return its new state.

        `retry`: nothing has to happen before the next attempt. `skip_backoff`: when it is woken, it does not
        wait out its backoff. `since`: the number of the last signal when it was decided, unless that is when
        it was taken.
        """
        if queued.state is not QueuedPodState.TRYING:
            return queued.state
        queued.queued_at, queued.skip_backoff = self._now(), skip_backoff and not retry
        sequence = queued.taken_sequence if since is None else since
        if retry or queued.changed_in_flight or self._signal_log.has_since(sequence, signals):
            self._enqueue(queued, "ScheduleAttemptFailure")
        else:
            self._wait_for_signals(queued, QueuedPodState.WAITING, signals)
            self._on_enqueued(queued, "ScheduleAttemptFailure")
        return queued.state

    def requeue_in_flight(self) -> None:
        """Put back the pods that a loop took and did not finish, because it ended."""
        for queued in list(self._pods.values()):
            self.requeue(queued, frozenset(), retry=True)

    def notify(self, signal: Signal) -> None:
        """Record a signal and requeue the pods that wait for it."""
        self._signal_log.append(signal)
        for uid in self._waiting_pods.pop_waiting(signal):
            self._enqueue(self._pods[uid], signal.topic)

    # --- inspection ---

    @property
    def sequence(self) -> int:
        """The number of the last signal."""
        return self._signal_log.sequence

    @property
    def in_flight(self) -> int:
        """How many pods are being tried."""
        return self._counts[QueuedPodState.TRYING]

    def is_stale(self, queued: QueuedPod, since: int, signals: frozenset[Signal]) -> bool:
        """Whether a decision at `since` no longer holds: the pod is gone or changed, or one of the signals
        came.
        """
        return (
            queued.state is not QueuedPodState.TRYING
            or queued.changed_in_flight
            or self._signal_log.has_since(since, signals)
        )

    def count_pending(self) -> dict[str, int]:
        """Count the pending pods by state."""
        return {state.value: self._counts[state] for state in PENDING_STATES}

    def count_unschedulable(self) -> Counter[tuple[str, str]]:
        """Count the refused pending pods by plugin and scheduler name. Scans all pods."""
        return Counter(
            (plugin, queued.pod.spec.scheduler_name)
            for queued in self._pods.values()
            for plugin in queued.refusing_plugins
        )

    def get(self, uid: str) -> QueuedPod | None:
        """Return a pod, if it is in the queue."""
        return self._pods.get(uid)

    def __len__(self) -> int:
        return len(self._pods)

    # --- state changes ---

    def _handle_pod_update(self, queued: QueuedPod, old: Pod) -> None:
        """Requeue a changed pod where the change matters."""
        if has_claim_status_changes(old, queued.pod):
            self.notify(Signal(Topic.POD, queued.name))
        another = has_scheduling_changes(old, queued.pod)
        if queued.state is QueuedPodState.TRYING:
            queued.changed_in_flight = queued.changed_in_flight or another
        elif queued.state is QueuedPodState.GATED or (
            another and queued.state in (QueuedPodState.WAITING, QueuedPodState.ACTIVE)
        ):
            self._enqueue(queued, "PodUpdate")

    def _enqueue(self, queued: QueuedPod, event: str) -> None:
        """Move a pod that could be tried: to active, to backoff, or to gated."""
        rejection = self._check_pre_enqueue(queued.pod)
        if rejection is not None:
            queued.message, queued.refusing_plugins = rejection.reason, frozenset({rejection.plugin})
            self._wait_for_signals(queued, QueuedPodState.GATED, rejection.wake_signals)
            self._on_enqueued(queued, event)
            return
        now = self._now()
        if not queued.attempts:
            queued.eligible_since, queued.message, queued.refusing_plugins = now, "", frozenset()
        due = queued.queued_at + self._timing.compute_backoff(queued.attempts)
        if due > now and not queued.skip_backoff:
            self._move(queued, QueuedPodState.BACKOFF)
            heappush(self._backoff, (due, queued.heap_token, queued))
            self._changed.set()
        else:
            self._activate(queued)
        self._on_enqueued(queued, event)

    def _check_pre_enqueue(self, pod: Pod) -> PluginRejection | None:
        gates = pod.spec.scheduling_gates
        if gates:
            names = ", ".join(gate.name for gate in gates)
            return PluginRejection(SCHEDULING_GATES, f"waiting for scheduling gates: {names}")
        return self._pre_enqueue(pod)

    def _activate(self, queued: QueuedPod) -> None:
        self._move(queued, QueuedPodState.ACTIVE)
        heappush(
            self._active, (-(queued.pod.spec.priority or 0), queued.queued_at, queued.heap_token, queued)
        )
        self._changed.set()

    def _wait_for_signals(self, queued: QueuedPod, state: QueuedPodState, signals: frozenset[Signal]) -> None:
        self._move(queued, state)
        queued.signals = signals
        self._waiting_pods.add(queued.uid, signals)
        self._wait_deadlines[queued.uid] = self._now() + self._timing.max_wait
        self._changed.set()

    def _move(self, queued: QueuedPod, state: QueuedPodState) -> None:
        """Change the state of a pod; whatever tied it to the old state is void."""
        if queued.state in (QueuedPodState.WAITING, QueuedPodState.GATED):
            self._waiting_pods.remove(queued.uid, queued.signals)
            del self._wait_deadlines[queued.uid]
            queued.signals = frozenset()
        self._counts[queued.state] -= 1
        self._counts[state] += 1
        self._heap_tokens += 1
        queued.state, queued.heap_token = state, self._heap_tokens

    # --- time ---

    def _promote_due(self) -> None:
        """Move the pods whose backoff or wait has ended."""
        now = self._now()
        while (due := self._peek_backoff_deadline()) is not None and due <= now:
            queued = heappop(self._backoff)[-1]
            self._activate(queued)
            self._on_enqueued(queued, "BackoffComplete")
        while self._wait_deadlines:
            uid, due = next(iter(self._wait_deadlines.items()))
            if due > now:
                break
            self._enqueue(self._pods[uid], "UnschedulableTimeout")

    def _peek_backoff_deadline(self) -> float | None:
        """Return when the first backoff ends."""
        while self._backoff:
            due, token, queued = self._backoff[0]
            if token == queued.heap_token:
                return due
            heappop(self._backoff)
        return None

    async def _wait_for_change(self) -> None:
        """Wait until a pod may have become ready."""
        self._changed.clear()
        dues = [
            due
            for due in (self._peek_backoff_deadline(), next(iter(self._wait_deadlines.values()), None))
            if due is not None
        ]
        if not dues:
            await self._changed.wait()
            return
        seconds = max(min(dues) - self._now(), 0.0)
        await wait_for_first(self._changed.wait(), self._time_source.sleep(seconds))

    def _now(self) -> float:
        return self._time_source.clock.monotonic()
