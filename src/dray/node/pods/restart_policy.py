"""What is to be done with the containers of a pod: which start now, which stop, and whether the pod is over.

Theory of operation: a `Tale` is what is known of one container: what it is for, how it is, how it ended last,
and how often it was started again. `due` reads the tales of a pod in the order of its spec. Init containers
run one after the other; a sidecar among them (an init container that is restarted always) goes on beside all
that follow. The others run together when all of these are through. A container that ended starts again when
the pod's policy says so: at once the first time, then after waits that double. One that ran long enough is
forgiven. When no container will start again the pod is over, and its sidecars have nothing left to accompany.

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
OVER: Final = frozenset({SUCCEEDED, FAILED})
"""Phases that no pod leaves."""


class Role(Enum):
    """What a container is for."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class Waiting(msgspec.Struct, frozen=True):
    """Not started yet, and why. `until` is when to try again, after a try that failed."""

    reason: str = "ContainerCreating"
    message: str = ""
    until: float = 0.0
    tries: int = 0


class Running(msgspec.Struct, frozen=True):
    """It runs."""

    id: str
    started: float


class Ended(msgspec.Struct, frozen=True):
    """It ran, and is over."""

    code: int
    reason: str = ""
    message: str = ""
    signal: int = 0
    started: float = 0.0
    finished: float = 0.0
    id: str = ""

    @property
    def well(self) -> bool:
        """Whether it did what it should."""
        return self.code == 0


State = Waiting | Running | Ended


class Tale(msgspec.Struct, frozen=True):
    """What is known of one container."""

    name: str
    role: Role = Role.MAIN
    image: str = ""
    state: State = Waiting()
    last: Ended | None = None
    restarts: int = 0
    crashes: int = 0
    """Ends in a row that were not forgiven."""

    @property
    def begun(self) -> bool:
        """Whether it was ever started."""
        return not isinstance(self.state, Waiting) or self.last is not None


class Pace(msgspec.Struct, frozen=True):
    """How long to wait before a container starts again, in seconds, and when it is forgiven."""

    first: float = 10.0
    longest: float = 300.0
    forgiven: float = 600.0

    def after(self, crashes: int) -> float:
        """The wait after so many ends in a row; the first one costs nothing."""
        if crashes <= 1:
            return 0.0
        return float(min(self.first * 2.0 ** min(crashes - 2, 30), self.longest))


