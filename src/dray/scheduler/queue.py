"""The waiting room: pods that want a node, whose turn it is, and who sleeps until what.

    queue = Queue(tempo, judge=..., terms=Terms(), told=...)
                                   `judge(pod) -> Verdict | None` is PreEnqueue; `told(entry, event)` hears
                                   every move to a pending place, for metrics
    queue.add(pod)                 an informer saw it; a pod that is known already is an update
    queue.update(old, new)         what it wants changed: it is tried again; a mere status: it is not
    queue.remove(uid)              it is deleted or has a node
    entry = await queue.next()     the next to try, when there is one; `queue.take()` does not wait
    queue.done(uid)                it has its node
    queue.park(entry, signals, again=..., prompt=..., since=...) -> Place
                                   it was not placed; set `entry.verdict` and `entry.plugins` before
    queue.recall()                 a loop begins anew: whoever was being tried is put back
    queue.wake(signal)             something happened
    queue.moment                   the number of the last signal, for `queued_at`
    queue.is_stale(entry, since, signals)
                                   whether something happened to a pod that is being tried for long
    queue.lengths(), queue.unschedulable(), queue.in_flight, queue.get(uid), len(queue)

Theory of operation: every pod is one entry, and an entry is in one place (see `queued`). A new pod is judged
(PreEnqueue): what keeps it from being tried at all makes it gated, otherwise it is active. Active pods come
by priority, then by age. Whoever takes one must say how it went. When something could help, it waits for the
signals of its verdicts, and those wake it; when nothing has to change first (`retry`), or one of the signals
came while it was tried, it is tried again soon. Soon means after a backoff that doubles with every attempt;
who is woken later than that is active at once, and so is one that was parked as `skip_backoff` because it
only waited for an answer. Whoever sleeps for long is woken anyway: a signal that nobody foresaw costs time,
and nothing else.

Heaps are cleaned lazily: an entry that moves gets a new ticket, which makes its older rows void.

Rules for this file: nothing waits but `pop`, and nothing here scans all pods when a signal comes. Nobody may
try a pod that was not taken, nor the same pod twice at once.
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
"""Who is said to refuse a pod with gates of its own, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class QueueTiming:
    """How long pods are left alone, in seconds; the defaults are those of Kubernetes."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_wait: float = 300.0

    def __post_init__(self) -> None:
        if min(self.initial_backoff, self.max_backoff, self.max_wait) <= 0:
            raise ValueError(f"pods must be left alone for some time: {self}")

    def compute_backoff(self, attempts: int) -> float:
        """How long a pod is left alone after so many attempts."""
        if not attempts:
            return 0.0
        # Beyond 32 doublings any wait is the longest; a float would not hold much more.
        return min(self.initial_backoff * 2.0 ** min(attempts - 1, 32), self.max_backoff)


PreEnqueueCheck = Callable[[Pod], PluginRejection | None]
"""Why a pod may not be tried yet (PreEnqueue), and what could change that."""


def _allow_all(_pod: Pod) -> PluginRejection | None:
    return None


def _ignore_event(_entry: QueuedPod, _event: str) -> None:
    return None


class SchedulingQueue:
    """Pods that want a node."""

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
        self._entries: dict[str, QueuedPod] = {}
        self._counts: Counter[QueuedPodState] = Counter()
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._wait_deadlines: OrderedDict[str, float] = OrderedDict()
        """Who waits or is gated, with the time when it is woken anyway; the first is the first to be."""
        self._waiting_pods, self._signal_log = WaitingPodIndex(), SignalLog()
        self._heap_tokens = 0
        self._changed = asyncio.Event()

    # Pods come and go.

    def add(self, pod: Pod) -> None:
        """A pod wants a node."""
        known = self._entries.get(pod.metadata.uid)
        if known is not None:
            self.update(known.pod, pod)
        elif not needs_no_scheduling(pod):
            now = self._now()
            entry = self._entries[pod.metadata.uid] = QueuedPod(pod, queued_at=now, eligible_since=now)
            self._enqueue(entry, "PodAdd")

    def update(self, _old: Pod, new: Pod) -> None:
        """A pod changed; what it was before is compared with what we knew, which may be older still."""
        entry = self._entries.get(new.metadata.uid)
        if entry is None:
            self.add(new)
        elif needs_no_scheduling(new):
            self.remove(new.metadata.uid)
        else:
            old, entry.pod = entry.pod, new
            self._handle_pod_update(entry, old)

    def remove(self, uid: str) -> None:
        """A pod wants no node any more; whoever is trying it finds it `GONE`."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._move(entry, QueuedPodState.GONE)

    # Pods are tried.

    async def pop(self) -> QueuedPod:
        """The next pod to try. When one is ready this does not let others run: that is up to the loop."""
        while (entry := self.pop_ready()) is None:
            await self._wait_for_change()
        return entry

    def pop_ready(self) -> QueuedPod | None:
        """The next pod to try, if one is ready now."""
        self._promote_due()
        while self._active:
            *_, ticket, entry = heappop(self._active)
            if ticket == entry.heap_token:
                self._move(entry, QueuedPodState.TRYING)
                entry.attempts += 1
                entry.taken_sequence = self._signal_log.sequence
                entry.refusing_plugins, entry.skip_backoff, entry.changed_in_flight = (
                    frozenset(),
                    False,
                    False,
                )
                return entry
        return None

    def mark_bound(self, uid: str) -> None:
        """A pod that was tried has its node.

        It is remembered until its node is seen on it: what is told about it until then is older than that.
        """
        entry = self._entries.get(uid)
        if entry is not None:
            self._move(entry, QueuedPodState.DONE)

    def requeue(
        self,
        queued: QueuedPod,
        signals: frozenset[Signal],
        *,
        retry: bool = False,
        skip_backoff: bool = False,
        since: int | None = None,
    ) -> QueuedPodState:
        """A pod that was tried got no node; where it is now.

        `retry`: nothing has to happen before the next attempt. `skip_backoff`: when it is woken, it does not
        wait out its backoff. `queued_at`: the moment of what it was judged by, unless that is when it was
        taken.
        """
        if queued.state is not QueuedPodState.TRYING:
            return queued.state
        queued.queued_at, queued.skip_backoff = self._now(), skip_backoff and not retry
        moment = queued.taken_sequence if since is None else since
        if retry or queued.changed_in_flight or self._signal_log.has_since(moment, signals):
            self._enqueue(queued, "ScheduleAttemptFailure")
        else:
            self._wait_for_signals(queued, QueuedPodState.WAITING, signals)
            self._on_enqueued(queued, "ScheduleAttemptFailure")
        return queued.state

    def requeue_in_flight(self) -> None:
        """Nobody tries a pod now: put back whoever was taken by a loop that ended too early to tell."""
        for entry in list(self._entries.values()):
            self.requeue(entry, frozenset(), retry=True)

    def notify(self, signal: Signal) -> None:
        """Something happened: whoever waits for it is tried again."""
        self._signal_log.append(signal)
        for uid in self._waiting_pods.pop_waiting(signal):
            self._enqueue(self._entries[uid], signal.topic)

    # What others want to know.

    @property
    def sequence(self) -> int:
        """The number of the last signal."""
        return self._signal_log.sequence

    @property
    def in_flight(self) -> int:
        """How many pods are being tried."""
        return self._counts[QueuedPodState.TRYING]

    def is_stale(self, queued: QueuedPod, since: int, signals: frozenset[Signal]) -> bool:
        """Whether trying a pod with what was known at a moment is in vain: it is gone, or another, or one of
        some signals came since."""
        return (
            queued.state is not QueuedPodState.TRYING
            or queued.changed_in_flight
            or self._signal_log.has_since(since, signals)
        )

    def count_pending(self) -> dict[str, int]:
        """How many pods are pending, by place."""
        return {place.value: self._counts[place] for place in PENDING_STATES}

    def count_unschedulable(self) -> Counter[tuple[str, str]]:
        """How many pending pods were refused, by plugin and scheduler name. Looks at all pods."""
        return Counter(
            (plugin, entry.pod.spec.scheduler_name)
            for entry in self._entries.values()
            for plugin in entry.refusing_plugins
        )

    def get(self, uid: str) -> QueuedPod | None:
        """A pod, if it is here."""
        return self._entries.get(uid)

    def __len__(self) -> int:
        return len(self._entries)

    # How entries move.

    def _handle_pod_update(self, queued: QueuedPod, old: Pod) -> None:
        """A pod is other than it was."""
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
        """A pod could be tried again: now, after its backoff, or once nothing forbids it."""
        verdict = self._check_pre_enqueue(queued.pod)
        if verdict is not None:
            queued.message, queued.refusing_plugins = verdict.reason, frozenset({verdict.plugin})
            self._wait_for_signals(queued, QueuedPodState.GATED, verdict.wake_signals)
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
        """Leave one place for another; whatever tied the entry to the old one is void."""
        if queued.state in (QueuedPodState.WAITING, QueuedPodState.GATED):
            self._waiting_pods.remove(queued.uid, queued.signals)
            del self._wait_deadlines[queued.uid]
            queued.signals = frozenset()
        self._counts[queued.state] -= 1
        self._counts[state] += 1
        self._heap_tokens += 1
        queued.state, queued.heap_token = state, self._heap_tokens

    # Time passes.

    def _promote_due(self) -> None:
        """Move on everybody whose time is up."""
        now = self._now()
        while (due := self._peek_backoff_deadline()) is not None and due <= now:
            entry = heappop(self._backoff)[-1]
            self._activate(entry)
            self._on_enqueued(entry, "BackoffComplete")
        while self._wait_deadlines:
            uid, due = next(iter(self._wait_deadlines.items()))
            if due > now:
                break
            self._enqueue(self._entries[uid], "UnschedulableTimeout")

    def _peek_backoff_deadline(self) -> float | None:
        """When the first backoff ends."""
        while self._backoff:
            due, ticket, entry = self._backoff[0]
            if ticket == entry.heap_token:
                return due
            heappop(self._backoff)
        return None

    async def _wait_for_change(self) -> None:
        """Wait until somebody may have become ready."""
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
