"""The restart policy of a pod, as tables."""

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
    ContainerRole,
    ContainerRunning,
    ContainerState,
    ContainerTerminated,
    ContainerWaiting,
    PodActions,
    RestartBackoff,
    TrackedContainer,
    build_tracked_containers,
    compute_phase,
    compute_terminated_phase,
    decide_actions,
    is_initialized,
    mark_started,
    mark_terminated,
)

BACKOFF = RestartBackoff()
NOW = 1000.0
RUNS = ContainerRunning("r", 900.0)
WELL, BADLY = (ContainerTerminated(code, started=900.0, finished=990.0) for code in (0, 1))
NEW = ContainerWaiting()


def build_container(
    state: ContainerState = NEW, role: ContainerRole = ContainerRole.MAIN, name: str = "", **more: Any
) -> TrackedContainer:
    crashes = 1 if isinstance(state, ContainerTerminated) else 0
    return TrackedContainer(name or role.value, role, state=state, **{"crashes": crashes, **more})


def init(state: ContainerState, name: str = "init") -> TrackedContainer:
    return build_container(state, ContainerRole.INIT, name)


def side(state: ContainerState) -> TrackedContainer:
    return build_container(state, ContainerRole.SIDECAR, "side")


@pytest.mark.parametrize(
    ("containers", "policy", "actions"),
    [
        pytest.param([build_container()], ALWAYS, PodActions(start=("main",)), id="a new container starts"),
        pytest.param([build_container(RUNS)], ALWAYS, PodActions(), id="one that runs is left alone"),
        pytest.param(
            [build_container(WELL)], ALWAYS, PodActions(start=("main",)), id="one that ended starts again"
        ),
        pytest.param(
            [build_container(WELL)], ON_FAILURE, PodActions(final_phase=SUCCEEDED), id="not when it went well"
        ),
        pytest.param(
            [build_container(BADLY)], ON_FAILURE, PodActions(start=("main",)), id="but when it went badly"
        ),
        pytest.param(
            [build_container(BADLY)],
            NEVER,
            PodActions(final_phase=FAILED),
            id="and never when nobody wants it",
        ),
        pytest.param(
            [build_container(WELL, name="a"), build_container(RUNS, name="b")],
            NEVER,
            PodActions(),
            id="the last one is waited for",
        ),
        pytest.param(
            [init(NEW), build_container()], ALWAYS, PodActions(start=("init",)), id="first the init container"
        ),
        pytest.param([init(RUNS), build_container()], ALWAYS, PodActions(), id="the others wait for it"),
        pytest.param(
            [init(WELL), build_container()], NEVER, PodActions(start=("main",)), id="then the others"
        ),
        pytest.param(
            [init(BADLY), build_container()],
            NEVER,
            PodActions(final_phase=FAILED),
            id="a failed init ends the pod",
        ),
        pytest.param(
            [init(BADLY), build_container()], ON_FAILURE, PodActions(start=("init",)), id="or is tried again"
        ),
        pytest.param(
            [side(NEW), build_container()], ALWAYS, PodActions(start=("side",)), id="a sidecar starts first"
        ),
        pytest.param(
            [side(RUNS), build_container()],
            ALWAYS,
            PodActions(start=("main",)),
            id="and goes on beside the others",
        ),
        pytest.param(
            [side(BADLY), build_container()],
            NEVER,
            PodActions(start=("side", "main")),
            id="it always starts again",
        ),
        pytest.param(
            [side(RUNS), build_container(WELL)],
            NEVER,
            PodActions(stop=("side",)),
            id="it ends with the others",
        ),
        pytest.param(
            [side(BADLY), build_container(WELL)],
            NEVER,
            PodActions(final_phase=SUCCEEDED),
            id="its own end does not count",
        ),
        pytest.param(
            [side(RUNS), init(BADLY), build_container()],
            NEVER,
            PodActions(stop=("side",)),
            id="it ends with a failed init",
        ),
        pytest.param(
            [side(BADLY), init(NEW, "later"), build_container()],
            NEVER,
            PodActions(start=("side",)),
            id="what comes after a sidecar waits until that runs",
        ),
        pytest.param(
            [build_container(BADLY, crashes=2)],
            ALWAYS,
            PodActions(recheck_at=1000.0),
            id="the second end in a row costs ten seconds",
        ),
        pytest.param(
            [build_container(BADLY, crashes=3)],
            ALWAYS,
            PodActions(recheck_at=1010.0),
            id="and the third one twenty",
        ),
        pytest.param(
            [build_container(ContainerWaiting("x", until=1001.0, attempts=1))],
            ALWAYS,
            PodActions(recheck_at=1001.0),
            id="a failed start waits",
        ),
    ],
)
def test_the_next_actions(containers: list[TrackedContainer], policy: str, actions: PodActions) -> None:
    moment = NOW if actions.recheck_at is None or actions.recheck_at > NOW else actions.recheck_at - 1
    assert decide_actions(containers, policy, moment, BACKOFF) == actions


