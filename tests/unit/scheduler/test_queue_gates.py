"""Gated pods: their own scheduling gates, and PreEnqueue."""

from __future__ import annotations

from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.scheduler.queue import SCHEDULING_GATES
from dray.scheduler.queued_pod import QueuedPodState
from tests.unit.scheduler.queue_fixture import DEVICES, RESOURCES, QueueFixture, pod

CLAIM = Signal(Topic.CLAIM, "ns/x")


def test_a_pod_with_gates_waits_until_the_last_is_gone():
    fixture = QueueFixture()
    fixture.queue.add(pod(gates=("one", "two")))
    entry = fixture.entry("a")
    assert fixture.places() == {"gated": 1}
    assert entry.message == "waiting for scheduling gates: one, two"
    assert fixture.queue.count_unschedulable() == {(SCHEDULING_GATES, "dray"): 1}
    fixture.queue.update(pod(gates=("one", "two")), pod(gates=("two",)))
    assert fixture.places() == {"gated": 1}
    fixture.clock.advance(1000)
    assert fixture.order() == []
    fixture.queue.update(pod(gates=("two",)), pod())
    entry = fixture.take()
    assert (entry.message, entry.refusing_plugins, entry.eligible_since, entry.attempts) == (
        "",
        frozenset(),
        1000,
        1,
    )


def test_a_pod_that_may_not_be_tried_yet_is_judged_again_when_its_signals_come():
    fixture = QueueFixture()
    fixture.verdicts["a"] = PluginRejection("P", "no claim", frozenset({CLAIM}))
    fixture.queue.add(pod())
    fixture.queue.notify(DEVICES)
    assert fixture.places() == {"gated": 1}
    fixture.verdicts["a"] = PluginRejection("P", "no class", frozenset({RESOURCES}))
    fixture.queue.notify(CLAIM)
    assert fixture.places() == {"gated": 1}
    assert fixture.entry("a").message == "no class"
    del fixture.verdicts["a"]
    fixture.queue.notify(CLAIM)
    assert fixture.places() == {"gated": 1}
    fixture.queue.notify(RESOURCES)
    assert fixture.order() == ["a"]


def test_a_gated_pod_is_judged_again_after_five_minutes():
    fixture = QueueFixture()
    fixture.verdicts["a"] = PluginRejection("P", "no claim", frozenset({CLAIM}))
    fixture.queue.add(pod())
    fixture.clock.advance(300)
    assert fixture.order() == []
    del fixture.verdicts["a"]
    fixture.clock.advance(300)
    assert fixture.order() == ["a"]


def test_a_pod_that_lost_its_claim_while_it_was_tried_is_gated_and_then_left_alone():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    fixture.verdicts["a"] = PluginRejection("P", "no claim", frozenset({CLAIM}))
    fixture.queue.notify(CLAIM)
    assert fixture.queue.requeue(entry, frozenset({CLAIM})) is QueuedPodState.GATED
    del fixture.verdicts["a"]
    fixture.queue.notify(CLAIM)
    assert fixture.places() == {"backoff": 1}
