"""A pod's status, as its node tells it: phase, conditions, and how each container is.

Theory of operation: everything is worked out anew from the tales of the containers and from what hinders the
pod as a whole; only the moments at which conditions last changed are taken from the status before. A
container that waits to be started again shows how it ended as its last state. The result is what the node
answers for and nothing else, so it can be merged into a status that others write to as well.

Rules for this file: pure; documents go in and come out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dray.clock import timestamp
from dray.node.pods.restart_policy import (
    FAILED,
    OVER,
    Ended,
    Pace,
    Role,
    Running,
    State,
    Tale,
    Waiting,
    initialized,
    next_start,
    phase_of,
    policy_of,
    restarts_again,
)

Document = dict[str, Any]

READY_TO_START, INITIALIZED = "PodReadyToStartContainers", "Initialized"
CONTAINERS_READY, READY = "ContainersReady", "Ready"
OURS: Final = (READY_TO_START, INITIALIZED, CONTAINERS_READY, READY)
"""The conditions a node answers for, in the order people read them."""

_BACK_OFF: Final = "CrashLoopBackOff"
_UNREADABLE: Final = 137
"""The exit code of a container of which a status does not tell it: nobody may count on it."""


class Health(msgspec.Struct, frozen=True):
    """How one device of a claim is: `name` is `claim:ENTRY` or `claim:ENTRY/REQUEST`."""

    name: str
    device: str
    """`DRIVER/POOL/DEVICE`."""
    health: str
    message: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What is true of the pod as a whole, whatever its containers say: its phase, and why."""

    phase: str
    reason: str = ""
    message: str = ""


class Scene(msgspec.Struct, frozen=True):
    """What a status is made from, besides the pod."""

    tales: tuple[Tale, ...]
    now: float
    address: str = ""
    """That of the node; its pods share it."""
    claims_ready: bool = False
    hindrance: Waiting | None = None
    """Why no container can start, for example a claim that is refused."""
    verdict: Verdict | None = None
    health: Mapping[str, tuple[Health, ...]] = {}
    """By container."""
    started: str = ""
    """When the node took the pod."""


def moment(seconds: float) -> str:
    """Seconds since the epoch as an object tells them."""
    return timestamp(datetime.fromtimestamp(math.floor(seconds), UTC))


def status_of(pod: Mapping[str, Any], scene: Scene, pace: Pace) -> Document:
    """The part of a pod's status that its node answers for."""
    phase = _phase(pod, scene)
    containers = [_container(pod, tale, scene, pace) for tale in scene.tales]
    inits = [one for one, tale in zip(containers, scene.tales, strict=True) if tale.role is not Role.MAIN]
    mains = [one for one, tale in zip(containers, scene.tales, strict=True) if tale.role is Role.MAIN]
    before = _fields(pod.get("status"))
    verdict = scene.verdict or Verdict(phase)
    status: Document = {
        "phase": phase,
        "conditions": _conditions(before, scene, phase, [*inits, *mains]),
        "reason": verdict.reason or None,
        "message": verdict.message or None,
        "startTime": before.get("startTime") or scene.started or moment(scene.now),
        "containerStatuses": mains,
    }
    if inits:
        status["initContainerStatuses"] = inits
    if scene.address:
        status |= {"hostIP": scene.address, "hostIPs": [{"ip": scene.address}]}
        if scene.claims_ready or any(tale.begun for tale in scene.tales):
            status |= {"podIP": scene.address, "podIPs": [{"ip": scene.address}]}
    return status


def _phase(pod: Mapping[str, Any], scene: Scene) -> str:
    if scene.verdict is not None:
        return scene.verdict.phase
    return phase_of(scene.tales, policy_of(pod))


# --- containers ---


def _container(pod: Mapping[str, Any], tale: Tale, scene: Scene, pace: Pace) -> Document:
    shown, last = _shown(pod, tale, scene, pace)
    running = isinstance(tale.state, Running)
    over = isinstance(tale.state, Ended) and tale.role is Role.INIT and tale.state.well
    document: Document = {
        "name": tale.name,
        "image": tale.image,
        "imageID": tale.image,
        "ready": running if tale.role is not Role.INIT else over,
        "started": running,
        "restartCount": tale.restarts,
        "state": _state(shown),
        "lastState": {} if last is None else _state(last),
    }
    known = shown if not isinstance(shown, Waiting) else last
    if known is not None and known.id:
        document["containerID"] = known.id
    health = scene.health.get(tale.name)
    if health:
        document["allocatedResourcesStatus"] = _resources(health)
    return document


def _shown(pod: Mapping[str, Any], tale: Tale, scene: Scene, pace: Pace) -> tuple[State, Ended | None]:
    """A container's state and last state, for people."""
    state = tale.state
    if isinstance(state, Ended) and scene.verdict is None and restarts_again(tale, policy_of(pod)):
        moment_due = next_start(tale, pace)
        if moment_due is not None and moment_due > scene.now:
            return Waiting(_BACK_OFF, _back_off(pod, tale, pace)), state
        if scene.hindrance is not None:
            return scene.hindrance, state
        return state, tale.last
    if isinstance(state, Waiting) and scene.hindrance is not None and not state.tries:
        return scene.hindrance, tale.last
    return state, tale.last


