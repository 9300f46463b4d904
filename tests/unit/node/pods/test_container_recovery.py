"""Containers taken up where an earlier agent left them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dray.node.containers.runtime.base import ContainerId, Exit, Found
from dray.node.pods.container_recovery import taken_up
from dray.node.pods.restart_policy import Ended, Pace, Running, State, Tale, Waiting

PACE = Pace()
START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = START.timestamp()
BEFORE = Ended(1, "Error", started=1.0, finished=2.0)
NAME = "process://u_c_"


def found(attempt: int, code: int | None = None, ran: int = 5) -> Found:
    end = START + timedelta(seconds=ran)
    exit = None if code is None else Exit(code, 0, "Completed" if not code else "Error", START, end)
    return Found(ContainerId("u", "c", attempt), "p", "default", START, exit)


def taken(state: State, *there: Found, resumed: bool = False, **more: int) -> Tale:
    tale = Tale("c", state=state, **more)  # type: ignore[arg-type]
    (result,) = taken_up([tale], there, "process", PACE, resumed=resumed)
    return result


def test_one_that_runs_goes_on() -> None:
    tale = taken(Running("", 1.0), found(0))
    assert (tale.state, tale.restarts, tale.last) == (Running(NAME + "0", SECONDS), 0, None)


def test_one_that_was_started_again_unseen_remembers_how_it_ended() -> None:
    tale = taken(BEFORE, found(1))
    assert (tale.state, tale.restarts, tale.last) == (Running(NAME + "1", SECONDS), 1, BEFORE)


def test_one_that_ended_unseen_has_its_own_end() -> None:
    tale = taken(Running("", 1.0), found(2, code=3))
    assert isinstance(tale.state, Ended)
    assert (tale.state.code, tale.restarts, tale.crashes) == (3, 2, 3)


def test_of_two_attempts_the_newer_counts() -> None:
    tale = taken(Waiting(), found(1), found(0, code=4))
    assert isinstance(tale.last, Ended)
    assert (tale.restarts, tale.last.code, tale.last.id) == (1, 4, NAME + "0")


def test_one_that_ran_long_is_forgiven() -> None:
    assert taken(Running("", 1.0), found(7, code=1, ran=1000)).crashes == 1


def test_one_that_is_not_there_has_ended_unseen() -> None:
    tale = taken(Running("old", 1.0))
    assert isinstance(tale.state, Ended)
    assert (tale.state.code, tale.state.reason, tale.crashes) == (137, "ContainerStatusUnknown", 1)


def test_one_that_was_stopped_for_a_pause_starts_again_whatever_the_policy() -> None:
    tale = taken(Running("old", 1.0), resumed=True, restarts=1)
    assert (tale.state, tale.restarts, tale.begun) == (Waiting(), 2, True)


def test_what_nobody_started_or_has_ended_stays_so() -> None:
    assert taken(Waiting()) == Tale("c")
    assert taken(BEFORE) == Tale("c", state=BEFORE)