class Todo(msgspec.Struct, frozen=True):
    """What to do now."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    again: float | None = None
    """When to look again, if nothing happens before."""
    over: str = ""
    """The phase in which the pod ends, when nothing is left to do."""


def wrong_with(pod: Document) -> str:
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


def tales_of(pod: Document) -> tuple[Tale, ...]:
    """The containers of a pod as its spec names them, none of them started."""
    spec = pod.get("spec") or {}
    inits = spec.get("initContainers") or ()
    through = Waiting("PodInitializing") if inits else Waiting()
    return (
        *(Tale(one["name"], _role(one), str(one.get("image") or ""), through) for one in inits),
        *(
            Tale(one["name"], Role.MAIN, str(one.get("image") or ""), through)
            for one in spec.get("containers") or ()
        ),
    )


def _role(container: Document) -> Role:
    return Role.SIDECAR if container.get("restartPolicy") == ALWAYS else Role.INIT


def policy_of(pod: Document) -> str:
    """What becomes of containers that end."""
    return str((pod.get("spec") or {}).get("restartPolicy") or ALWAYS)


def ended(tale: Tale, how: Ended, pace: Pace) -> Tale:
    """The tale of a container that has just ended."""
    forgiven = how.finished - how.started >= pace.forgiven
    return replace(tale, state=how, crashes=1 if forgiven else tale.crashes + 1)


def started(tale: Tale, now: Running) -> Tale:
    """The tale of a container that has just been started, maybe not for the first time."""
    if isinstance(tale.state, Ended):
        return replace(tale, state=now, last=tale.state, restarts=tale.restarts + 1)
    return replace(tale, state=now)


def restarts_again(tale: Tale, policy: str) -> bool:
    """Whether a container that ended is to run again."""
    assert isinstance(tale.state, Ended)
    if tale.role is Role.SIDECAR:
        return True
    if policy == NEVER or (tale.role is Role.INIT and tale.state.well):
        return False
    return policy == ALWAYS or not tale.state.well


def initialized(tales: Sequence[Tale]) -> bool:
    """Whether every init container is through, and every sidecar has begun."""
    return all(
        tale.begun
        if tale.role is Role.SIDECAR
        else tale.role is Role.MAIN or (isinstance(tale.state, Ended) and tale.state.well)
        for tale in tales
    )


def due(tales: Sequence[Tale], policy: str, now: float, pace: Pace) -> Todo:
    """What to do with the containers of a pod."""
    todo = _Todo(policy, now, pace)
    mains = [tale for tale in tales if tale.role is Role.MAIN]
    finished = [tale for tale in mains if isinstance(tale.state, Ended) and not restarts_again(tale, policy)]
    if len(finished) == len(mains):
        return _finish(tales, SUCCEEDED if all(_well(tale) for tale in mains) else FAILED)
    for tale in tales:
        if tale.role is Role.MAIN:
            continue
        if tale.role is Role.INIT and isinstance(tale.state, Ended):
            if tale.state.well:
                continue
            if policy == NEVER:
                return _finish(tales, FAILED)
        todo.look(tale)
        through = tale.role is Role.SIDECAR and (isinstance(tale.state, Running) or initialized(tales))
        if not through:
            return todo.settled()
    for tale in mains:
        if not (isinstance(tale.state, Ended) and not restarts_again(tale, policy)):
            todo.look(tale)
    return todo.settled()


def _well(tale: Tale) -> bool:
    return isinstance(tale.state, Ended) and tale.state.well


def _finish(tales: Sequence[Tale], phase: str) -> Todo:
    """End a pod: what still runs stops first, and its end is what counts then."""
    running = tuple(tale.name for tale in tales if isinstance(tale.state, Running))
    return Todo(stop=running) if running else Todo(over=phase)


class _Todo:
    """What `due` gathers."""

    def __init__(self, policy: str, now: float, pace: Pace) -> None:
        self._policy, self._now, self._pace = policy, now, pace
        self._start: list[str] = []
        self._again: list[float] = []

    def look(self, tale: Tale) -> None:
        """Start a container that does not run, or note when to."""
        moment = next_start(tale, self._pace)
        if moment is None:
            return
        # No wait is longer than the longest: a clock that was set back is not waited for.
        if not self._now < moment <= self._now + self._pace.longest:
            self._start.append(tale.name)
        else:
            self._again.append(moment)

    def settled(self) -> Todo:
        return Todo(start=tuple(self._start), again=min(self._again, default=None))


def next_start(tale: Tale, pace: Pace) -> float | None:
    """When a container may start; None while it runs."""
    state = tale.state
    if isinstance(state, Running):
        return None
    if isinstance(state, Waiting):
        return state.until
    return state.finished + pace.after(tale.crashes)


def phase_of(tales: Sequence[Tale], policy: str) -> str:
    """The phase of a pod, from its containers alone."""
    for tale in tales:
        if tale.role is Role.INIT and isinstance(tale.state, Ended) and not tale.state.well:
            if policy == NEVER and not _any_running(tales):
                return FAILED
            return PENDING
    if not initialized(tales):
        return PENDING
    mains = [tale for tale in tales if tale.role is Role.MAIN]
    if any(not tale.begun for tale in mains):
        return PENDING
    if all(isinstance(tale.state, Ended) and not restarts_again(tale, policy) for tale in mains):
        if _any_running(tales):
            return RUNNING
        return SUCCEEDED if all(_well(tale) for tale in mains) else FAILED
    return RUNNING


def cut_short(tales: Sequence[Tale]) -> str:
    """The phase of a pod that was ended from outside: it went well only if all its containers did."""
    mains = [tale for tale in tales if tale.role is Role.MAIN]
    return SUCCEEDED if all(_well(tale) for tale in mains) else FAILED


def _any_running(tales: Sequence[Tale]) -> bool:
    return any(isinstance(tale.state, Running) for tale in tales)
