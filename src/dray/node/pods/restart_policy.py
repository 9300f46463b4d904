"""What is to be done with the containers of a pod: which start now, which stop, and whether the pod is over.

Theory of operation: a `TrackedContainer` is what is known of one container: what it is for, how it is, how it
ended last, and how often it was started again. `decide_actions` reads the tales of a pod in the order of its
spec. Init containers run one after the other; a sidecar among them (an init container that is restarted
always) goes on beside all that follow. The others run together when all of these are through. A container
that ended starts again when the pod's policy says so: at once the first time, then after waits that double.
One that ran long enough is forgiven. When no container will start again the pod is over, and its sidecars
have nothing left to accompany.

Rules for this file: pure; moments are seconds since the epoch and come from the caller.
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
    """What a container is for."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class ContainerWaiting(msgspec.Struct, frozen=True):
    """Not started yet, and why. `until` is when to try again, after a try that failed."""

    reason: str = "ContainerCreating"
    message: str = ""
    until: float = 0.0
    attempts: int = 0


class ContainerRunning(msgspec.Struct, frozen=True):
    """It runs."""

    id: str
    started: float


class ContainerTerminated(msgspec.Struct, frozen=True):
    """It ran, and is over."""

    code: int
    reason: str = ""
    message: str = ""
    signal: int = 0
    started: float = 0.0
    finished: float = 0.0
    id: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it did what it should."""
        return self.code == 0


ContainerState = ContainerWaiting | ContainerRunning | ContainerTerminated


class TrackedContainer(msgspec.Struct, frozen=True):
    """What is known of one container."""

    name: str
    role: ContainerRole = ContainerRole.MAIN
    image: str = ""
    state: ContainerState = ContainerWaiting()
    last_termination: ContainerTerminated | None = None
    restart_count: int = 0
    crashes: int = 0
    """Ends in a row that were not forgiven."""

    @property
    def has_started(self) -> bool:
        """Whether it was ever started."""
        return not isinstance(self.state, ContainerWaiting) or self.last_termination is not None


class RestartBackoff(msgspec.Struct, frozen=True):
    """How long to wait before a container starts again, in seconds, and when it is forgiven."""

    first: float = 10.0
    longest: float = 300.0
    reset_after: float = 600.0

    def compute_delay(self, crashes: int) -> float:
        """The wait after so many ends in a row; the first one costs nothing."""
        if crashes <= 1:
            return 0.0
        return float(min(self.first * 2.0 ** min(crashes - 2, 30), self.longest))


class PodActions(msgspec.Struct, frozen=True):
    """What to do now."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    recheck_at: float | None = None
    """When to look again, if nothing happens before."""
    final_phase: str = ""
    """The phase in which the pod ends, when nothing is left to do."""


def check_container_names(pod: Document) -> str:
    """Why nobody can tell the containers of a pod apart; empty when they have names of their own."""
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for position, one in enumerate((pod.get("spec") or {}).get(field) or ()):
            place, name = f"spec.{field}[{position}].name", one.get("name")
            if not isinstance(name, str) or not name:
                return f"{place}: a container needs a name"
            if name in seen:
                return f"{place}: another container of the pod is called `{name}`, too"
            seen.add(name)
    return ""


def build_tracked_containers(pod: Document) -> tuple[TrackedContainer, ...]:
    """The containers of a pod as its spec names them, none of them started."""
    spec = pod.get("spec") or {}
    inits = spec.get("initContainers") or ()
    through = ContainerWaiting("PodInitializing") if inits else ContainerWaiting()
    return (
        *(
            TrackedContainer(one["name"], _get_role(one), str(one.get("image") or ""), through)
            for one in inits
        ),
        *(
            TrackedContainer(one["name"], ContainerRole.MAIN, str(one.get("image") or ""), through)
            for one in spec.get("containers") or ()
        ),
    )


def _get_role(container: Document) -> ContainerRole:
    return ContainerRole.SIDECAR if container.get("restartPolicy") == ALWAYS else ContainerRole.INIT


def get_restart_policy(pod: Document) -> str:
    """What becomes of containers that end."""
    return str((pod.get("spec") or {}).get("restartPolicy") or ALWAYS)


def mark_terminated(
    container: TrackedContainer, termination: ContainerTerminated, backoff: RestartBackoff
) -> TrackedContainer:
    """The tale of a container that has just ended."""
    forgiven = termination.finished - termination.started >= backoff.reset_after
    return replace(container, state=termination, crashes=1 if forgiven else container.crashes + 1)


def mark_started(container: TrackedContainer, state: ContainerRunning) -> TrackedContainer:
    """The tale of a container that has just been started, maybe not for the first time."""
    if isinstance(container.state, ContainerTerminated):
        return replace(
            container,
            state=state,
            last_termination=container.state,
            restart_count=container.restart_count + 1,
        )
    return replace(container, state=state)


