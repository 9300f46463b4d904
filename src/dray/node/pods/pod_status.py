"""Builds the status of a pod: phase, conditions and container statuses.

Theory of operation: the status is computed from the tracked containers and from what blocks the pod as a
whole; only the transition times of conditions come from the previous status, written or not. A container that
waits for its restart has its termination as last state. The result has only the fields that the node owns, so
it can be merged into a status that other clients write to as well.

Rules for this file: pure; from documents to documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dray.clock import format_timestamp
from dray.node.pods.restart_policy import (
    FAILED,
    TERMINAL_PHASES,
    ContainerRole,
    ContainerRunning,
    ContainerState,
    ContainerTerminated,
    ContainerWaiting,
    RestartBackoff,
    TrackedContainer,
    compute_next_start,
    compute_phase,
    get_restart_policy,
    is_initialized,
    should_restart,
)

Document = dict[str, Any]

READY_TO_START, INITIALIZED = "PodReadyToStartContainers", "Initialized"
CONTAINERS_READY, READY = "ContainersReady", "Ready"
OWNED_CONDITIONS: Final = (READY_TO_START, INITIALIZED, CONTAINERS_READY, READY)
"""The conditions that a node owns, in reading order."""

_CRASH_LOOP_BACKOFF: Final = "CrashLoopBackOff"
_UNKNOWN_EXIT_CODE: Final = 137
"""The exit code for a termination whose status has none."""


class ClaimDeviceHealth(msgspec.Struct, frozen=True):
    """The health of one device of a claim: `name` is `claim:ENTRY` or `claim:ENTRY/REQUEST`."""

    name: str
    resource_id: str
    health: str
    message: str = ""


class PodPhaseOverride(msgspec.Struct, frozen=True):
    """A phase and reason of the pod as a whole that override its containers."""

    phase: str
    reason: str = ""
    message: str = ""


class PodStatusInputs(msgspec.Struct, frozen=True):
    """The inputs of a status, besides the pod."""

    containers: tuple[TrackedContainer, ...]
    now: float
    address: str = ""
    """The address of the node, which its pods share."""
    claims_ready: bool = False
    blocker: ContainerWaiting | None = None
    """Why no container can start, for example a refused claim."""
    phase_override: PodPhaseOverride | None = None
    health: Mapping[str, tuple[ClaimDeviceHealth, ...]] = {}
    """By container."""
    start_time: str = ""
    """When the node accepted the pod."""
    previous: Mapping[str, Any] = {}
    """The status built before, which the server may not have yet."""


def format_time(seconds: float) -> str:
    """Format seconds since the epoch as a timestamp of the API."""
    return format_timestamp(datetime.fromtimestamp(math.floor(seconds), UTC))


def build_pod_status(pod: Mapping[str, Any], inputs: PodStatusInputs, backoff: RestartBackoff) -> Document:
    """Build the part of a pod's status that its node owns."""
    phase = _choose_phase(pod, inputs)
    containers = [_build_container_status(pod, tracked, inputs, backoff) for tracked in inputs.containers]
    inits = [
        one
        for one, tracked in zip(containers, inputs.containers, strict=True)
        if tracked.role is not ContainerRole.MAIN
    ]
    mains = [
        one
        for one, tracked in zip(containers, inputs.containers, strict=True)
        if tracked.role is ContainerRole.MAIN
    ]
    before = _to_mapping(pod.get("status"))
    override = inputs.phase_override or PodPhaseOverride(phase)
    status: Document = {
        "phase": phase,
        "conditions": _build_conditions(before, inputs, phase, [*inits, *mains]),
        "reason": override.reason or None,
        "message": override.message or None,
        "startTime": before.get("startTime") or inputs.start_time or format_time(inputs.now),
        "containerStatuses": mains,
    }
    if inits:
        status["initContainerStatuses"] = inits
    debuggers = _to_rows(_to_mapping(pod.get("spec")).get("ephemeralContainers"))
    if debuggers:
        status["ephemeralContainerStatuses"] = [_build_ephemeral_status(one) for one in debuggers]
    if inputs.address:
        status |= {"hostIP": inputs.address, "hostIPs": [{"ip": inputs.address}]}
        if inputs.claims_ready or any(tracked.has_started for tracked in inputs.containers):
            status |= {"podIP": inputs.address, "podIPs": [{"ip": inputs.address}]}
    return status


def _choose_phase(pod: Mapping[str, Any], inputs: PodStatusInputs) -> str:
    if inputs.phase_override is not None:
        return inputs.phase_override.phase
    return compute_phase(inputs.containers, get_restart_policy(pod))


