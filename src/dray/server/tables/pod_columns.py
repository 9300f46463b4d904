"""Columns of pods: ready containers, status, restarts and claims.

Theory of operation: the status of a pod is one word, the last that applies of: the phase, a reason of the
pod, the init container that is not done, else the containers from last to first, and above all that the pod
is being deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dray.server.tables.ages import format_duration, parse_time
from dray.server.tables.columns import (
    AGE,
    NAME,
    NONE,
    TableColumn,
    TableContext,
    build_text_cell,
    find_condition,
    get_list,
    get_number,
    get_path,
    get_text,
    join_names,
)
from dray.server.tables.device_columns import list_claim_names

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class _ContainerTally:
    """Counts over the containers of a pod."""

    status_text: str
    ready: int = 0
    restarts: int = 0
    last: datetime | None = None

    def add_restarts(self, status: Any) -> None:
        self.restarts += get_number(status, "restartCount")
        ended = parse_time(get_path(status, "lastState.terminated.finishedAt"))
        if ended is not None and (self.last is None or ended > self.last):
            self.last = ended


def _tally_containers(pod: Any) -> _ContainerTally:
    tally = _ContainerTally(get_text(pod, "status.reason") or get_text(pod, "status.phase"))
    if get_text(find_condition(pod, "PodScheduled"), "reason") == "SchedulingGated":
        tally.status_text = "SchedulingGated"
    initialising = _tally_init_containers(pod, tally)
    if not initialising or get_text(find_condition(pod, "Initialized"), "status") == "True":
        _tally_main_containers(pod, tally)
    if get_path(pod, "metadata.deletionTimestamp") is not None:
        if get_text(pod, "status.reason") == "NodeLost":
            tally.status_text = "Unknown"
        elif get_text(pod, "status.phase") not in _ENDED:
            tally.status_text = "Terminating"
    return tally


def _find_sidecars(pod: Any) -> set[str]:
    inits = get_list(pod, "spec.initContainers")
    return {get_text(one, "name") for one in inits if get_text(one, "restartPolicy") == "Always"}


def _tally_init_containers(pod: Any, tally: _ContainerTally) -> bool:
    """Return whether an init container is not done yet. Restarts of those that are done no longer count."""
    sidecars = _find_sidecars(pod)
    kept = _ContainerTally("")
    for position, status in enumerate(get_list(pod, "status.initContainerStatuses")):
        tally.add_restarts(status)
        sidecar = get_text(status, "name") in sidecars
        if sidecar:
            kept.add_restarts(status)
        if sidecar and get_path(status, "started") is True:
            tally.ready += get_path(status, "ready") is True
        elif (
            get_path(status, "state.terminated") is None
            or get_number(status, "state.terminated.exitCode") != 0
        ):
            tally.status_text = (
                f"Init:{_format_init_status(status, position, len(get_list(pod, 'spec.initContainers')))}"
            )
            return True
    tally.restarts, tally.last = kept.restarts, kept.last
    return False


def _format_init_status(status: Any, position: int, total: int) -> str:
    if get_path(status, "state.terminated") is not None:
        return _format_termination(status)
    waiting = get_text(status, "state.waiting.reason")
    return waiting if waiting not in ("", "PodInitializing") else f"{position}/{total}"


def _format_termination(status: Any) -> str:
    """Format how a container ended."""
    reason = get_text(status, "state.terminated.reason")
    signal = get_number(status, "state.terminated.signal")
    code = get_number(status, "state.terminated.exitCode")
    return reason or (f"Signal:{signal}" if signal else f"ExitCode:{code}")


def _tally_main_containers(pod: Any, tally: _ContainerTally) -> None:
    running = False
    for status in reversed(get_list(pod, "status.containerStatuses")):
        tally.add_restarts(status)
        waiting = get_text(status, "state.waiting.reason")
        if waiting:
            tally.status_text = waiting
        elif isinstance(get_path(status, "state.terminated"), Mapping):
            tally.status_text = _format_termination(status)
        elif get_path(status, "ready") is True and get_path(status, "state.running") is not None:
            running = True
            tally.ready += 1
    if tally.status_text == "Completed" and running:
        is_ready = get_text(find_condition(pod, "Ready"), "status") == "True"
        tally.status_text = "Running" if is_ready else "NotReady"


def _render_ready(pod: Any, _: TableContext) -> str:
    return (
        f"{_tally_containers(pod).ready}/{len(get_list(pod, 'spec.containers')) + len(_find_sidecars(pod))}"
    )


def _render_status(pod: Any, _: TableContext) -> str:
    return _tally_containers(pod).status_text


def _render_restarts(pod: Any, context: TableContext) -> str:
    tally = _tally_containers(pod)
    if not tally.restarts or tally.last is None:
        return str(tally.restarts)
    return f"{tally.restarts} ({format_duration(context.now - tally.last)} ago)"


def _render_address(pod: Any, _: TableContext) -> str:
    addresses = [get_text(one, "ip") for one in get_list(pod, "status.podIPs")]
    return next(filter(None, addresses), "") or get_text(pod, "status.podIP", NONE)


def _render_readiness_gates(pod: Any, _: TableContext) -> str:
    gates = [get_text(gate, "conditionType") for gate in get_list(pod, "spec.readinessGates")]
    met = [gate for gate in gates if get_text(find_condition(pod, gate), "status") == "True"]
    return f"{len(met)}/{len(gates)}" if gates else NONE


PODS: Final = (
    NAME,
    TableColumn("Ready", _render_ready, about="Containers that are ready, of all"),
    TableColumn("Status", _render_status, about="What the pod is doing"),
    TableColumn("Restarts", _render_restarts, about="How often containers were started again"),
    AGE,
    TableColumn("IP", _render_address, wide=True, about="The address of the pod"),
    TableColumn("Node", build_text_cell("spec.nodeName", NONE), wide=True, about="Where it runs"),
    TableColumn(
        "Nominated Node",
        build_text_cell("status.nominatedNodeName", NONE),
        wide=True,
        about="The node where the scheduler preempts pods for it",
    ),
    TableColumn(
        "Readiness Gates",
        _render_readiness_gates,
        wide=True,
        about="Readiness gates that are met, of all",
    ),
    TableColumn(
        "Claims", lambda pod, _: join_names(list_claim_names(pod)), wide=True, about="The claims it uses"
    ),
)
