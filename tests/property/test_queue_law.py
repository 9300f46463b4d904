"""The scheduling queue against a slow model that scans all pods: none lost, none twice, no signal missed.

The machine adds, changes, gates, binds and deletes pods, pops and requeues them, sends random signals and
advances the clock. The model keeps a plain row for every pod and scans all of them each time. After every
step every pod has the same state in both, and a popped pod is one of those that are next.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from dray.api.core import Pod
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queued_pod import PENDING_STATES, QueuedPod, QueuedPodState
from tests.effort import effort
from tests.unit.scheduler.queue_fixture import pod, recorded

NAMES = [f"p{number}" for number in range(6)]
SIGNALS = [
    Signal(Topic.DEVICES),
    Signal(Topic.RESOURCES),
    Signal(Topic.CLAIM),
    Signal(Topic.CLAIM, "ns/a"),
    Signal(Topic.CLAIM, "ns/b"),
    *(Signal(Topic.POD, f"ns/{name}") for name in NAMES[:2]),
]
RELEASE = Signal(Topic.CLASS, "release")
LONGEST = 300.0

names = st.sampled_from(NAMES)
rarely = st.sampled_from([False] * 4 + [True])
signals = st.frozensets(st.sampled_from(SIGNALS), max_size=3)


def matches(waits: Signal, happened: Signal) -> bool:
    return waits.topic == happened.topic and waits.about in ("", happened.about)


@dataclass
class Row:
    """A pod in the model."""

    pod: Pod
    since: float
    place: QueuedPodState = QueuedPodState.ACTIVE
    attempts: int = 0
    waits: frozenset[Signal] = frozenset()
    until: float = 0.0
    prompt: bool = False
    heard: list[Signal] = field(default_factory=list)
    stirred: bool = False

    @property
    def turn(self) -> tuple[int, float]:
        return -(self.pod.spec.priority or 0), self.since


class Queues(RuleBasedStateMachine):
    """The queue and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.held_back: set[str] = set()
        self.queue = SchedulingQueue(TimeSource(self.clock), pre_enqueue=self.judge)
        self.rows: dict[str, Row] = {}
        self.tried: dict[str, QueuedPod] = {}

    def judge(self, asked: Pod) -> PluginRejection | None:
        if asked.metadata.name in self.held_back:
            return PluginRejection("P", "held back", frozenset({RELEASE}))
        return None

    # The model.

    def rise(self, row: Row) -> None:
        now, name = self.clock.monotonic(), row.pod.metadata.name
        gated = bool(row.pod.spec.scheduling_gates)
        if gated or name in self.held_back:
            row.place, row.until = QueuedPodState.GATED, now + LONGEST
            row.waits = frozenset() if gated else frozenset({RELEASE})
            return
        backoff = min(2.0 ** (row.attempts - 1), 10.0) if row.attempts else 0.0
        row.until = row.since + backoff
        row.place = QueuedPodState.ACTIVE if row.until <= now or row.prompt else QueuedPodState.BACKOFF

    def hear(self, happened: Signal) -> None:
        for row in self.rows.values():
            if row.place is QueuedPodState.TRYING:
                row.heard.append(happened)
            elif row.place in (QueuedPodState.WAITING, QueuedPodState.GATED) and any(
                matches(w, happened) for w in row.waits
            ):
                self.rise(row)

    def let_time_pass(self) -> None:
        now = self.clock.monotonic()
        for row in self.rows.values():
            if row.until <= now:
                if row.place is QueuedPodState.BACKOFF:
                    row.place = QueuedPodState.ACTIVE
                elif row.place in (QueuedPodState.WAITING, QueuedPodState.GATED):
                    self.rise(row)

    def change(self, name: str, new: Pod, *, another: bool) -> None:
        old = self.rows[name].pod
        self.queue.update(old, new)
        row = self.rows[name]
        row.pod = new
        if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
            self.hear(Signal(Topic.POD, f"ns/{name}"))
        if row.place is QueuedPodState.TRYING:
            row.stirred = row.stirred or another
        elif row.place is QueuedPodState.GATED or (
            another and row.place in (QueuedPodState.WAITING, QueuedPodState.ACTIVE)
        ):
            self.rise(row)

    # What happens.

    @initialize(priorities=st.lists(st.sampled_from([None, 5, -5]), min_size=2, max_size=4))
    def begin(self, priorities: list[int | None]) -> None:
        for name, priority in zip(NAMES, priorities, strict=False):
            self.add(name, priority, gated=False)

    @rule(name=names, priority=st.sampled_from([None, 0, 5, -5]), gated=rarely)
    def add(self, name: str, priority: int | None, gated: bool) -> None:
        if name in self.rows:
            self.queue.add(self.rows[name].pod)
            if self.rows[name].place is QueuedPodState.GATED:
                self.rise(self.rows[name])
            return
        new = pod(name, priority=priority, gates=("g",) if gated else ())
        self.queue.add(new)
        self.rows[name] = Row(new, self.clock.monotonic())
        self.rise(self.rows[name])

    @precondition(lambda self: self.rows)
    @rule(pick=st.data(), what=st.sampled_from(["spec", "status", "claims", "ungate"]))
    def update(self, pick: st.DataObject, what: str) -> None:
        name = pick.draw(st.sampled_from(sorted(self.rows)))
        old = self.rows[name].pod
        mark = str(len(old.spec.node_selector) + 1)
        if what == "spec":
            selector = {**old.spec.node_selector, mark: mark}
            new = replace(old, spec=replace(old.spec, node_selector=selector))
        elif what == "status":
            new = replace(
                old, status=replace(old.status, nominated_node_name=old.status.nominated_node_name + "n")
            )
        elif what == "claims":
            new = recorded(old, gpu=f"x{len(old.status.resource_claim_statuses)}")
        else:
            new = replace(old, spec=replace(old.spec, scheduling_gates=()))
        self.change(name, new, another=new.spec != old.spec)

    @precondition(lambda self: len(self.rows) > 2)
    @rule(pick=st.data(), bound=st.booleans())
    def leave(self, pick: st.DataObject, bound: bool) -> None:
        name = pick.draw(st.sampled_from(sorted(self.rows)))
        row = self.rows.pop(name)
        if bound:
            self.queue.update(row.pod, replace(row.pod, spec=replace(row.pod.spec, node_name="n")))
        else:
            self.queue.remove(row.pod.metadata.uid)

    @precondition(lambda self: len(self.held_back) < 2)
    @rule(name=names)
    def hold_back(self, name: str) -> None:
        self.held_back.add(name)

    @rule()
    def release(self) -> None:
        self.held_back.clear()
        self.wake(RELEASE)

    @rule(happened=st.sampled_from(SIGNALS))
    def hear_of(self, happened: Signal) -> None:
        self.wake(happened)

    @precondition(lambda self: any(row.waits for row in self.rows.values()))
    @rule(pick=st.data(), about=st.sampled_from(["", "ns/a", "ns/b"]))
    def help(self, pick: st.DataObject, about: str) -> None:
        """Wake what somebody waits, or lately waited, for."""
        waits = pick.draw(st.sampled_from(sorted(set().union(*(row.waits for row in self.rows.values())))))
        self.wake(Signal(waits.topic, waits.about or about))

    def wake(self, happened: Signal) -> None:
        self.queue.notify(happened)
        self.hear(happened)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 10.0, 299.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def take_one(self) -> None:
        self.take()

    def take(self) -> str | None:
        """The name of the pod that was taken."""
        self.let_time_pass()
        ready = [row.turn for row in self.rows.values() if row.place is QueuedPodState.ACTIVE]
        entry = self.queue.pop_ready()
        if entry is None:
            assert not ready
            return None
        row = self.rows[entry.pod.metadata.name]
        assert row.place is QueuedPodState.ACTIVE
        assert row.turn == min(ready)
        assert entry.pod is row.pod
        row.place, row.heard, row.stirred, row.prompt = QueuedPodState.TRYING, [], False, False
        row.attempts += 1
        assert entry.attempts == row.attempts
        self.tried[row.pod.metadata.name] = entry
        return row.pod.metadata.name

    @precondition(lambda self: self.tried)
    @rule(pick=st.data(), waits=signals, again=rarely, prompt=rarely)
    def park(self, pick: st.DataObject, waits: frozenset[Signal], again: bool, prompt: bool) -> None:
        self.put_back(pick.draw(st.sampled_from(sorted(self.tried))), waits, again=again, prompt=prompt)

    @rule(waits=signals, prompt=rarely, meanwhile=st.none() | st.sampled_from(SIGNALS))
    def try_in_vain(self, waits: frozenset[Signal], prompt: bool, meanwhile: Signal | None) -> None:
        name = self.take()
        if meanwhile is not None:
            self.wake(meanwhile)
        if name is not None:
            self.put_back(name, waits, again=False, prompt=prompt)

    def put_back(self, name: str, waits: frozenset[Signal], *, again: bool, prompt: bool) -> None:
        entry = self.tried.pop(name)
        place = self.queue.requeue(entry, waits, retry=again, skip_backoff=prompt)
        row = self.rows.get(name)
        if row is None or self.queue.get(entry.uid) is not entry:
            assert place is QueuedPodState.GONE
            return
        row.since, row.prompt = self.clock.monotonic(), prompt and not again
        if again or row.stirred or any(matches(w, heard) for w in waits for heard in row.heard):
            self.rise(row)
        else:
            row.place, row.waits, row.until = QueuedPodState.WAITING, waits, self.clock.monotonic() + LONGEST
        assert place is row.place

    @precondition(lambda self: self.tried)
    @rule(pick=st.data())
    def done(self, pick: st.DataObject) -> None:
        name = pick.draw(st.sampled_from(sorted(self.tried)))
        entry = self.tried.pop(name)
        if self.queue.get(entry.uid) is entry:
            self.queue.mark_bound(entry.uid)
            self.rows[name].place = QueuedPodState.DONE

    # What always holds.

    @invariant()
    def every_pod_is_where_it_should_be(self) -> None:
        found = {name: entry.state for name in NAMES if (entry := self.queue.get(f"uid-{name}")) is not None}
        assert found == {name: row.place for name, row in self.rows.items()}
        assert len(self.queue) == len(self.rows)

    @invariant()
    def every_pod_is_counted_once(self) -> None:
        counts = Counter(row.place for row in self.rows.values())
        assert self.queue.count_pending() == {place.value: counts[place] for place in PENDING_STATES}
        assert self.queue.in_flight == counts[QueuedPodState.TRYING]


TestQueues = Queues.TestCase
TestQueues.settings = effort(1.5, stateful_step_count=50)