def _back_off(pod: Mapping[str, Any], tale: Tale, pace: Pace) -> str:
    metadata = pod.get("metadata") or {}
    whose = f"{metadata.get('name')}_{metadata.get('namespace')}({metadata.get('uid')})"
    return f"back-off {_span(pace.after(tale.crashes))} restarting failed container={tale.name} pod={whose}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _state(state: State) -> Document:
    if isinstance(state, Running):
        return {"running": {"startedAt": moment(state.started)}}
    if isinstance(state, Waiting):
        told = {"reason": state.reason, "message": state.message}
        return {"waiting": {name: value for name, value in told.items() if value}}
    document: Document = {
        "exitCode": state.code,
        "reason": state.reason or ("Completed" if state.well else "Error"),
        "startedAt": moment(state.started),
        "finishedAt": moment(state.finished),
    }
    more = {"signal": state.signal, "message": state.message, "containerID": state.id}
    return {"terminated": document | {name: value for name, value in more.items() if value}}


def _resources(health: Sequence[Health]) -> list[Document]:
    found: dict[str, list[Document]] = {}
    for one in health:
        entry = {"resourceID": one.device, "health": one.health}
        if one.message:
            entry["message"] = one.message
        found.setdefault(one.name, []).append(entry)
    return [{"name": name, "resources": entries} for name, entries in found.items()]


# --- conditions ---


def _conditions(
    before: Mapping[str, Any], scene: Scene, phase: str, containers: Sequence[Document]
) -> list[Document]:
    """Ours; those of others are not touched."""
    known = {one.get("type"): one for one in _rows(before.get("conditions"))}
    ready = _readiness(scene, phase, containers)
    begun = scene.claims_ready and phase not in OVER
    told = {
        READY_TO_START: (begun, "", ""),
        INITIALIZED: _initialization(scene, phase),
        CONTAINERS_READY: ready,
        READY: ready,
    }
    return [_condition(name, *told[name], known.get(name), moment(scene.now)) for name in OURS]


def _initialization(scene: Scene, phase: str) -> tuple[bool, str, str]:
    if phase not in OVER and not initialized(scene.tales):
        names = [tale.name for tale in scene.tales if tale.role is not Role.MAIN and not _through(tale)]
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(names)}]"
    return True, "PodCompleted" if phase == "Succeeded" else "", ""


def _through(tale: Tale) -> bool:
    if tale.role is Role.SIDECAR:
        return tale.begun
    return isinstance(tale.state, Ended) and tale.state.well


def _readiness(scene: Scene, phase: str, containers: Sequence[Document]) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == FAILED:
        return False, "PodFailed", ""
    inits = {tale.name for tale in scene.tales if tale.role is Role.INIT}
    missing = [one["name"] for one in containers if not one["ready"] and one["name"] not in inits]
    if missing:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(missing)}]"
    return True, "", ""


def _condition(
    name: str, status: bool, reason: str, message: str, before: Mapping[str, Any] | None, now: str
) -> Document:
    word = "True" if status else "False"
    since = before.get("lastTransitionTime") if before and before.get("status") == word else None
    condition: Document = {"type": name, "status": word, "lastProbeTime": None}
    # What is empty is named, too: a merge would keep the words of the status before.
    condition |= {"reason": reason or None, "message": message or None}
    return condition | {"lastTransitionTime": since or now}


# --- reading a status back ---


def remembered(pod: Mapping[str, Any], tales: Iterable[Tale]) -> tuple[Tale, ...]:
    """The tales of a pod as its status tells them; containers that ran then are where they were."""
    status = _fields(pod.get("status"))
    told: dict[str, Mapping[str, Any]] = {
        str(one.get("name")): one
        for field in ("initContainerStatuses", "containerStatuses")
        for one in _rows(status.get(field))
    }
    return tuple(_recalled(tale, told.get(tale.name)) for tale in tales)


def _recalled(tale: Tale, told: Mapping[str, Any] | None) -> Tale:
    if told is None:
        return tale
    state, last = _fields(told.get("state")), _read_end(_fields(told.get("lastState")))
    count = max(_number(told.get("restartCount"), 0), 0)
    end, running = _read_end(state), state.get("running")
    recalled = msgspec.structs.replace(tale, restarts=count, last=last)
    if running is not None:
        began = seconds_of(_fields(running).get("startedAt"))
        return msgspec.structs.replace(recalled, state=Running(str(told.get("containerID") or ""), began))
    if end is not None:
        return msgspec.structs.replace(recalled, state=end, crashes=1)
    if last is not None and _fields(state.get("waiting")).get("reason") == _BACK_OFF:
        return msgspec.structs.replace(recalled, state=last, last=None, crashes=count + 1)
    if last is not None:
        return msgspec.structs.replace(recalled, state=last, last=None, crashes=1)
    return recalled


def _read_end(state: Mapping[str, Any]) -> Ended | None:
    end = state.get("terminated")
    if not isinstance(end, Mapping):
        return None
    return Ended(
        code=_number(end.get("exitCode"), _UNREADABLE),
        reason=str(end.get("reason") or ""),
        message=str(end.get("message") or ""),
        signal=_number(end.get("signal"), 0),
        started=seconds_of(end.get("startedAt")),
        finished=seconds_of(end.get("finishedAt")),
        id=str(end.get("containerID") or ""),
    )


def _fields(value: Any) -> Mapping[str, Any]:
    """An object of a status; others may have written anything there."""
    return value if isinstance(value, Mapping) else {}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def _number(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def seconds_of(text: Any) -> float:
    """A moment in an object as seconds since the epoch."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
