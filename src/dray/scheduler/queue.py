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
    queue.moment                   the number of the last signal, for `since`
    queue.is_stale(entry, since, signals)
                                   whether something happened to a pod that is being tried for long
    queue.lengths(), queue.unschedulable(), queue.in_flight, queue.get(uid), len(queue)

Theory of operation: every pod is one entry, and an entry is in one place (see `entry`). A new pod is judged
(PreEnqueue): what keeps it from being tried at all makes it gated, otherwise it is active. Active pods come
by priority, then by age. Whoever takes one must say how it went. When something could help, it waits for the
signals of its verdicts, and those wake it; when nothing has to change first (`again`), or one of the signals
came while it was tried, it is tried again soon. Soon means after a backoff that doubles with every attempt;
who is woken later than that is active at once, and so is one that was parked as `prompt` because it only
waited for an answer. Whoever sleeps for long is woken anyway: a signal that nobody foresaw costs time, and
nothing else.

Heaps are cleaned lazily: an entry that moves gets a new ticket, which makes its older rows void.

Rules for this file: nothing waits but `next`, and nothing here scans all pods when a signal comes. Nobody may
try a pod that was not taken, nor the same pod twice at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from dray.api.core import Pod
from dray.client.timing import Tempo
from dray.placement.rejections import Signal, Topic, Verdict
from dray.scheduler.queued_pod import PENDING, Entry, Place, has_other_claims, is_another, is_over
from dray.scheduler.signal_index import Heard, Sleepers

GATES = "SchedulingGates"
"""Who is said to refuse a pod with gates of its own, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How long pods are left alone, in seconds; the defaults are those of Kubernetes."""

    first_backoff: float = 1.0
    longest_backoff: float = 10.0
    longest_wait: float = 300.0

    def __post_init__(self) -> None:
        if min(self.first_backoff, self.longest_backoff, self.longest_wait) <= 0:
            raise ValueError(f"pods must be left alone for some time: {self}")

    def backoff(self, attempts: int) -> float:
        """How long a pod is left alone after so many attempts."""
        if not attempts:
            return 0.0
        # Beyond 32 doublings any wait is the longest; a float would not hold much more.
        return min(self.first_backoff * 2.0 ** min(attempts - 1, 32), self.longest_backoff)


Judge = Callable[[Pod], Verdict | None]
"""Why a pod may not be tried yet (PreEnqueue), and what could change that."""


def _welcome(_pod: Pod) -> Verdict | None:
    return None


def _unheard(_entry: Entry, _event: str) -> None:
    return None


