"""Waking by index: the cost of a signal is whom it wakes; and a memory of signals that has an end."""

from __future__ import annotations

import pytest

from dray.placement.rejections import Signal, Topic
from dray.scheduler.signal_index import Heard, Sleepers
from tests.unit.scheduler.waiting import DEVICES, ROOM, Room, pod

MANY = 10_000


def claim(number: int) -> Signal:
    return Signal(Topic.CLAIM, f"ns/{number}")


def test_whoever_is_woken_is_in_no_row_any_more():
    sleepers = Sleepers()
    sleepers.put("a", frozenset({DEVICES, claim(1), Signal(Topic.CLAIM)}))
    sleepers.put("b", frozenset({DEVICES}))
    assert sleepers.woken(claim(1)) == ["a"]
    assert sleepers.woken(DEVICES) == ["b"]
    assert len(sleepers) == 0


def test_rows_of_nobody_are_not_kept():
    sleepers = Sleepers()
    for number in range(100):
        sleepers.put("a", frozenset({claim(number), DEVICES}))
        sleepers.drop("a", frozenset({claim(number), DEVICES}))
    assert len(sleepers) == 0
    assert sleepers.woken(DEVICES) == []


def test_what_happened_after_a_moment_is_known():
    heard = Heard()
    heard.note(claim(1))
    moment = heard.moment
    heard.note(claim(2))
    assert not heard.after(moment, {claim(1)})
    assert heard.after(moment, {claim(1), claim(2)})
    assert heard.after(moment, {Signal(Topic.CLAIM)})
    assert not heard.after(moment, {DEVICES})
    assert not heard.after(heard.moment, {claim(2)})


def test_what_is_forgotten_may_have_happened():
    heard = Heard(most=100)
    early = heard.moment
    for number in range(1000):
        heard.note(claim(number))
    late = heard.moment
    assert len(heard._last) <= 101
    assert heard.after(early, {ROOM})
    assert not heard.after(early, set())
    assert not heard.after(late, {ROOM, claim(0), claim(999)})
    assert heard.after(late - 5, {claim(999)})
    assert not heard.after(late - 5, {claim(0)})


def crowd(*common: Signal) -> tuple[Room, list[str]]:
    """Many pods that wait, each for a claim of its own and what is common to all; and who is judged."""
    judged: list[str] = []
    room = Room(judge=lambda asked: judged.append(asked.metadata.name))
    for number in range(MANY):
        room.queue.add(pod(f"{number}"))
    for number in range(MANY):
        entry = room.take()
        assert entry.pod.metadata.name == f"{number}"
        room.queue.park(entry, frozenset({claim(number), *common}))
    judged.clear()
    room.moves.clear()
    return room, judged


def test_a_burst_of_signals_moves_everybody_once():
    room, judged = crowd(DEVICES)
    for _ in range(1000):
        room.queue.wake(DEVICES)
    assert len(judged) == len(room.moves) == MANY
    assert room.places() == {"backoff": MANY}


@pytest.mark.parametrize("number", [0, MANY - 1])
def test_a_signal_about_one_claim_looks_at_nobody_else(number):
    room, judged = crowd()
    for _ in range(1000):
        room.queue.wake(claim(number))
        room.queue.wake(DEVICES)
    assert judged == [f"{number}"]
    assert room.places() == {"backoff": 1, "unschedulable": MANY - 1}