# --- containers ---


def _build_container_status(
    pod: Mapping[str, Any], container: TrackedContainer, inputs: PodStatusInputs, backoff: RestartBackoff
) -> Document:
    shown, last = _choose_states(pod, container, inputs, backoff)
    running = isinstance(container.state, ContainerRunning)
    completed = (
        isinstance(container.state, ContainerTerminated)
        and container.role is ContainerRole.INIT
        and container.state.succeeded
    )
    document: Document = {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "ready": running if container.role is not ContainerRole.INIT else completed,
        "started": running,
        "restartCount": container.restart_count,
        "state": _build_state(shown),
        "lastState": {} if last is None else _build_state(last),
    }
    known = shown if not isinstance(shown, ContainerWaiting) else last
    if known is not None and known.id:
        document["containerID"] = known.id
    health = inputs.health.get(container.name)
    if health:
        document["allocatedResourcesStatus"] = _build_resources(health)
    return document


def _build_ephemeral_status(container: Mapping[str, Any]) -> Document:
    """The status of an ephemeral container, which this agent does not run: whoever waits for it sees why."""
    message = "this node does not run ephemeral containers"
    return {
        "name": container.get("name"),
        "image": container.get("image"),
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "EphemeralContainersNotSupported", "message": message}},
        "lastState": {},
    }


def _choose_states(
    pod: Mapping[str, Any], container: TrackedContainer, inputs: PodStatusInputs, backoff: RestartBackoff
) -> tuple[ContainerState, ContainerTerminated | None]:
    """Choose the displayed state and last state of a container."""
    state = container.state
    if (
        isinstance(state, ContainerTerminated)
        and inputs.phase_override is None
        and should_restart(container, get_restart_policy(pod))
    ):
        next_start = compute_next_start(container, backoff)
        if next_start is not None and next_start > inputs.now:
            return ContainerWaiting(
                _CRASH_LOOP_BACKOFF, _build_backoff_message(pod, container, backoff)
            ), state
        if inputs.blocker is not None:
            return inputs.blocker, state
        return state, container.last_termination
    if isinstance(state, ContainerWaiting) and inputs.blocker is not None and not state.attempts:
        return inputs.blocker, container.last_termination
    return state, container.last_termination


def _build_backoff_message(
    pod: Mapping[str, Any], container: TrackedContainer, backoff: RestartBackoff
) -> str:
    metadata = pod.get("metadata") or {}
    pod_name = f"{metadata.get('name')}_{metadata.get('namespace')}({metadata.get('uid')})"
    return (
        f"back-off {_format_duration(backoff.compute_delay(container.crashes))} restarting "
        f"failed container={container.name} pod={pod_name}"
    )


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _build_state(state: ContainerState) -> Document:
    if isinstance(state, ContainerRunning):
        return {"running": {"startedAt": format_time(state.started)}}
    if isinstance(state, ContainerWaiting):
        waiting = {"reason": state.reason, "message": state.message}
        return {"waiting": {name: value for name, value in waiting.items() if value}}
    document: Document = {
        "exitCode": state.code,
        "reason": state.reason or ("Completed" if state.succeeded else "Error"),
        "startedAt": format_time(state.started),
        "finishedAt": format_time(state.finished),
    }
    optional = {"signal": state.signal, "message": state.message, "containerID": state.id}
    return {"terminated": document | {name: value for name, value in optional.items() if value}}


def _build_resources(health: Sequence[ClaimDeviceHealth]) -> list[Document]:
    found: dict[str, dict[str, Document]] = {}
    for one in health:
        entry = {"resourceID": one.resource_id, "health": one.health}
        if one.message:
            entry["message"] = one.message
        # Several devices may have the same CDI name; an ID is unique within a resource.
        found.setdefault(one.name, {}).setdefault(one.resource_id, entry)
    return [{"name": name, "resources": list(entries.values())} for name, entries in found.items()]


# --- conditions ---


def _build_conditions(
    before: Mapping[str, Any], inputs: PodStatusInputs, phase: str, containers: Sequence[Document]
) -> list[Document]:
    """Build the conditions that the node owns; those of others are not included."""
    rows = (*_to_rows(before.get("conditions")), *_to_rows(inputs.previous.get("conditions")))
    known = {one.get("type"): one for one in rows}
    ready = _evaluate_ready(inputs, phase, containers)
    can_start = inputs.claims_ready and phase not in TERMINAL_PHASES
    values = {
        READY_TO_START: (can_start, "", ""),
        INITIALIZED: _evaluate_initialized(inputs, phase),
        CONTAINERS_READY: ready,
        READY: ready,
    }
    return [
        _build_condition(name, *values[name], known.get(name), format_time(inputs.now))
        for name in OWNED_CONDITIONS
    ]