@pytest.mark.parametrize(
    ("containers", "policy", "phase"),
    [
        ([build_container()], ALWAYS, PENDING),
        ([build_container(RUNS)], ALWAYS, RUNNING),
        ([build_container(BADLY)], ALWAYS, RUNNING),
        ([build_container(BADLY)], NEVER, FAILED),
        ([build_container(WELL)], NEVER, SUCCEEDED),
        ([build_container(WELL), build_container(BADLY)], NEVER, FAILED),
        ([build_container(WELL), build_container(RUNS)], NEVER, RUNNING),
        ([init(RUNS), build_container()], ALWAYS, PENDING),
        ([init(BADLY), build_container()], ALWAYS, PENDING),
        ([init(BADLY), build_container()], NEVER, FAILED),
        ([side(RUNS), init(BADLY), build_container()], NEVER, PENDING),
        ([side(RUNS), build_container(WELL)], NEVER, RUNNING),
        ([side(WELL), build_container(WELL)], NEVER, SUCCEEDED),
        ([side(BADLY), build_container(RUNS)], ALWAYS, RUNNING),
        ([build_container(ContainerWaiting("RunContainerError"), last_termination=BADLY)], ALWAYS, RUNNING),
    ],
)
def test_the_phase_follows_from_the_containers(
    containers: list[TrackedContainer], policy: str, phase: str
) -> None:
    assert compute_phase(containers, policy) == phase


def test_waits_double_up_to_five_minutes() -> None:
    assert [BACKOFF.compute_delay(crashes) for crashes in range(9)] == [0, 0, 10, 20, 40, 80, 160, 300, 300]
    assert BACKOFF.compute_delay(10_000) == 300


def test_a_clock_that_was_set_back_keeps_no_container_waiting_longer_than_the_longest_wait() -> None:
    crashed = [build_container(replace(BADLY, finished=NOW + 86_400.0), crashes=3)]
    assert decide_actions(crashed, ALWAYS, NOW, BACKOFF) == PodActions(start=("main",))
    tried = [build_container(ContainerWaiting("CreateContainerError", until=NOW + 86_400.0, attempts=3))]
    assert decide_actions(tried, ALWAYS, NOW, BACKOFF) == PodActions(start=("main",))
    soon = [build_container(replace(BADLY, finished=NOW), crashes=2)]
    assert decide_actions(soon, ALWAYS, NOW, BACKOFF) == PodActions(recheck_at=NOW + 10.0)


def test_a_container_that_ran_long_is_forgiven() -> None:
    before = build_container(RUNS, crashes=4)
    assert mark_terminated(before, ContainerTerminated(1, started=0, finished=30), BACKOFF).crashes == 5
    assert mark_terminated(before, ContainerTerminated(1, started=0, finished=601), BACKOFF).crashes == 1


def test_a_second_start_remembers_the_end_before_it() -> None:
    again = mark_started(build_container(BADLY, restart_count=1), RUNS)
    assert (again.state, again.last_termination, again.restart_count) == (RUNS, BADLY, 2)
    assert mark_started(build_container(), RUNS) == replace(build_container(), state=RUNS)


def test_a_terminated_pod_succeeded_only_if_all_containers_did() -> None:
    assert compute_terminated_phase([side(BADLY), build_container(WELL)]) == SUCCEEDED
    assert compute_terminated_phase([build_container(WELL), build_container(BADLY)]) == FAILED
    assert compute_terminated_phase([build_container(NEW)]) == FAILED


def test_containers_are_read_in_the_order_of_the_pod() -> None:
    spec = {
        "initContainers": [{"name": "i", "image": "x"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "c"}],
    }
    assert build_tracked_containers({"spec": spec}) == (
        TrackedContainer("i", ContainerRole.INIT, "x", ContainerWaiting("PodInitializing")),
        TrackedContainer("s", ContainerRole.SIDECAR, "", ContainerWaiting("PodInitializing")),
        TrackedContainer("c", ContainerRole.MAIN, "", ContainerWaiting("PodInitializing")),
    )
    assert not is_initialized(build_tracked_containers({"spec": spec}))
    assert build_tracked_containers({"spec": {"containers": [{"name": "c"}]}}) == (TrackedContainer("c"),)
