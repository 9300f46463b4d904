"""The waiting room: whose turn it is, who is left alone, who sleeps, and that nobody is forgotten."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dray.placement.rejections import Signal, Topic
from dray.scheduler.queue import QueueTiming
from dray.scheduler.queued_pod import QueuedPodState
from tests.unit.scheduler.waiting import DEVICES, ROOM, Room, pod, recorded

CLAIM = Signal(Topic.CLAIM, "ns/x")
OTHER_CLAIM = Signal(Topic.CLAIM, "ns/y")
ANY_CLAIM = Signal(Topic.CLAIM)


def test_pods_come_by_priority_and_then_by_age():
    room = Room()
    for name, priority in (("a", None), ("b", 10), ("c", 0), ("d", 10), ("e", -5)):
        room.queue.add(pod(name, priority=priority))
        room.clock.advance(0.1)
    assert room.order() == ["b", "d", "a", "c", "e"]


def test_a_pod_that_was_taken_is_not_given_again():
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    assert (entry.state, entry.attempts, room.queue.in_flight) == (QueuedPodState.TRYING, 1, 1)
    assert room.queue.pop_ready() is None


def test_a_pod_added_twice_is_there_once():
    room = Room()
    room.queue.add(pod())
    room.queue.add(pod())
    assert room.places() == {"active": 1}
    assert room.order() == ["a"]
    room.queue.add(pod())
    assert room.places() == {}
    assert room.queue.in_flight == 1


def test_a_pod_that_has_a_node_has_run_or_goes_away_is_not_queued():
    room = Room()
    room.queue.add(pod("a", node_name="n"))
    running = pod("b")
    room.queue.add(replace(running, status=replace(running.status, phase="Succeeded")))
    leaving = replace(running.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    room.queue.add(replace(running, metadata=leaving))
    assert len(room.queue) == 0


@pytest.mark.parametrize("attempts", range(1, 8))
def test_backoff_doubles_from_one_second_to_ten(attempts):
    room = Room()
    room.queue.add(pod())
    for _ in range(attempts):
        room.clock.advance(20)
        assert room.queue.requeue(room.take(), frozenset(), retry=True) is QueuedPodState.BACKOFF
    expected = (1, 2, 4, 8, 10, 10, 10)[attempts - 1]
    room.clock.advance(expected - 0.01)
    assert room.queue.pop_ready() is None
    room.clock.advance(0.01)
    assert room.take().attempts == attempts + 1


def test_even_a_pod_that_failed_a_thousand_times_has_the_longest_backoff():
    assert QueueTiming().compute_backoff(5000) == 10
    with pytest.raises(ValueError, match="longer than 0 seconds"):
        QueueTiming(max_wait=0)


def test_a_pod_that_waits_is_woken_by_its_signals_and_by_no_others():
    room = Room()
    room.waiting("a", DEVICES, CLAIM)
    room.clock.advance(20)
    for signal in (ROOM, OTHER_CLAIM, ANY_CLAIM, Signal(Topic.CLASS, "ns/x")):
        room.queue.notify(signal)
        assert room.places() == {"unschedulable": 1}
    room.queue.notify(CLAIM)
    assert room.places() == {"active": 1}


def test_a_pod_that_waits_for_any_of_a_topic_is_woken_by_each():
    room = Room()
    room.waiting("a", ANY_CLAIM)
    room.clock.advance(20)
    room.queue.notify(OTHER_CLAIM)
    assert room.order() == ["a"]


def test_a_pod_woken_before_its_backoff_is_over_waits_that_long():
    room = Room()
    room.waiting("a", DEVICES)
    room.clock.advance(0.4)
    room.queue.notify(DEVICES)
    assert room.places() == {"backoff": 1}
    room.clock.advance(0.6)
    assert room.order() == ["a"]


def test_a_pod_that_waits_for_an_answer_is_tried_as_soon_as_it_comes():
    room = Room()
    room.waiting("a", CLAIM, prompt=True)
    room.queue.notify(CLAIM)
    entry = room.take()
    room.queue.requeue(entry, frozenset({CLAIM}))
    room.queue.notify(CLAIM)
    assert room.places() == {"backoff": 1}


def test_a_burst_of_signals_moves_a_pod_once():
    room = Room()
    room.waiting("a", DEVICES, CLAIM, ROOM)
    for signal in (DEVICES, CLAIM, ROOM, DEVICES):
        room.queue.notify(signal)
    assert room.moves == [
        ("a", "active", "PodAdd"),
        ("a", "unschedulable", "ScheduleAttemptFailure"),
        ("a", "backoff", "devices"),
    ]


def test_whoever_sleeps_for_five_minutes_is_woken_anyway():
    room = Room()
    room.waiting("a")
    room.clock.advance(100)
    room.waiting("b", DEVICES)
    room.clock.advance(199.9)
    assert room.order() == []
    room.clock.advance(0.1)
    assert room.order() == ["a"]
    room.clock.advance(100)
    assert room.order() == ["b"]


@pytest.mark.parametrize(
    ("heard", "waits_for", "place"),
    [
        (DEVICES, {DEVICES}, QueuedPodState.BACKOFF),
        (CLAIM, {CLAIM, DEVICES}, QueuedPodState.BACKOFF),
        (CLAIM, {ANY_CLAIM}, QueuedPodState.BACKOFF),
        (CLAIM, {OTHER_CLAIM}, QueuedPodState.WAITING),
        (ANY_CLAIM, {CLAIM}, QueuedPodState.WAITING),
        (ROOM, {DEVICES}, QueuedPodState.WAITING),
        (ROOM, set(), QueuedPodState.WAITING),
    ],
)
def test_a_signal_that_comes_while_a_pod_is_tried_is_not_lost(heard, waits_for, place):
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    room.queue.notify(heard)
    assert room.queue.requeue(entry, frozenset(waits_for)) is place


def test_what_came_before_the_attempt_is_known_to_it():
    room = Room()
    room.queue.add(pod())
    room.queue.notify(DEVICES)
    assert room.queue.requeue(room.take(), frozenset({DEVICES})) is QueuedPodState.WAITING


def test_a_pod_judged_by_an_older_view_hears_what_that_view_missed():
    room = Room()
    room.queue.add(pod())
    viewed = room.queue.sequence
    room.queue.notify(DEVICES)
    assert room.queue.requeue(room.take(), frozenset({DEVICES}), since=viewed) is QueuedPodState.BACKOFF


def test_a_pod_deleted_while_it_is_tried_does_not_come_back():
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    room.queue.remove("uid-a")
    assert entry.state is QueuedPodState.GONE
    assert room.queue.requeue(entry, frozenset({DEVICES}), retry=True) is QueuedPodState.GONE
    room.queue.mark_bound("uid-a")
    room.queue.notify(DEVICES)
    room.clock.advance(1000)
    assert (room.order(), len(room.queue), room.queue.in_flight) == ([], 0, 0)


def test_a_pod_bound_by_somebody_else_while_it_is_tried_does_not_come_back():
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    room.queue.update(pod(), pod(node_name="n"))
    assert room.queue.requeue(entry, frozenset({DEVICES})) is QueuedPodState.GONE
    assert len(room.queue) == 0


@pytest.mark.parametrize("parked", [False, True])
def test_a_pod_removed_anywhere_is_gone(parked):
    room = Room()
    room.queue.add(pod())
    if parked:
        room.queue.requeue(room.take(), frozenset({DEVICES, CLAIM}))
    room.queue.remove("uid-a")
    room.queue.remove("uid-a")
    room.queue.notify(DEVICES)
    room.clock.advance(1000)
    assert room.order() == []
    assert room.queue.get("uid-a") is None


def test_a_pod_that_is_done_is_not_tried_again_because_of_older_news():
    room = Room()
    room.queue.add(pod())
    room.take()
    room.queue.mark_bound("uid-a")
    room.queue.update(pod(), recorded(pod(), gpu="x"))
    room.queue.add(pod())
    room.queue.update(pod(), pod(node_selector={"a": "b"}))
    assert (room.places(), room.order(), len(room.queue)) == ({}, [], 1)
    room.queue.update(pod(), pod(node_name="n"))
    assert len(room.queue) == 0


def test_a_pod_that_wants_something_else_is_tried_again():
    room = Room()
    room.waiting("a", DEVICES)
    room.clock.advance(20)
    room.queue.update(pod(), pod(node_selector={"disk": "ssd"}))
    entry = room.take()
    assert entry.pod.spec.node_selector == {"disk": "ssd"}


def test_a_pod_with_other_labels_is_tried_again():
    room = Room()
    room.waiting("a", DEVICES)
    room.queue.update(pod(), replace(pod(), metadata=replace(pod().metadata, labels={"a": "b"})))
    assert room.places() == {"backoff": 1}


def test_a_mere_status_wakes_nobody():
    room = Room()
    room.waiting("a", DEVICES, Signal(Topic.POD, "ns/a"))
    room.clock.advance(20)
    told = replace(pod(), status=replace(pod().status, nominated_node_name="n"))
    room.queue.update(pod(), replace(told, metadata=replace(told.metadata, resource_version="7")))
    assert room.places() == {"unschedulable": 1}
    assert room.entry("a").pod.status.nominated_node_name == "n"


def test_a_pod_that_changes_while_it_is_tried_is_tried_again():
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    room.queue.update(pod(), pod(node_selector={"disk": "ssd"}))
    assert room.queue.requeue(entry, frozenset({DEVICES})) is QueuedPodState.BACKOFF
    room.clock.advance(1)
    assert room.queue.requeue(room.take(), frozenset({DEVICES})) is QueuedPodState.WAITING


def test_a_status_that_comes_while_a_pod_is_tried_does_not_send_it_round_in_circles():
    room = Room()
    room.queue.add(pod())
    entry = room.take()
    room.queue.update(pod(), replace(pod(), status=replace(pod().status, phase="Pending")))
    assert (
        room.queue.requeue(entry, frozenset({DEVICES, Signal(Topic.POD, "ns/a")})) is QueuedPodState.WAITING
    )


def test_an_update_of_an_active_pod_keeps_its_turn():
    room = Room()
    for name in "abc":
        room.queue.add(pod(name))
        room.clock.advance(1)
    room.queue.update(pod("a"), pod("a", node_selector={"a": "b"}))
    room.queue.update(pod("c"), pod("c", priority=1))
    assert room.places() == {"active": 3}
    assert room.order() == ["c", "a", "b"]


def test_an_update_of_a_pod_nobody_knew_adds_it():
    room = Room()
    room.queue.update(pod(), pod())
    assert room.order() == ["a"]


def test_who_refused_is_counted_until_the_next_attempt():
    room = Room()
    for name in "ab":
        room.queue.add(pod(name))
        entry = room.take()
        entry.refusing_plugins = frozenset(
            {"DynamicResources", "NodeResourcesFit"} if name == "a" else {"NodeResourcesFit"}
        )
        room.queue.requeue(entry, frozenset({DEVICES}))
    assert room.queue.count_unschedulable() == {
        ("DynamicResources", "dray"): 1,
        ("NodeResourcesFit", "dray"): 2,
    }
    room.queue.remove("uid-a")
    room.clock.advance(20)
    room.queue.notify(DEVICES)
    assert room.queue.count_unschedulable() == {("NodeResourcesFit", "dray"): 1}
    room.take()
    assert room.queue.count_unschedulable() == {}


def test_a_loop_that_begins_anew_finds_what_the_last_one_took():
    room = Room()
    room.waiting("waits", DEVICES)
    for name in "abc":
        room.queue.add(pod(name))
        room.take()
    room.queue.mark_bound("uid-c")
    room.queue.requeue_in_flight()
    assert room.places() == {"backoff": 2, "unschedulable": 1}
    assert room.queue.in_flight == 0
    room.clock.advance(1)
    assert room.order() == ["a", "b"]
