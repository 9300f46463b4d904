"""Columns of pods: how many containers are ready, what the pod is doing, and which claims it has.

Theory of operation: the one word for a pod is found by asking from the general to the special, the last
answer counts: the phase, a reason of the pod, the init container that is not done, else the containers from
last to first, and over all of them that the pod is on its way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dray.server.tables.ages import human, moment
from dray.server.tables.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    Scene,
    at,
    condition,
    count,
    items,
    joined,
    shows,
    text,
)
from dray.server.tables.device_columns import claims_of

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class _Tally:
    """What a walk over the containers counts."""

    word: str
    ready: int = 0
    restarts: int = 0
    last: datetime | None = None

    def add_restarts(self, status: Any) -> None:
        self.restarts += count(status, "restartCount")
        ended = moment(at(status, "lastState.terminated.finishedAt"))
        if ended is not None and (self.last is None or ended > self.last):
            self.last = ended


def _tally(pod: Any) -> _Tally:
    tally = _Tally(text(pod, "status.reason") or text(pod, "status.phase"))
    if text(condition(pod, "PodScheduled"), "reason") == "SchedulingGated":
        tally.word = "SchedulingGated"
    initialising = _walk_inits(pod, tally)
    if not initialising or text(condition(pod, "Initialized"), "status") == "True":
        _walk_containers(pod, tally)
    if at(pod, "metadata.deletionTimestamp") is not None:
        if text(pod, "status.reason") == "NodeLost":
            tally.word = "Unknown"
        elif text(pod, "status.phase") not in _ENDED:
            tally.word = "Terminating"
    return tally


def _sidecars(pod: Any) -> set[str]:
    inits = items(pod, "spec.initContainers")
    return {text(one, "name") for one in inits if text(one, "restartPolicy") == "Always"}


def _walk_inits(pod: Any, tally: _Tally) -> bool:
    """Whether an init container is not done yet. Restarts of those that are done no longer count."""
    sidecars = _sidecars(pod)
    kept = _Tally("")
    for position, status in enumerate(items(pod, "status.initContainerStatuses")):
        tally.add_restarts(status)
        sidecar = text(status, "name") in sidecars
        if sidecar:
            kept.add_restarts(status)
        if sidecar and at(status, "started") is True:
            tally.ready += at(status, "ready") is True
        elif at(status, "state.terminated") is None or count(status, "state.terminated.exitCode") != 0:
            tally.word = f"Init:{_init_word(status, position, len(items(pod, 'spec.initContainers')))}"
            return True
    tally.restarts, tally.last = kept.restarts, kept.last
    return False


def _init_word(status: Any, position: int, total: int) -> str:
    if at(status, "state.terminated") is not None:
        return _end(status)
    waiting = text(status, "state.waiting.reason")
    return waiting if waiting not in ("", "PodInitializing") else f"{position}/{total}"


def _end(status: Any) -> str:
    """How a container ended."""
    reason = text(status, "state.terminated.reason")
    signal = count(status, "state.terminated.signal")
    code = count(status, "state.terminated.exitCode")
    return reason or (f"Signal:{signal}" if signal else f"ExitCode:{code}")


def _walk_containers(pod: Any, tally: _Tally) -> None:
    running = False
    for status in reversed(items(pod, "status.containerStatuses")):
        tally.add_restarts(status)
        waiting = text(status, "state.waiting.reason")
        if waiting:
            tally.word = waiting
        elif isinstance(at(status, "state.terminated"), Mapping):
            tally.word = _end(status)
        elif at(status, "ready") is True and at(status, "state.running") is not None:
            running = True
            tally.ready += 1
    if tally.word == "Completed" and running:
        is_ready = text(condition(pod, "Ready"), "status") == "True"
        tally.word = "Running" if is_ready else "NotReady"


def _ready(pod: Any, _: Scene) -> str:
    return f"{_tally(pod).ready}/{len(items(pod, 'spec.containers')) + len(_sidecars(pod))}"


def _status(pod: Any, _: Scene) -> str:
    return _tally(pod).word


def _restarts(pod: Any, scene: Scene) -> str:
    tally = _tally(pod)
    if not tally.restarts or tally.last is None:
        return str(tally.restarts)
    return f"{tally.restarts} ({human(scene.now - tally.last)} ago)"


def _address(pod: Any, _: Scene) -> str:
    addresses = [text(one, "ip") for one in items(pod, "status.podIPs")]
    return next(filter(None, addresses), "") or text(pod, "status.podIP", NONE)


def _gates(pod: Any, _: Scene) -> str:
    gates = [text(gate, "conditionType") for gate in items(pod, "spec.readinessGates")]
    met = [gate for gate in gates if text(condition(pod, gate), "status") == "True"]
    return f"{len(met)}/{len(gates)}" if gates else NONE


PODS: Final = (
    NAME,
    Column("Ready", _ready, about="Containers that are ready, of all"),
    Column("Status", _status, about="What the pod is doing"),
    Column("Restarts", _restarts, about="How often containers were started again"),
    AGE,
    Column("IP", _address, wide=True, about="The address of the pod"),
    Column("Node", shows("spec.nodeName", NONE), wide=True, about="Where it runs"),
    Column(
        "Nominated Node",
        shows("status.nominatedNodeName", NONE),
        wide=True,
        about="Where room is made for it",
    ),
    Column("Readiness Gates", _gates, wide=True, about="Conditions of others that are met, of all"),
    Column("Claims", lambda pod, _: joined(claims_of(pod)), wide=True, about="The claims it uses"),
)
