"""Pods that may not be tried yet: gates of their own, and what PreEnqueue says."""

from __future__ import annotations

from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.scheduler.queue import SCHEDULING_GATES
from dray.scheduler.queued_pod import QueuedPodState
from tests.unit.scheduler.waiting import DEVICES, ROOM, Room, pod

CLAIM = Signal(Topic.CLAIM, "ns/x")


def test_a_pod_with_gates_waits_until_the_last_is_gone():
    room = Room()
    room.queue.add(pod(gates=("one", "two")))
    entry = room.entry("a")
    assert room.places() == {"gated": 1}
    assert entry.message == "waiting for scheduling gates: one, two"
    assert room.queue.count_unschedulable() == {(SCHEDULING_GATES, "dray"): 1}
    room.queue.update(pod(gates=("one", "two")), pod(gates=("two",)))
    assert room.places() == {"gated": 1}
    room.clock.advance(1000)
    assert room.order() == []
    room.queue.update(pod(gates=("two",)), pod())
    entry = room.take()
    assert (entry.message, entry.refusing_plugins, entry.eligible_since, entry.attempts) == (
        "",
        frozenset(),
        1000,
        1,
    )


def test_a_pod_that_may_not_be_tried_yet_is_judged_again_when_its_signals_come():
    room = Room()
    room.verdicts["a"] = PluginRejection("P", "no claim", frozenset({CLAIM}))
    room.queue.add(pod())
    room.queue.notify(DEVICES)
    assert room.places() == {"gated": 1}
    room.verdicts["a"] = PluginRejection("P", "no class", frozenset({ROOM}))
    room.queue.notify(CLAIM)
    assert room.places() == {"gated": 1}
    assert room.entry("a").message == "no class"
    del room.verdicts["a"]
    room.queue.notify(CLAIM)
    assert room.places() == {"gated": 1}
    room.queue.notify(ROOM)
    assert room.order() == ["a"]


def test_a_gated_pod_is_judged_again_after_five_minutes():
    room = Room()
    room.verdicts["a"] = PluginRejection("P", "no claim", frozenset({CLAIM}))
    room.queue.add(pod())
    room.clock.advance(300)
    assert room.order() == []
    del room.verdicts["a"]
    room.clock.advance(300)
    assert room.order() == ["a"]


def test_a_pod_that_lost_its_claim_while_it_was_tried_is_gated_and_then_left_alone():
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    room.verdicts["a"] = PluginRejection("P", "no claim", frozenset({CLAIM}))
    room.queue.notify(CLAIM)
    assert room.queue.requeue(entry, frozenset({CLAIM})) is QueuedPodState.GATED
    del room.verdicts["a"]
    room.queue.notify(CLAIM)
    assert room.places() == {"backoff": 1}