def should_restart(container: TrackedContainer, policy: str) -> bool:
    """Whether a container that ended is to run again."""
    assert isinstance(container.state, ContainerTerminated)
    if container.role is ContainerRole.SIDECAR:
        return True
    if policy == NEVER or (container.role is ContainerRole.INIT and container.state.succeeded):
        return False
    return policy == ALWAYS or not container.state.succeeded


def is_initialized(containers: Sequence[TrackedContainer]) -> bool:
    """Whether every init container is through, and every sidecar has begun."""
    return all(
        tale.has_started
        if tale.role is ContainerRole.SIDECAR
        else tale.role is ContainerRole.MAIN
        or (isinstance(tale.state, ContainerTerminated) and tale.state.succeeded)
        for tale in containers
    )


def decide_actions(
    containers: Sequence[TrackedContainer], policy: str, now: float, backoff: RestartBackoff
) -> PodActions:
    """What to do with the containers of a pod."""
    todo = _ActionsBuilder(policy, now, backoff)
    mains = [tale for tale in containers if tale.role is ContainerRole.MAIN]
    finished = [
        tale
        for tale in mains
        if isinstance(tale.state, ContainerTerminated) and not should_restart(tale, policy)
    ]
    if len(finished) == len(mains):
        return _finish_pod(containers, SUCCEEDED if all(_has_succeeded(tale) for tale in mains) else FAILED)
    for tale in containers:
        if tale.role is ContainerRole.MAIN:
            continue
        if tale.role is ContainerRole.INIT and isinstance(tale.state, ContainerTerminated):
            if tale.state.succeeded:
                continue
            if policy == NEVER:
                return _finish_pod(containers, FAILED)
        todo.add(tale)
        through = tale.role is ContainerRole.SIDECAR and (
            isinstance(tale.state, ContainerRunning) or is_initialized(containers)
        )
        if not through:
            return todo.build()
    for tale in mains:
        if not (isinstance(tale.state, ContainerTerminated) and not should_restart(tale, policy)):
            todo.add(tale)
    return todo.build()


def _has_succeeded(container: TrackedContainer) -> bool:
    return isinstance(container.state, ContainerTerminated) and container.state.succeeded


def _finish_pod(containers: Sequence[TrackedContainer], phase: str) -> PodActions:
    """End a pod: what still runs stops first, and its end is what counts then."""
    running = tuple(tale.name for tale in containers if isinstance(tale.state, ContainerRunning))
    return PodActions(stop=running) if running else PodActions(final_phase=phase)


class _ActionsBuilder:
    """What `decide_actions` gathers."""

    def __init__(self, policy: str, now: float, backoff: RestartBackoff) -> None:
        self._policy, self._now, self._backoff = policy, now, backoff
        self._start: list[str] = []
        self._recheck_times: list[float] = []

    def add(self, container: TrackedContainer) -> None:
        """Start a container that does not run, or note when to."""
        moment = compute_next_start(container, self._backoff)
        if moment is None:
            return
        # No wait is longer than the longest: a clock that was set back is not waited for.
        if not self._now < moment <= self._now + self._backoff.longest:
            self._start.append(container.name)
        else:
            self._recheck_times.append(moment)

    def build(self) -> PodActions:
        return PodActions(start=tuple(self._start), recheck_at=min(self._recheck_times, default=None))


def compute_next_start(container: TrackedContainer, backoff: RestartBackoff) -> float | None:
    """When a container may start; None while it runs."""
    state = container.state
    if isinstance(state, ContainerRunning):
        return None
    if isinstance(state, ContainerWaiting):
        return state.until
    return state.finished + backoff.compute_delay(container.crashes)


def compute_phase(containers: Sequence[TrackedContainer], policy: str) -> str:
    """The phase of a pod, from its containers alone."""
    for tale in containers:
        if (
            tale.role is ContainerRole.INIT
            and isinstance(tale.state, ContainerTerminated)
            and not tale.state.succeeded
        ):
            if policy == NEVER and not _is_any_running(containers):
                return FAILED
            return PENDING
    if not is_initialized(containers):
        return PENDING
    mains = [tale for tale in containers if tale.role is ContainerRole.MAIN]
    if any(not tale.has_started for tale in mains):
        return PENDING
    if all(
        isinstance(tale.state, ContainerTerminated) and not should_restart(tale, policy) for tale in mains
    ):
        if _is_any_running(containers):
            return RUNNING
        return SUCCEEDED if all(_has_succeeded(tale) for tale in mains) else FAILED
    return RUNNING


def compute_terminated_phase(containers: Sequence[TrackedContainer]) -> str:
    """The phase of a pod that was ended from outside: it went well only if all its containers did."""
    mains = [tale for tale in containers if tale.role is ContainerRole.MAIN]
    return SUCCEEDED if all(_has_succeeded(tale) for tale in mains) else FAILED


def _is_any_running(containers: Sequence[TrackedContainer]) -> bool:
    return any(isinstance(tale.state, ContainerRunning) for tale in containers)
