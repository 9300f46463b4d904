"""The restart policy of a pod: which containers start or stop now, and when the pod is finished.

Theory of operation: a `TrackedContainer` has the role, state, last termination and restart count of one
container. `decide_actions` goes through those of a pod in the order of its spec. Init containers run one
after the other; a sidecar among them (an init container with restart policy `Always`) keeps running beside
all that follow. The main containers run together when all of these are complete. A container that ended
restarts by the pod's policy: the first time at once, then after delays that double; a long run resets the
delay. When no main container will restart, the pod is finished and its sidecars are stopped.

Rules for this file: pure; times are seconds since the epoch and come from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

Document = Mapping[str, Any]

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINAL_PHASES: Final = frozenset({SUCCEEDED, FAILED})
"""Phases that no pod leaves."""


class ContainerRole(Enum):
    """The role of a container in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class ContainerWaiting(msgspec.Struct, frozen=True):
    """Not started yet, and why; `until` is the time of the next attempt after one that failed."""

    reason: str = "ContainerCreating"
    message: str = ""
    until: float = 0.0
    attempts: int = 0


class ContainerRunning(msgspec.Struct, frozen=True):
    """Running."""

    id: str
    started: float


class ContainerTerminated(msgspec.Struct, frozen=True):
    """Ended."""

    code: int
    reason: str = ""
    message: str = ""
    signal: int = 0
    started: float = 0.0
    finished: float = 0.0
    id: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the exit code is 0."""
        return self.code == 0


ContainerState = ContainerWaiting | ContainerRunning | ContainerTerminated


class TrackedContainer(msgspec.Struct, frozen=True):
    """The role, state and history of one container."""

    name: str
    role: ContainerRole = ContainerRole.MAIN
    image: str = ""
    state: ContainerState = ContainerWaiting()
    last_termination: ContainerTerminated | None = None
    restart_count: int = 0
    crashes: int = 0
    """Terminations since the last reset of the delay."""

    @property
    def has_started(self) -> bool:
        """Whether it was ever started."""
        return not isinstance(self.state, ContainerWaiting) or self.last_termination is not None


class RestartBackoff(msgspec.Struct, frozen=True):
    """Delays before restarts, in seconds, and the running time that resets them."""

    first: float = 10.0
    longest: float = 300.0
    reset_after: float = 600.0

    def compute_delay(self, crashes: int) -> float:
        """Compute the delay after a number of terminations; the first has none."""
        if crashes <= 1:
            return 0.0
        return float(min(self.first * 2.0 ** min(crashes - 2, 30), self.longest))


class PodActions(msgspec.Struct, frozen=True):
    """The next actions for a pod."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    recheck_at: float | None = None
    """When to decide again, if nothing happens before."""
    final_phase: str = ""
    """The phase of a finished pod."""


def check_container_names(pod: Document) -> str:
    """Return why the container names of a pod are invalid; empty when they are unique."""
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for position, one in enumerate((pod.get("spec") or {}).get(field) or ()):
            path, name = f"spec.{field}[{position}].name", one.get("name")
            if not isinstance(name, str) or not name:
                return f"{path}: a container needs a name"
            if name in seen:
                return f"{path}: another container of the pod is called `{name}`, too"
            seen.add(name)
    return ""


def build_tracked_containers(pod: Document) -> tuple[TrackedContainer, ...]:
    """Build the tracked containers of a pod's spec, none of them started."""
    spec = pod.get("spec") or {}
    inits = spec.get("initContainers") or ()
    waiting = ContainerWaiting("PodInitializing") if inits else ContainerWaiting()
    return (
        *(
            TrackedContainer(one["name"], _get_role(one), str(one.get("image") or ""), waiting)
            for one in inits
        ),
        *(
            TrackedContainer(one["name"], ContainerRole.MAIN, str(one.get("image") or ""), waiting)
            for one in spec.get("containers") or ()
        ),
    )


def _get_role(container: Document) -> ContainerRole:
    return ContainerRole.SIDECAR if container.get("restartPolicy") == ALWAYS else ContainerRole.INIT


def get_restart_policy(pod: Document) -> str:
    """Return the restart policy of a pod."""
    return str((pod.get("spec") or {}).get("restartPolicy") or ALWAYS)


def mark_terminated(
    container: TrackedContainer, termination: ContainerTerminated, backoff: RestartBackoff
) -> TrackedContainer:
    """Return a container as terminated."""
    reset = termination.finished - termination.started >= backoff.reset_after
    return replace(container, state=termination, crashes=1 if reset else container.crashes + 1)


def mark_started(container: TrackedContainer, state: ContainerRunning) -> TrackedContainer:
    """Return a container as started or restarted."""
    if isinstance(container.state, ContainerTerminated):
        return replace(
            container,
            state=state,
            last_termination=container.state,
            restart_count=container.restart_count + 1,
        )
    return replace(container, state=state)


def should_restart(container: TrackedContainer, policy: str) -> bool:
    """Return whether a terminated container restarts."""
    assert isinstance(container.state, ContainerTerminated)
    if container.role is ContainerRole.SIDECAR:
        return True
    if policy == NEVER or (container.role is ContainerRole.INIT and container.state.succeeded):
        return False
    return policy == ALWAYS or not container.state.succeeded


