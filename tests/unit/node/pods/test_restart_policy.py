"""What is to be done with the containers of a pod, as tables."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dray.node.pods.restart_policy import (
    ALWAYS,
    FAILED,
    NEVER,
    ON_FAILURE,
    PENDING,
    RUNNING,
    SUCCEEDED,
    Ended,
    Pace,
    Role,
    Running,
    State,
    Tale,
    Todo,
    Waiting,
    cut_short,
    due,
    ended,
    initialized,
    phase_of,
    started,
    tales_of,
)

PACE = Pace()
NOW = 1000.0
RUNS = Running("r", 900.0)
WELL, BADLY = (Ended(code, started=900.0, finished=990.0) for code in (0, 1))
NEW = Waiting()


def tale(state: State = NEW, role: Role = Role.MAIN, name: str = "", **more: Any) -> Tale:
    crashes = 1 if isinstance(state, Ended) else 0
    return Tale(name or role.value, role, state=state, **{"crashes": crashes, **more})


def init(state: State, name: str = "init") -> Tale:
    return tale(state, Role.INIT, name)


def side(state: State) -> Tale:
    return tale(state, Role.SIDECAR, "side")


@pytest.mark.parametrize(
    ("tales", "policy", "todo"),
    [
        pytest.param([tale()], ALWAYS, Todo(start=("main",)), id="a new container starts"),
        pytest.param([tale(RUNS)], ALWAYS, Todo(), id="one that runs is left alone"),
        pytest.param([tale(WELL)], ALWAYS, Todo(start=("main",)), id="one that ended starts again"),
        pytest.param([tale(WELL)], ON_FAILURE, Todo(over=SUCCEEDED), id="not when it went well"),
        pytest.param([tale(BADLY)], ON_FAILURE, Todo(start=("main",)), id="but when it went badly"),
        pytest.param([tale(BADLY)], NEVER, Todo(over=FAILED), id="and never when nobody wants it"),
        pytest.param(
            [tale(WELL, name="a"), tale(RUNS, name="b")], NEVER, Todo(), id="the last one is waited for"
        ),
        pytest.param([init(NEW), tale()], ALWAYS, Todo(start=("init",)), id="first the init container"),
        pytest.param([init(RUNS), tale()], ALWAYS, Todo(), id="the others wait for it"),
        pytest.param([init(WELL), tale()], NEVER, Todo(start=("main",)), id="then the others"),
        pytest.param([init(BADLY), tale()], NEVER, Todo(over=FAILED), id="a failed init ends the pod"),
        pytest.param([init(BADLY), tale()], ON_FAILURE, Todo(start=("init",)), id="or is tried again"),
        pytest.param([side(NEW), tale()], ALWAYS, Todo(start=("side",)), id="a sidecar starts first"),
        pytest.param([side(RUNS), tale()], ALWAYS, Todo(start=("main",)), id="and goes on beside the others"),
        pytest.param([side(BADLY), tale()], NEVER, Todo(start=("side", "main")), id="it always starts again"),
        pytest.param([side(RUNS), tale(WELL)], NEVER, Todo(stop=("side",)), id="it ends with the others"),
        pytest.param([side(BADLY), tale(WELL)], NEVER, Todo(over=SUCCEEDED), id="its own end does not count"),
        pytest.param(
            [side(RUNS), init(BADLY), tale()], NEVER, Todo(stop=("side",)), id="it ends with a failed init"
        ),
        pytest.param(
            [side(BADLY), init(NEW, "later"), tale()],
            NEVER,
            Todo(start=("side",)),
            id="what comes after a sidecar waits until that runs",
        ),
        pytest.param(
            [tale(BADLY, crashes=2)],
            ALWAYS,
            Todo(again=1000.0),
            id="the second end in a row costs ten seconds",
        ),
        pytest.param([tale(BADLY, crashes=3)], ALWAYS, Todo(again=1010.0), id="and the third one twenty"),
        pytest.param(
            [tale(Waiting("x", until=1001.0, tries=1))], ALWAYS, Todo(again=1001.0), id="a failed start waits"
        ),
    ],
)
def test_what_is_due(tales: list[Tale], policy: str, todo: Todo) -> None:
    moment = NOW if todo.again is None or todo.again > NOW else todo.again - 1
    assert due(tales, policy, moment, PACE) == todo


@pytest.mark.parametrize(
    ("tales", "policy", "phase"),
    [
        ([tale()], ALWAYS, PENDING),
        ([tale(RUNS)], ALWAYS, RUNNING),
        ([tale(BADLY)], ALWAYS, RUNNING),
        ([tale(BADLY)], NEVER, FAILED),
        ([tale(WELL)], NEVER, SUCCEEDED),
        ([tale(WELL), tale(BADLY)], NEVER, FAILED),
        ([tale(WELL), tale(RUNS)], NEVER, RUNNING),
        ([init(RUNS), tale()], ALWAYS, PENDING),
        ([init(BADLY), tale()], ALWAYS, PENDING),
        ([init(BADLY), tale()], NEVER, FAILED),
        ([side(RUNS), init(BADLY), tale()], NEVER, PENDING),
        ([side(RUNS), tale(WELL)], NEVER, RUNNING),
        ([side(WELL), tale(WELL)], NEVER, SUCCEEDED),
        ([side(BADLY), tale(RUNS)], ALWAYS, RUNNING),
        ([tale(Waiting("RunContainerError"), last=BADLY)], ALWAYS, RUNNING),
    ],
)
def test_the_phase_follows_from_the_containers(tales: list[Tale], policy: str, phase: str) -> None:
    assert phase_of(tales, policy) == phase


def test_waits_double_up_to_five_minutes() -> None:
    assert [PACE.after(crashes) for crashes in range(9)] == [0, 0, 10, 20, 40, 80, 160, 300, 300]
    assert PACE.after(10_000) == 300


def test_a_clock_that_was_set_back_keeps_no_container_waiting_longer_than_the_longest_wait() -> None:
    crashed = [tale(replace(BADLY, finished=NOW + 86_400.0), crashes=3)]
    assert due(crashed, ALWAYS, NOW, PACE) == Todo(start=("main",))
    tried = [tale(Waiting("CreateContainerError", until=NOW + 86_400.0, tries=3))]
    assert due(tried, ALWAYS, NOW, PACE) == Todo(start=("main",))
    soon = [tale(replace(BADLY, finished=NOW), crashes=2)]
    assert due(soon, ALWAYS, NOW, PACE) == Todo(again=NOW + 10.0)


def test_a_container_that_ran_long_is_forgiven() -> None:
    before = tale(RUNS, crashes=4)
    assert ended(before, Ended(1, started=0, finished=30), PACE).crashes == 5
    assert ended(before, Ended(1, started=0, finished=601), PACE).crashes == 1


def test_a_second_start_remembers_the_end_before_it() -> None:
    again = started(tale(BADLY, restarts=1), RUNS)
    assert (again.state, again.last, again.restarts) == (RUNS, BADLY, 2)
    assert started(tale(), RUNS) == replace(tale(), state=RUNS)


def test_who_is_cut_short_went_well_only_if_all_did() -> None:
    assert cut_short([side(BADLY), tale(WELL)]) == SUCCEEDED
    assert cut_short([tale(WELL), tale(BADLY)]) == FAILED
    assert cut_short([tale(NEW)]) == FAILED


def test_containers_are_read_in_the_order_of_the_pod() -> None:
    spec = {
        "initContainers": [{"name": "i", "image": "x"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "c"}],
    }
    assert tales_of({"spec": spec}) == (
        Tale("i", Role.INIT, "x", Waiting("PodInitializing")),
        Tale("s", Role.SIDECAR, "", Waiting("PodInitializing")),
        Tale("c", Role.MAIN, "", Waiting("PodInitializing")),
    )
    assert not initialized(tales_of({"spec": spec}))
    assert tales_of({"spec": {"containers": [{"name": "c"}]}}) == (Tale("c"),)
