"""Recovery of a pod's containers after a restart of the agent.

Theory of operation: there are two sources. The pod's status has what the earlier agent last wrote; the
runtime has what exists, and takes precedence. A container that should run and does not exist has ended
unobserved, unless the agent stopped it on purpose, to be started again.

Rules for this file: pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dray.node.containers.runtime.base import UNKNOWN, ContainerExit, FoundContainer
from dray.node.pods.restart_policy import (
    ContainerRunning,
    ContainerTerminated,
    ContainerWaiting,
    RestartBackoff,
    TrackedContainer,
)

_LOST_MESSAGE = "The container could not be located when the agent started"
_KILLED_EXIT_CODE = 137
_PAUSED_REASON = "StoppedWithAgent"


def build_termination(exit: ContainerExit, container_id: str) -> ContainerTerminated:
    """Build the terminated state of a container from its exit."""
    return ContainerTerminated(
        exit.code,
        exit.reason,
        exit.message,
        exit.signal,
        exit.started_at.timestamp(),
        exit.finished_at.timestamp(),
        container_id,
    )


def recover_containers(
    containers: Sequence[TrackedContainer],
    found: Iterable[FoundContainer],
    prefix: str,
    backoff: RestartBackoff,
    *,
    resumed: bool = False,
) -> tuple[TrackedContainer, ...]:
    """Update a pod's containers by those the runtime has found; `prefix` is the runtime's name."""
    attempts: dict[str, list[FoundContainer]] = {}
    for one in sorted(found, key=lambda one: one.id.attempt):
        attempts.setdefault(one.id.name, []).append(one)
    return tuple(
        _recover_container(tracked, attempts.get(tracked.name, []), prefix, backoff, resumed)
        for tracked in containers
    )


def _recover_container(
    container: TrackedContainer,
    attempts: Sequence[FoundContainer],
    prefix: str,
    backoff: RestartBackoff,
    resumed: bool,
) -> TrackedContainer:
    if not attempts:
        return _recover_missing(container, resumed)
    newest = attempts[-1]
    last = _find_last_termination(container, attempts, prefix)
    known = replace(
        container, restart_count=newest.id.attempt, last_termination=last, crashes=newest.id.attempt
    )
    if newest.exit is None:
        return replace(
            known, state=ContainerRunning(f"{prefix}://{newest.id}", newest.started_at.timestamp())
        )
    end = build_termination(newest.exit, f"{prefix}://{newest.id}")
    reset = end.finished - end.started >= backoff.reset_after
    return replace(known, state=end, crashes=1 if reset else newest.id.attempt + 1)


def _find_last_termination(
    container: TrackedContainer, attempts: Sequence[FoundContainer], prefix: str
) -> ContainerTerminated | None:
    """Return the termination of the attempt before the newest one."""
    if len(attempts) > 1 and (exit := attempts[-2].exit) is not None:
        return build_termination(exit, f"{prefix}://{attempts[-2].id}")
    if isinstance(container.state, ContainerTerminated) and container.restart_count < attempts[-1].id.attempt:
        return container.state
    return container.last_termination


def _recover_missing(container: TrackedContainer, resumed: bool) -> TrackedContainer:
    if not isinstance(container.state, ContainerRunning):
        return container
    started = container.state.started
    if resumed:
        stopped = ContainerTerminated(
            _KILLED_EXIT_CODE, _PAUSED_REASON, "", 0, started, started, container.state.id
        )
        return replace(
            container,
            state=ContainerWaiting(),
            last_termination=stopped,
            restart_count=container.restart_count + 1,
        )
    end = ContainerTerminated(
        _KILLED_EXIT_CODE, UNKNOWN, _LOST_MESSAGE, 0, started, started, container.state.id
    )
    return replace(container, state=end, crashes=container.crashes + 1)
