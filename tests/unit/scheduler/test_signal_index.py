"""The signal index: the cost of a signal is the pods it wakes; and the signal log is bounded."""

from __future__ import annotations

import pytest

from dray.placement.rejections import Signal, Topic
from dray.scheduler.signal_index import SignalLog, WaitingPodIndex
from tests.unit.scheduler.queue_fixture import DEVICES, RESOURCES, QueueFixture, pod

MANY = 10_000


def claim(number: int) -> Signal:
    return Signal(Topic.CLAIM, f"ns/{number}")


def test_a_woken_pod_is_in_no_row_any_more():
    sleepers = WaitingPodIndex()
    sleepers.add("a", frozenset({DEVICES, claim(1), Signal(Topic.CLAIM)}))
    sleepers.add("b", frozenset({DEVICES}))
    assert sleepers.pop_waiting(claim(1)) == ["a"]
    assert sleepers.pop_waiting(DEVICES) == ["b"]
    assert len(sleepers) == 0


def test_rows_of_nobody_are_not_kept():
    sleepers = WaitingPodIndex()
    for number in range(100):
        sleepers.add("a", frozenset({claim(number), DEVICES}))
        sleepers.remove("a", frozenset({claim(number), DEVICES}))
    assert len(sleepers) == 0
    assert sleepers.pop_waiting(DEVICES) == []


def test_what_happened_after_a_moment_is_known():
    heard = SignalLog()
    heard.append(claim(1))
    moment = heard.sequence
    heard.append(claim(2))
    assert not heard.has_since(moment, {claim(1)})
    assert heard.has_since(moment, {claim(1), claim(2)})
    assert heard.has_since(moment, {Signal(Topic.CLAIM)})
    assert not heard.has_since(moment, {DEVICES})
    assert not heard.has_since(heard.sequence, {claim(2)})


def test_what_is_forgotten_may_have_happened():
    heard = SignalLog(max_signals=100)
    early = heard.sequence
    for number in range(1000):
        heard.append(claim(number))
    late = heard.sequence
    assert len(heard._last) <= 101
    assert heard.has_since(early, {RESOURCES})
    assert not heard.has_since(early, set())
    assert not heard.has_since(late, {RESOURCES, claim(0), claim(999)})
    assert heard.has_since(late - 5, {claim(999)})
    assert not heard.has_since(late - 5, {claim(0)})


def crowd(*common: Signal) -> tuple[QueueFixture, list[str]]:
    """Many pods that wait, each for a claim of its own and what is common to all; and who is judged."""
    judged: list[str] = []
    fixture = QueueFixture(judge=lambda asked: judged.append(asked.metadata.name))
    for number in range(MANY):
        fixture.queue.add(pod(f"{number}"))
    for number in range(MANY):
        entry = fixture.take()
        assert entry.pod.metadata.name == f"{number}"
        fixture.queue.requeue(entry, frozenset({claim(number), *common}))
    judged.clear()
    fixture.moves.clear()
    return fixture, judged


def test_a_burst_of_signals_moves_everybody_once():
    fixture, judged = crowd(DEVICES)
    for _ in range(1000):
        fixture.queue.notify(DEVICES)
    assert len(judged) == len(fixture.moves) == MANY
    assert fixture.places() == {"backoff": MANY}


@pytest.mark.parametrize("number", [0, MANY - 1])
def test_a_signal_about_one_claim_looks_at_nobody_else(number):
    fixture, judged = crowd()
    for _ in range(1000):
        fixture.queue.notify(claim(number))
        fixture.queue.notify(DEVICES)
    assert judged == [f"{number}"]
    assert fixture.places() == {"backoff": 1, "unschedulable": MANY - 1}
