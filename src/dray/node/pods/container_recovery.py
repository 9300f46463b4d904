"""Taking up the containers of a pod where an earlier agent left them.

Theory of operation: two tell of the past. The pod's status tells what the earlier agent last wrote; the
runtime tells what is there, and is believed first. A container that should run and is not there has ended
without anybody seeing it; unless it was stopped on purpose, to be started again.

Rules for this file: pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dray.node.containers.runtime.base import UNKNOWN, Exit, Found
from dray.node.pods.restart_policy import Ended, Pace, Running, Tale, Waiting

_LOST = "The container could not be located when the agent started"
_KILLED = 137
_PAUSED = "StoppedWithAgent"


def end_of(exit: Exit, name: str) -> Ended:
    """How a container ended, as its tale has it."""
    return Ended(
        exit.code,
        exit.reason,
        exit.message,
        exit.signal,
        exit.started_at.timestamp(),
        exit.finished_at.timestamp(),
        name,
    )


def taken_up(
    tales: Sequence[Tale], found: Iterable[Found], prefix: str, pace: Pace, *, resumed: bool = False
) -> tuple[Tale, ...]:
    """The tales of a pod as they are now; `found` are its containers, `prefix` is the runtime's name."""
    attempts: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda one: one.id.attempt):
        attempts.setdefault(one.id.name, []).append(one)
    return tuple(_taken(tale, attempts.get(tale.name, []), prefix, pace, resumed) for tale in tales)


def _taken(tale: Tale, attempts: Sequence[Found], prefix: str, pace: Pace, resumed: bool) -> Tale:
    if not attempts:
        return _missed(tale, resumed)
    newest = attempts[-1]
    last = _last(tale, attempts, prefix)
    known = replace(tale, restarts=newest.id.attempt, last=last, crashes=newest.id.attempt)
    if newest.exit is None:
        return replace(known, state=Running(f"{prefix}://{newest.id}", newest.started_at.timestamp()))
    end = end_of(newest.exit, f"{prefix}://{newest.id}")
    forgiven = end.finished - end.started >= pace.forgiven
    return replace(known, state=end, crashes=1 if forgiven else newest.id.attempt + 1)


def _last(tale: Tale, attempts: Sequence[Found], prefix: str) -> Ended | None:
    """How the attempt before the newest one ended."""
    if len(attempts) > 1 and (exit := attempts[-2].exit) is not None:
        return end_of(exit, f"{prefix}://{attempts[-2].id}")
    if isinstance(tale.state, Ended) and tale.restarts < attempts[-1].id.attempt:
        return tale.state
    return tale.last


def _missed(tale: Tale, resumed: bool) -> Tale:
    if not isinstance(tale.state, Running):
        return tale
    began = tale.state.started
    if resumed:
        stopped = Ended(_KILLED, _PAUSED, "", 0, began, began, tale.state.id)
        return replace(tale, state=Waiting(), last=stopped, restarts=tale.restarts + 1)
    end = Ended(_KILLED, UNKNOWN, _LOST, 0, began, began, tale.state.id)
    return replace(tale, state=end, crashes=tale.crashes + 1)