def _evaluate_initialized(inputs: PodStatusInputs, phase: str) -> tuple[bool, str, str]:
    if phase not in TERMINAL_PHASES and not is_initialized(inputs.containers):
        names = [
            tracked.name
            for tracked in inputs.containers
            if tracked.role is not ContainerRole.MAIN and not _has_completed(tracked)
        ]
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(names)}]"
    return True, "PodCompleted" if phase == "Succeeded" else "", ""


def _has_completed(container: TrackedContainer) -> bool:
    if container.role is ContainerRole.SIDECAR:
        return container.has_started
    return isinstance(container.state, ContainerTerminated) and container.state.succeeded


def _evaluate_ready(
    inputs: PodStatusInputs, phase: str, containers: Sequence[Document]
) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == FAILED:
        return False, "PodFailed", ""
    inits = {tracked.name for tracked in inputs.containers if tracked.role is ContainerRole.INIT}
    missing = [one["name"] for one in containers if not one["ready"] and one["name"] not in inits]
    if missing:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(missing)}]"
    return True, "", ""


def _build_condition(
    name: str, status: bool, reason: str, message: str, before: Mapping[str, Any] | None, now: str
) -> Document:
    word = "True" if status else "False"
    since = before.get("lastTransitionTime") if before and before.get("status") == word else None
    condition: Document = {"type": name, "status": word, "lastProbeTime": None}
    # Empty fields are null: a merge would keep the values of the previous status.
    condition |= {"reason": reason or None, "message": message or None}
    return condition | {"lastTransitionTime": since or now}


# --- reading a status back ---


def restore_containers(
    pod: Mapping[str, Any], containers: Iterable[TrackedContainer]
) -> tuple[TrackedContainer, ...]:
    """Restore the states of a pod's containers from its status."""
    status = _to_mapping(pod.get("status"))
    reported: dict[str, Mapping[str, Any]] = {
        str(one.get("name")): one
        for field in ("initContainerStatuses", "containerStatuses")
        for one in _to_rows(status.get(field))
    }
    return tuple(_restore_container(tracked, reported.get(tracked.name)) for tracked in containers)


def _restore_container(container: TrackedContainer, reported: Mapping[str, Any] | None) -> TrackedContainer:
    if reported is None:
        return container
    state, last = (
        _to_mapping(reported.get("state")),
        _parse_terminated(_to_mapping(reported.get("lastState"))),
    )
    count = max(_to_int(reported.get("restartCount"), 0), 0)
    end, running = _parse_terminated(state), state.get("running")
    restored = msgspec.structs.replace(container, restart_count=count, last_termination=last)
    if running is not None:
        started = parse_time(_to_mapping(running).get("startedAt"))
        return msgspec.structs.replace(
            restored, state=ContainerRunning(str(reported.get("containerID") or ""), started)
        )
    if end is not None:
        return msgspec.structs.replace(restored, state=end, crashes=1)
    if last is not None and _to_mapping(state.get("waiting")).get("reason") == _CRASH_LOOP_BACKOFF:
        return msgspec.structs.replace(restored, state=last, last_termination=None, crashes=count + 1)
    if last is not None:
        return msgspec.structs.replace(restored, state=last, last_termination=None, crashes=1)
    return restored


def _parse_terminated(state: Mapping[str, Any]) -> ContainerTerminated | None:
    end = state.get("terminated")
    if not isinstance(end, Mapping):
        return None
    return ContainerTerminated(
        code=_to_int(end.get("exitCode"), _UNKNOWN_EXIT_CODE),
        reason=str(end.get("reason") or ""),
        message=str(end.get("message") or ""),
        signal=_to_int(end.get("signal"), 0),
        started=parse_time(end.get("startedAt")),
        finished=parse_time(end.get("finishedAt")),
        id=str(end.get("containerID") or ""),
    )


def _to_mapping(value: Any) -> Mapping[str, Any]:
    """Return a value of a status if it is an object; other clients may have written anything."""
    return value if isinstance(value, Mapping) else {}


def _to_rows(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def _to_int(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def parse_time(text: Any) -> float:
    """Parse a timestamp of the API to seconds since the epoch; 0 when it is invalid."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