class Queue:
    """Pods that want a node."""

    def __init__(
        self,
        tempo: Tempo,
        *,
        judge: Judge = _welcome,
        terms: Terms | None = None,
        told: Callable[[Entry, str], None] = _unheard,
    ) -> None:
        self._tempo, self._judge, self._told = tempo, judge, told
        self._terms = terms or Terms()
        self._entries: dict[str, Entry] = {}
        self._counts: Counter[Place] = Counter()
        self._active: list[tuple[int, float, int, Entry]] = []
        self._backoff: list[tuple[float, int, Entry]] = []
        self._asleep: OrderedDict[str, float] = OrderedDict()
        """Who waits or is gated, with the time when it is woken anyway; the first is the first to be."""
        self._sleepers, self._heard = Sleepers(), Heard()
        self._tickets = 0
        self._changed = asyncio.Event()

    # Pods come and go.

    def add(self, pod: Pod) -> None:
        """A pod wants a node."""
        known = self._entries.get(pod.metadata.uid)
        if known is not None:
            self.update(known.pod, pod)
        elif not is_over(pod):
            now = self._now()
            entry = self._entries[pod.metadata.uid] = Entry(pod, since=now, ready=now)
            self._rise(entry, "PodAdd")

    def update(self, _old: Pod, new: Pod) -> None:
        """A pod changed; what it was before is compared with what we knew, which may be older still."""
        entry = self._entries.get(new.metadata.uid)
        if entry is None:
            self.add(new)
        elif is_over(new):
            self.remove(new.metadata.uid)
        else:
            old, entry.pod = entry.pod, new
            self._reconsider(entry, old)

    def remove(self, uid: str) -> None:
        """A pod wants no node any more; whoever is trying it finds it `GONE`."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._move(entry, Place.GONE)

    # Pods are tried.

    async def next(self) -> Entry:
        """The next pod to try. When one is ready this does not let others run: that is up to the loop."""
        while (entry := self.take()) is None:
            await self._pause()
        return entry

    def take(self) -> Entry | None:
        """The next pod to try, if one is ready now."""
        self._rouse()
        while self._active:
            *_, ticket, entry = heappop(self._active)
            if ticket == entry.ticket:
                self._move(entry, Place.TRYING)
                entry.attempts += 1
                entry.begun = self._heard.moment
                entry.plugins, entry.prompt, entry.stirred = frozenset(), False, False
                return entry
        return None

    def done(self, uid: str) -> None:
        """A pod that was tried has its node.

        It is remembered until its node is seen on it: what is told about it until then is older than that.
        """
        entry = self._entries.get(uid)
        if entry is not None:
            self._move(entry, Place.DONE)

    def park(
        self,
        entry: Entry,
        signals: frozenset[Signal],
        *,
        again: bool = False,
        prompt: bool = False,
        since: int | None = None,
    ) -> Place:
        """A pod that was tried got no node; where it is now.

        `again`: nothing has to happen before the next attempt. `prompt`: when it is woken, it does not wait
        out its backoff. `since`: the moment of what it was judged by, unless that is when it was taken.
        """
        if entry.place is not Place.TRYING:
            return entry.place
        entry.since, entry.prompt = self._now(), prompt and not again
        moment = entry.begun if since is None else since
        if again or entry.stirred or self._heard.after(moment, signals):
            self._rise(entry, "ScheduleAttemptFailure")
        else:
            self._sleep(entry, Place.WAITING, signals)
            self._told(entry, "ScheduleAttemptFailure")
        return entry.place

    def recall(self) -> None:
        """Nobody tries a pod now: put back whoever was taken by a loop that ended too early to tell."""
        for entry in list(self._entries.values()):
            self.park(entry, frozenset(), again=True)

    def wake(self, signal: Signal) -> None:
        """Something happened: whoever waits for it is tried again."""
        self._heard.note(signal)
        for uid in self._sleepers.woken(signal):
            self._rise(self._entries[uid], signal.topic)

    # What others want to know.

    @property
    def moment(self) -> int:
        """The number of the last signal."""
        return self._heard.moment

    @property
    def in_flight(self) -> int:
        """How many pods are being tried."""
        return self._counts[Place.TRYING]

    def is_stale(self, entry: Entry, since: int, signals: frozenset[Signal]) -> bool:
        """Whether trying a pod with what was known at a moment is in vain: it is gone, or another, or one of
        some signals came since."""
        return entry.place is not Place.TRYING or entry.stirred or self._heard.after(since, signals)

    def lengths(self) -> dict[str, int]:
        """How many pods are pending, by place."""
        return {place.value: self._counts[place] for place in PENDING}

    def unschedulable(self) -> Counter[tuple[str, str]]:
        """How many pending pods were refused, by plugin and scheduler name. Looks at all pods."""
        return Counter(
            (plugin, entry.pod.spec.scheduler_name)
            for entry in self._entries.values()
            for plugin in entry.plugins
        )

    def get(self, uid: str) -> Entry | None:
        """A pod, if it is here."""
        return self._entries.get(uid)

    def __len__(self) -> int:
        return len(self._entries)

    # How entries move.

    def _reconsider(self, entry: Entry, old: Pod) -> None:
        """A pod is other than it was."""
        if has_other_claims(old, entry.pod):
            self.wake(Signal(Topic.POD, entry.name))
        another = is_another(old, entry.pod)
        if entry.place is Place.TRYING:
            entry.stirred = entry.stirred or another
        elif entry.place is Place.GATED or (another and entry.place in (Place.WAITING, Place.ACTIVE)):
            self._rise(entry, "PodUpdate")

    def _rise(self, entry: Entry, event: str) -> None:
        """A pod could be tried again: now, after its backoff, or once nothing forbids it."""
        verdict = self._why_not(entry.pod)
        if verdict is not None:
            entry.verdict, entry.plugins = verdict.reason, frozenset({verdict.plugin})
            self._sleep(entry, Place.GATED, verdict.wakes)
            self._told(entry, event)
            return
        now = self._now()
        if not entry.attempts:
            entry.ready, entry.verdict, entry.plugins = now, "", frozenset()
        due = entry.since + self._terms.backoff(entry.attempts)
        if due > now and not entry.prompt:
            self._move(entry, Place.BACKOFF)
            heappush(self._backoff, (due, entry.ticket, entry))
            self._changed.set()
        else:
            self._activate(entry)
        self._told(entry, event)

    def _why_not(self, pod: Pod) -> Verdict | None:
        gates = pod.spec.scheduling_gates
        if gates:
            names = ", ".join(gate.name for gate in gates)
            return Verdict(GATES, f"waiting for scheduling gates: {names}")
        return self._judge(pod)

    def _activate(self, entry: Entry) -> None:
        self._move(entry, Place.ACTIVE)
        heappush(self._active, (-(entry.pod.spec.priority or 0), entry.since, entry.ticket, entry))
        self._changed.set()

    def _sleep(self, entry: Entry, place: Place, signals: frozenset[Signal]) -> None:
        self._move(entry, place)
        entry.signals = signals
        self._sleepers.put(entry.uid, signals)
        self._asleep[entry.uid] = self._now() + self._terms.longest_wait
        self._changed.set()

    def _move(self, entry: Entry, place: Place) -> None:
        """Leave one place for another; whatever tied the entry to the old one is void."""
        if entry.place in (Place.WAITING, Place.GATED):
            self._sleepers.drop(entry.uid, entry.signals)
            del self._asleep[entry.uid]
            entry.signals = frozenset()
        self._counts[entry.place] -= 1
        self._counts[place] += 1
        self._tickets += 1
        entry.place, entry.ticket = place, self._tickets

    # Time passes.

    def _rouse(self) -> None:
        """Move on everybody whose time is up."""
        now = self._now()
        while (due := self._next_backoff()) is not None and due <= now:
            entry = heappop(self._backoff)[-1]
            self._activate(entry)
            self._told(entry, "BackoffComplete")
        while self._asleep:
            uid, due = next(iter(self._asleep.items()))
            if due > now:
                break
            self._rise(self._entries[uid], "UnschedulableTimeout")

    def _next_backoff(self) -> float | None:
        """When the first backoff ends."""
        while self._backoff:
            due, ticket, entry = self._backoff[0]
            if ticket == entry.ticket:
                return due
            heappop(self._backoff)
        return None

    async def _pause(self) -> None:
        """Wait until somebody may have become ready."""
        self._changed.clear()
        dues = [
            due for due in (self._next_backoff(), next(iter(self._asleep.values()), None)) if due is not None
        ]
        if not dues:
            await self._changed.wait()
            return
        waits = {
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self._tempo.sleep(max(min(dues) - self._now(), 0.0))),
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for wait in waits:
                wait.cancel()

    def _now(self) -> float:
        return self._tempo.clock.monotonic()
