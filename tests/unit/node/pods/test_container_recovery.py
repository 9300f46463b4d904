"""Recovery of containers after a restart of the agent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dray.node.containers.runtime.base import ContainerExit, ContainerId, FoundContainer
from dray.node.pods.container_recovery import recover_containers
from dray.node.pods.restart_policy import (
    ContainerRunning,
    ContainerState,
    ContainerTerminated,
    ContainerWaiting,
    RestartBackoff,
    TrackedContainer,
)

PACE = RestartBackoff()
START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = START.timestamp()
BEFORE = ContainerTerminated(1, "Error", started=1.0, finished=2.0)
NAME = "process://u_c_"


def found(attempt: int, code: int | None = None, ran: int = 5) -> FoundContainer:
    end = START + timedelta(seconds=ran)
    exit = None if code is None else ContainerExit(code, 0, "Completed" if not code else "Error", START, end)
    return FoundContainer(ContainerId("u", "c", attempt), "p", "default", START, exit)


def taken(
    state: ContainerState, *there: FoundContainer, resumed: bool = False, **more: int
) -> TrackedContainer:
    tracked = TrackedContainer("c", state=state, **more)  # type: ignore[arg-type]
    (result,) = recover_containers([tracked], there, "process", PACE, resumed=resumed)
    return result


def test_one_that_runs_goes_on() -> None:
    tracked = taken(ContainerRunning("", 1.0), found(0))
    assert (tracked.state, tracked.restart_count, tracked.last_termination) == (
        ContainerRunning(NAME + "0", SECONDS),
        0,
        None,
    )


def test_one_that_was_started_again_unseen_remembers_how_it_ended() -> None:
    tracked = taken(BEFORE, found(1))
    assert (tracked.state, tracked.restart_count, tracked.last_termination) == (
        ContainerRunning(NAME + "1", SECONDS),
        1,
        BEFORE,
    )


def test_one_that_ended_unseen_has_its_own_end() -> None:
    tracked = taken(ContainerRunning("", 1.0), found(2, code=3))
    assert isinstance(tracked.state, ContainerTerminated)
    assert (tracked.state.code, tracked.restart_count, tracked.crashes) == (3, 2, 3)


def test_of_two_attempts_the_newer_counts() -> None:
    tracked = taken(ContainerWaiting(), found(1), found(0, code=4))
    assert isinstance(tracked.last_termination, ContainerTerminated)
    assert (tracked.restart_count, tracked.last_termination.code, tracked.last_termination.id) == (
        1,
        4,
        NAME + "0",
    )


def test_one_that_ran_long_is_forgiven() -> None:
    assert taken(ContainerRunning("", 1.0), found(7, code=1, ran=1000)).crashes == 1


def test_one_that_is_not_there_has_ended_unseen() -> None:
    tracked = taken(ContainerRunning("old", 1.0))
    assert isinstance(tracked.state, ContainerTerminated)
    assert (tracked.state.code, tracked.state.reason, tracked.crashes) == (137, "ContainerStatusUnknown", 1)


def test_one_that_was_stopped_for_a_pause_starts_again_whatever_the_policy() -> None:
    tracked = taken(ContainerRunning("old", 1.0), resumed=True, restart_count=1)
    assert (tracked.state, tracked.restart_count, tracked.has_started) == (ContainerWaiting(), 2, True)


def test_containers_that_never_started_or_have_ended_stay_so() -> None:
    assert taken(ContainerWaiting()) == TrackedContainer("c")
    assert taken(BEFORE) == TrackedContainer("c", state=BEFORE)
