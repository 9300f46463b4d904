"""The scheduling queue: order, backoff, signals, and that no pod is forgotten."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dray.placement.rejections import Signal, Topic
from dray.scheduler.queue import QueueTiming
from dray.scheduler.queued_pod import QueuedPodState
from tests.unit.scheduler.queue_fixture import DEVICES, RESOURCES, QueueFixture, pod, recorded

CLAIM = Signal(Topic.CLAIM, "ns/x")
OTHER_CLAIM = Signal(Topic.CLAIM, "ns/y")
ANY_CLAIM = Signal(Topic.CLAIM)


def test_pods_come_by_priority_and_then_by_age():
    fixture = QueueFixture()
    for name, priority in (("a", None), ("b", 10), ("c", 0), ("d", 10), ("e", -5)):
        fixture.queue.add(pod(name, priority=priority))
        fixture.clock.advance(0.1)
    assert fixture.order() == ["b", "d", "a", "c", "e"]


def test_a_pod_that_was_taken_is_not_given_again():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    assert (entry.state, entry.attempts, fixture.queue.in_flight) == (QueuedPodState.TRYING, 1, 1)
    assert fixture.queue.pop_ready() is None


def test_a_pod_added_twice_is_there_once():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    fixture.queue.add(pod())
    assert fixture.places() == {"active": 1}
    assert fixture.order() == ["a"]
    fixture.queue.add(pod())
    assert fixture.places() == {}
    assert fixture.queue.in_flight == 1


def test_a_pod_that_has_a_node_has_run_or_goes_away_is_not_queued():
    fixture = QueueFixture()
    fixture.queue.add(pod("a", node_name="n"))
    running = pod("b")
    fixture.queue.add(replace(running, status=replace(running.status, phase="Succeeded")))
    leaving = replace(running.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    fixture.queue.add(replace(running, metadata=leaving))
    assert len(fixture.queue) == 0


@pytest.mark.parametrize("attempts", range(1, 8))
def test_backoff_doubles_from_one_second_to_ten(attempts):
    fixture = QueueFixture()
    fixture.queue.add(pod())
    for _ in range(attempts):
        fixture.clock.advance(20)
        assert fixture.queue.requeue(fixture.take(), frozenset(), retry=True) is QueuedPodState.BACKOFF
    expected = (1, 2, 4, 8, 10, 10, 10)[attempts - 1]
    fixture.clock.advance(expected - 0.01)
    assert fixture.queue.pop_ready() is None
    fixture.clock.advance(0.01)
    assert fixture.take().attempts == attempts + 1


def test_even_a_pod_that_failed_a_thousand_times_has_the_longest_backoff():
    assert QueueTiming().compute_backoff(5000) == 10
    with pytest.raises(ValueError, match="longer than 0 seconds"):
        QueueTiming(max_wait=0)


def test_a_pod_that_waits_is_woken_by_its_signals_and_by_no_others():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES, CLAIM)
    fixture.clock.advance(20)
    for signal in (RESOURCES, OTHER_CLAIM, ANY_CLAIM, Signal(Topic.CLASS, "ns/x")):
        fixture.queue.notify(signal)
        assert fixture.places() == {"unschedulable": 1}
    fixture.queue.notify(CLAIM)
    assert fixture.places() == {"active": 1}


def test_a_pod_that_waits_for_any_of_a_topic_is_woken_by_each():
    fixture = QueueFixture()
    fixture.waiting("a", ANY_CLAIM)
    fixture.clock.advance(20)
    fixture.queue.notify(OTHER_CLAIM)
    assert fixture.order() == ["a"]


def test_a_pod_woken_before_its_backoff_is_over_waits_that_long():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES)
    fixture.clock.advance(0.4)
    fixture.queue.notify(DEVICES)
    assert fixture.places() == {"backoff": 1}
    fixture.clock.advance(0.6)
    assert fixture.order() == ["a"]


def test_a_pod_that_waits_for_an_answer_is_tried_as_soon_as_it_comes():
    fixture = QueueFixture()
    fixture.waiting("a", CLAIM, prompt=True)
    fixture.queue.notify(CLAIM)
    entry = fixture.take()
    fixture.queue.requeue(entry, frozenset({CLAIM}))
    fixture.queue.notify(CLAIM)
    assert fixture.places() == {"backoff": 1}


def test_a_burst_of_signals_moves_a_pod_once():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES, CLAIM, RESOURCES)
    for signal in (DEVICES, CLAIM, RESOURCES, DEVICES):
        fixture.queue.notify(signal)
    assert fixture.moves == [
        ("a", "active", "PodAdd"),
        ("a", "unschedulable", "ScheduleAttemptFailure"),
        ("a", "backoff", "devices"),
    ]


def test_a_pod_that_waits_for_five_minutes_is_woken_anyway():
    fixture = QueueFixture()
    fixture.waiting("a")
    fixture.clock.advance(100)
    fixture.waiting("b", DEVICES)
    fixture.clock.advance(199.9)
    assert fixture.order() == []
    fixture.clock.advance(0.1)
    assert fixture.order() == ["a"]
    fixture.clock.advance(100)
    assert fixture.order() == ["b"]


@pytest.mark.parametrize(
    ("heard", "waits_for", "place"),
    [
        (DEVICES, {DEVICES}, QueuedPodState.BACKOFF),
        (CLAIM, {CLAIM, DEVICES}, QueuedPodState.BACKOFF),
        (CLAIM, {ANY_CLAIM}, QueuedPodState.BACKOFF),
        (CLAIM, {OTHER_CLAIM}, QueuedPodState.WAITING),
        (ANY_CLAIM, {CLAIM}, QueuedPodState.WAITING),
        (RESOURCES, {DEVICES}, QueuedPodState.WAITING),
        (RESOURCES, set(), QueuedPodState.WAITING),
    ],
)
def test_a_signal_that_comes_while_a_pod_is_tried_is_not_lost(heard, waits_for, place):
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    fixture.queue.notify(heard)
    assert fixture.queue.requeue(entry, frozenset(waits_for)) is place


def test_what_came_before_the_attempt_is_known_to_it():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    fixture.queue.notify(DEVICES)
    assert fixture.queue.requeue(fixture.take(), frozenset({DEVICES})) is QueuedPodState.WAITING


def test_a_pod_decided_on_an_older_snapshot_is_retried_for_signals_since_then():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    viewed = fixture.queue.sequence
    fixture.queue.notify(DEVICES)
    assert fixture.queue.requeue(fixture.take(), frozenset({DEVICES}), since=viewed) is QueuedPodState.BACKOFF


def test_a_pod_deleted_while_it_is_tried_does_not_come_back():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    fixture.queue.remove("uid-a")
    assert entry.state is QueuedPodState.GONE
    assert fixture.queue.requeue(entry, frozenset({DEVICES}), retry=True) is QueuedPodState.GONE
    fixture.queue.mark_bound("uid-a")
    fixture.queue.notify(DEVICES)
    fixture.clock.advance(1000)
    assert (fixture.order(), len(fixture.queue), fixture.queue.in_flight) == ([], 0, 0)


def test_a_pod_bound_by_somebody_else_while_it_is_tried_does_not_come_back():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    fixture.queue.update(pod(), pod(node_name="n"))
    assert fixture.queue.requeue(entry, frozenset({DEVICES})) is QueuedPodState.GONE
    assert len(fixture.queue) == 0


@pytest.mark.parametrize("parked", [False, True])
def test_a_pod_removed_anywhere_is_gone(parked):
    fixture = QueueFixture()
    fixture.queue.add(pod())
    if parked:
        fixture.queue.requeue(fixture.take(), frozenset({DEVICES, CLAIM}))
    fixture.queue.remove("uid-a")
    fixture.queue.remove("uid-a")
    fixture.queue.notify(DEVICES)
    fixture.clock.advance(1000)
    assert fixture.order() == []
    assert fixture.queue.get("uid-a") is None


def test_a_pod_that_is_done_is_not_tried_again_because_of_older_news():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    fixture.take()
    fixture.queue.mark_bound("uid-a")
    fixture.queue.update(pod(), recorded(pod(), gpu="x"))
    fixture.queue.add(pod())
    fixture.queue.update(pod(), pod(node_selector={"a": "b"}))
    assert (fixture.places(), fixture.order(), len(fixture.queue)) == ({}, [], 1)
    fixture.queue.update(pod(), pod(node_name="n"))
    assert len(fixture.queue) == 0


def test_a_pod_that_wants_something_else_is_tried_again():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES)
    fixture.clock.advance(20)
    fixture.queue.update(pod(), pod(node_selector={"disk": "ssd"}))
    entry = fixture.take()
    assert entry.pod.spec.node_selector == {"disk": "ssd"}


def test_a_pod_with_other_labels_is_tried_again():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES)
    fixture.queue.update(pod(), replace(pod(), metadata=replace(pod().metadata, labels={"a": "b"})))
    assert fixture.places() == {"backoff": 1}


def test_a_mere_status_wakes_nobody():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES, Signal(Topic.POD, "ns/a"))
    fixture.clock.advance(20)
    told = replace(pod(), status=replace(pod().status, nominated_node_name="n"))
    fixture.queue.update(pod(), replace(told, metadata=replace(told.metadata, resource_version="7")))
    assert fixture.places() == {"unschedulable": 1}
    assert fixture.entry("a").pod.status.nominated_node_name == "n"


def test_a_pod_that_changes_while_it_is_tried_is_tried_again():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    fixture.queue.update(pod(), pod(node_selector={"disk": "ssd"}))
    assert fixture.queue.requeue(entry, frozenset({DEVICES})) is QueuedPodState.BACKOFF
    fixture.clock.advance(1)
    assert fixture.queue.requeue(fixture.take(), frozenset({DEVICES})) is QueuedPodState.WAITING


def test_a_status_that_comes_while_a_pod_is_tried_does_not_send_it_round_in_circles():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    fixture.queue.update(pod(), replace(pod(), status=replace(pod().status, phase="Pending")))
    assert (
        fixture.queue.requeue(entry, frozenset({DEVICES, Signal(Topic.POD, "ns/a")}))
        is QueuedPodState.WAITING
    )


def test_an_update_of_an_active_pod_keeps_its_turn():
    fixture = QueueFixture()
    for name in "abc":
        fixture.queue.add(pod(name))
        fixture.clock.advance(1)
    fixture.queue.update(pod("a"), pod("a", node_selector={"a": "b"}))
    fixture.queue.update(pod("c"), pod("c", priority=1))
    assert fixture.places() == {"active": 3}
    assert fixture.order() == ["c", "a", "b"]


def test_an_update_of_a_pod_nobody_knew_adds_it():
    fixture = QueueFixture()
    fixture.queue.update(pod(), pod())
    assert fixture.order() == ["a"]


def test_who_refused_is_counted_until_the_next_attempt():
    fixture = QueueFixture()
    for name in "ab":
        fixture.queue.add(pod(name))
        entry = fixture.take()
        entry.refusing_plugins = frozenset(
            {"DynamicResources", "NodeResourcesFit"} if name == "a" else {"NodeResourcesFit"}
        )
        fixture.queue.requeue(entry, frozenset({DEVICES}))
    assert fixture.queue.count_unschedulable() == {
        ("DynamicResources", "dray"): 1,
        ("NodeResourcesFit", "dray"): 2,
    }
    fixture.queue.remove("uid-a")
    fixture.clock.advance(20)
    fixture.queue.notify(DEVICES)
    assert fixture.queue.count_unschedulable() == {("NodeResourcesFit", "dray"): 1}
    fixture.take()
    assert fixture.queue.count_unschedulable() == {}


def test_a_loop_that_begins_anew_finds_what_the_last_one_took():
    fixture = QueueFixture()
    fixture.waiting("waits", DEVICES)
    for name in "abc":
        fixture.queue.add(pod(name))
        fixture.take()
    fixture.queue.mark_bound("uid-c")
    fixture.queue.requeue_in_flight()
    assert fixture.places() == {"backoff": 2, "unschedulable": 1}
    assert fixture.queue.in_flight == 0
    fixture.clock.advance(1)
    assert fixture.order() == ["a", "b"]