def is_restart_delayed(container: TrackedContainer, policy: str, backoff: RestartBackoff) -> bool:
    """Return whether a container has terminated and restarts only after a delay."""
    return (
        isinstance(container.state, ContainerTerminated)
        and backoff.compute_delay(container.crashes) > 0
        and should_restart(container, policy)
    )


def has_failed_to_start(containers: Sequence[TrackedContainer]) -> bool:
    """Return whether a container that is not started yet was tried in vain."""
    return any(
        isinstance(tracked.state, ContainerWaiting) and tracked.state.attempts for tracked in containers
    )


def is_initialized(containers: Sequence[TrackedContainer]) -> bool:
    """Return whether every init container has succeeded and every sidecar has started."""
    return all(
        tracked.has_started
        if tracked.role is ContainerRole.SIDECAR
        else tracked.role is ContainerRole.MAIN
        or (isinstance(tracked.state, ContainerTerminated) and tracked.state.succeeded)
        for tracked in containers
    )


def decide_actions(
    containers: Sequence[TrackedContainer], policy: str, now: float, backoff: RestartBackoff
) -> PodActions:
    """Decide the next actions for the containers of a pod."""
    actions = _ActionsBuilder(policy, now, backoff)
    mains = [tracked for tracked in containers if tracked.role is ContainerRole.MAIN]
    finished = [
        tracked
        for tracked in mains
        if isinstance(tracked.state, ContainerTerminated) and not should_restart(tracked, policy)
    ]
    if len(finished) == len(mains):
        return _finish_pod(
            containers, SUCCEEDED if all(_has_succeeded(tracked) for tracked in mains) else FAILED
        )
    for tracked in containers:
        if tracked.role is ContainerRole.MAIN:
            continue
        if tracked.role is ContainerRole.INIT and isinstance(tracked.state, ContainerTerminated):
            if tracked.state.succeeded:
                continue
            if policy == NEVER:
                return _finish_pod(containers, FAILED)
        actions.add(tracked)
        can_proceed = tracked.role is ContainerRole.SIDECAR and (
            isinstance(tracked.state, ContainerRunning) or is_initialized(containers)
        )
        if not can_proceed:
            return actions.build()
    for tracked in mains:
        if not (isinstance(tracked.state, ContainerTerminated) and not should_restart(tracked, policy)):
            actions.add(tracked)
    return actions.build()


def _has_succeeded(container: TrackedContainer) -> bool:
    return isinstance(container.state, ContainerTerminated) and container.state.succeeded


def _finish_pod(containers: Sequence[TrackedContainer], phase: str) -> PodActions:
    """Finish a pod: stop running containers first; the phase follows from their exits."""
    running = tuple(tracked.name for tracked in containers if isinstance(tracked.state, ContainerRunning))
    return PodActions(stop=running) if running else PodActions(final_phase=phase)


class _ActionsBuilder:
    """Collects the actions of `decide_actions`."""

    def __init__(self, policy: str, now: float, backoff: RestartBackoff) -> None:
        self._policy, self._now, self._backoff = policy, now, backoff
        self._start: list[str] = []
        self._recheck_times: list[float] = []

    def add(self, container: TrackedContainer) -> None:
        """Start a container that does not run, or note when it may start."""
        next_start = compute_next_start(container, self._backoff)
        if next_start is None:
            return
        # No delay exceeds the longest: otherwise the clock was set back.
        if not self._now < next_start <= self._now + self._backoff.longest:
            self._start.append(container.name)
        else:
            self._recheck_times.append(next_start)

    def build(self) -> PodActions:
        return PodActions(start=tuple(self._start), recheck_at=min(self._recheck_times, default=None))


def compute_next_start(container: TrackedContainer, backoff: RestartBackoff) -> float | None:
    """Compute when a container may start; None while it runs."""
    state = container.state
    if isinstance(state, ContainerRunning):
        return None
    if isinstance(state, ContainerWaiting):
        return state.until
    return state.finished + backoff.compute_delay(container.crashes)


def compute_phase(containers: Sequence[TrackedContainer], policy: str) -> str:
    """Compute the phase of a pod from its containers alone."""
    for tracked in containers:
        if (
            tracked.role is ContainerRole.INIT
            and isinstance(tracked.state, ContainerTerminated)
            and not tracked.state.succeeded
        ):
            if policy == NEVER and not _is_any_running(containers):
                return FAILED
            return PENDING
    if not is_initialized(containers):
        return PENDING
    mains = [tracked for tracked in containers if tracked.role is ContainerRole.MAIN]
    if any(not tracked.has_started for tracked in mains):
        return PENDING
    if all(
        isinstance(tracked.state, ContainerTerminated) and not should_restart(tracked, policy)
        for tracked in mains
    ):
        if _is_any_running(containers):
            return RUNNING
        return SUCCEEDED if all(_has_succeeded(tracked) for tracked in mains) else FAILED
    return RUNNING


def compute_terminated_phase(containers: Sequence[TrackedContainer]) -> str:
    """Compute the phase of a terminated pod: it succeeded only if all its containers did."""
    mains = [tracked for tracked in containers if tracked.role is ContainerRole.MAIN]
    return SUCCEEDED if all(_has_succeeded(tracked) for tracked in mains) else FAILED


def _is_any_running(containers: Sequence[TrackedContainer]) -> bool:
    return any(isinstance(tracked.state, ContainerRunning) for tracked in containers)
