"""The status of a pod, as kubectl shows it, and its restoration."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dray.node.pods.pod_status import (
    ClaimDeviceHealth,
    PodPhaseOverride,
    PodStatusInputs,
    build_pod_status,
    format_time,
    restore_containers,
)
from dray.node.pods.restart_policy import (
    ContainerRole,
    ContainerRunning,
    ContainerTerminated,
    ContainerWaiting,
    RestartBackoff,
    TrackedContainer,
    build_tracked_containers,
)
from dray.server.tables.pod_columns import PODS

PACE = RestartBackoff()
NOW = 1_700_000_000.0
THEN = "2023-11-14T22:13:20Z"
RUNS = ContainerRunning("process://u_c_0", NOW)
BADLY = ContainerTerminated(3, "Error", "it broke", 0, NOW - 20, NOW - 10, "process://u_c_0")
WELL = ContainerTerminated(0, "Completed", "", 0, NOW - 20, NOW - 10, "process://u_c_0")

Document = dict[str, Any]


def pod(*inits: Document, policy: str = "Always", **status: Any) -> Document:
    spec = {"containers": [{"name": "c", "image": "x"}], "restartPolicy": policy}
    if inits:
        spec["initContainers"] = list(inits)
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    return {"metadata": metadata, "spec": spec, "status": status}


def told(given: Document, scenario: PodStatusInputs) -> Document:
    return build_pod_status(given, scenario, PACE)


def shown(given: Document, scenario: PodStatusInputs) -> list[str]:
    """The columns READY, STATUS and RESTARTS, as the server shows them."""
    whole = {**given, "status": {**given["status"], **told(given, scenario)}}
    columns = {column.title: column for column in PODS}
    return [
        str(columns[name].render(whole, None)).split(" (")[0]  # type: ignore[arg-type]
        for name in ("Ready", "Status")
    ] + [str(told(given, scenario)["containerStatuses"][0]["restartCount"])]


def conditions(status: Document) -> dict[str, str]:
    return {
        one["type"]: one["status"] + (f" {one['reason']}" if one["reason"] else "")
        for one in status["conditions"]
    }


def test_the_whole_status_of_a_pod_that_runs() -> None:
    scenario = PodStatusInputs((TrackedContainer("c", image="x", state=RUNS),), NOW, "10.0.0.1", True)
    condition = {"status": "True", "lastProbeTime": None, "reason": None, "message": None}
    assert told(pod(), scenario) == {
        "phase": "Running",
        "conditions": [
            {"type": name, **condition, "lastTransitionTime": THEN}
            for name in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
        ],
        "reason": None,
        "message": None,
        "startTime": THEN,
        "containerStatuses": [
            {
                "name": "c",
                "image": "x",
                "imageID": "x",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": THEN}},
                "lastState": {},
                "containerID": "process://u_c_0",
            }
        ],
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
    }


def test_an_ephemeral_container_says_that_it_does_not_run() -> None:
    given = pod()
    given["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "busybox"}]
    (status,) = told(given, PodStatusInputs((), NOW))["ephemeralContainerStatuses"]
    assert (status["name"], status["image"], status["ready"]) == ("debug", "busybox", False)
    assert status["state"]["waiting"]["reason"] == "EphemeralContainersNotSupported"


def test_the_status_shown_by_kubectl_get_pods() -> None:
    one = TrackedContainer("c")
    i = {"name": "i"}
    crashed = replace(
        one, state=replace(BADLY, finished=NOW), crashes=2, restart_count=1, last_termination=BADLY
    )
    refused = ContainerWaiting("ClaimNotReserved", "claim x is not reserved for this pod")
    over = replace(one, state=BADLY)
    inits = build_tracked_containers(pod(i))
    assert shown(pod(), PodStatusInputs((one,), NOW)) == ["0/1", "ContainerCreating", "0"]
    assert shown(pod(), PodStatusInputs((replace(one, state=RUNS),), NOW)) == ["1/1", "Running", "0"]
    assert shown(pod(), PodStatusInputs((crashed,), NOW)) == ["0/1", "CrashLoopBackOff", "1"]
    assert shown(pod(), PodStatusInputs((one,), NOW, blocker=refused)) == ["0/1", "ClaimNotReserved", "0"]
    assert shown(pod(policy="Never"), PodStatusInputs((over,), NOW)) == ["0/1", "Error", "0"]
    assert shown(pod(policy="Never"), PodStatusInputs((replace(one, state=WELL),), NOW)) == [
        "0/1",
        "Completed",
        "0",
    ]
    assert shown(pod(i), PodStatusInputs(inits, NOW)) == ["0/1", "Init:0/1", "0"]
    assert shown(pod(i), PodStatusInputs((replace(inits[0], state=RUNS), inits[1]), NOW)) == [
        "0/1",
        "Init:0/1",
        "0",
    ]
    assert (
        shown(pod(i), PodStatusInputs((replace(inits[0], state=WELL), inits[1]), NOW))[1] == "PodInitializing"
    )


def test_a_crash_loop_shows_its_delay_and_the_last_termination() -> None:
    crashed = TrackedContainer("c", state=replace(BADLY, finished=NOW), crashes=6, restart_count=5)
    (one,) = told(pod(), PodStatusInputs((crashed,), NOW))["containerStatuses"]
    message = "back-off 2m40s restarting failed container=c pod=p_default(u)"
    assert one["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    assert one["lastState"]["terminated"]["exitCode"] == 3
    assert one["lastState"]["terminated"]["message"] == "it broke"


def test_a_refused_pod_shows_the_reason() -> None:
    why = ContainerWaiting("ClaimNotReserved", "claim default/x is not reserved for this pod")
    status = told(pod(), PodStatusInputs((TrackedContainer("c"),), NOW, "10.0.0.1", blocker=why))
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "ClaimNotReserved", "message": "claim default/x is not reserved for this pod"}
    }
    assert conditions(status)["PodReadyToStartContainers"] == "False"
    assert "podIP" not in status


def test_conditions_of_a_pod_that_begins_runs_and_ends() -> None:
    side, inits = {"name": "s", "restartPolicy": "Always"}, {"name": "i"}
    given = pod(inits, side, policy="Never")
    fresh = build_tracked_containers(given)
    assert conditions(told(given, PodStatusInputs(fresh, NOW))) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "False ContainersNotInitialized",
        "ContainersReady": "False ContainersNotReady",
        "Ready": "False ContainersNotReady",
    }
    through = (replace(fresh[0], state=WELL), replace(fresh[1], state=RUNS), replace(fresh[2], state=RUNS))
    status = told(given, PodStatusInputs(through, NOW, claims_ready=True))
    assert set(conditions(status).values()) == {"True"}
    assert [one["ready"] for one in status["initContainerStatuses"]] == [True, True]
    over = tuple(replace(tracked, state=WELL) for tracked in through)
    assert conditions(told(given, PodStatusInputs(over, NOW))) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "True PodCompleted",
        "ContainersReady": "False PodCompleted",
        "Ready": "False PodCompleted",
    }


def test_a_condition_keeps_its_moment_while_it_does_not_change() -> None:
    before = "2020-01-01T00:00:00Z"
    known = [
        {"type": name, "status": "True", "lastTransitionTime": before} for name in ("Ready", "Initialized")
    ]
    status = told(pod(conditions=known), PodStatusInputs((TrackedContainer("c"),), NOW))
    since = {one["type"]: one["lastTransitionTime"] for one in status["conditions"]}
    assert (since["Initialized"], since["Ready"]) == (before, THEN)


def test_a_condition_keeps_its_moment_though_the_status_before_was_never_written() -> None:
    waits = PodStatusInputs((TrackedContainer("c"),), NOW, claims_ready=True)
    previous = told(pod(), waits)
    runs = TrackedContainer("c", state=ContainerRunning("id", NOW + 60))
    status = told(pod(), PodStatusInputs((runs,), NOW + 60, claims_ready=True, previous=previous))
    since = {one["type"]: one["lastTransitionTime"] for one in status["conditions"]}
    assert since == {
        "PodReadyToStartContainers": THEN,
        "Initialized": THEN,
        "ContainersReady": format_time(NOW + 60),
        "Ready": format_time(NOW + 60),
    }


def test_the_verdict_on_a_pod_goes_before_its_containers() -> None:
    verdict = PodPhaseOverride("Failed", "DeadlineExceeded", "too long")
    status = told(
        pod(), PodStatusInputs((TrackedContainer("c", state=BADLY, crashes=2),), NOW, phase_override=verdict)
    )
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )
    assert "terminated" in status["containerStatuses"][0]["state"], "it does not wait to be started again"


def test_the_health_of_devices_is_shown_by_claim_and_request() -> None:
    health = (
        ClaimDeviceHealth("claim:gpus", "d/p/gpu-0", "Healthy"),
        ClaimDeviceHealth("claim:gpus", "d/p/gpu-1", "Unhealthy", "too hot"),
        ClaimDeviceHealth("claim:gpus", "d/p/gpu-1", "Healthy"),
        ClaimDeviceHealth("claim:nic/fast", "n/p/nic-0", "Unknown"),
    )
    status = told(pod(), PodStatusInputs((TrackedContainer("c", state=RUNS),), NOW, health={"c": health}))
    assert status["containerStatuses"][0]["allocatedResourcesStatus"] == [
        {
            "name": "claim:gpus",
            "resources": [
                {"resourceID": "d/p/gpu-0", "health": "Healthy"},
                {"resourceID": "d/p/gpu-1", "health": "Unhealthy", "message": "too hot"},
            ],
        },
        {"name": "claim:nic/fast", "resources": [{"resourceID": "n/p/nic-0", "health": "Unknown"}]},
    ]


def test_a_written_status_is_restored() -> None:
    given = pod({"name": "i"}, {"name": "s", "restartPolicy": "Always"})
    fresh = build_tracked_containers(given)
    containers = (
        replace(fresh[0], state=WELL),
        replace(fresh[1], state=replace(BADLY, finished=NOW), crashes=3, restart_count=2),
        replace(fresh[2], state=RUNS, last_termination=BADLY, restart_count=1),
    )
    status = told(given, PodStatusInputs(containers, NOW, claims_ready=True))
    init, side, main = restore_containers({**given, "status": status}, build_tracked_containers(given))
    assert init == replace(containers[0], crashes=1)
    assert side == containers[1]
    assert main == containers[2]


def test_a_status_wiped_by_another_client_is_tolerated() -> None:
    assert restore_containers(pod(), build_tracked_containers(pod())) == build_tracked_containers(pod())
    odd = pod(containerStatuses=[{"name": "c", "state": {"running": {}}, "restartCount": "x"}, None])
    (tracked,) = restore_containers(odd, build_tracked_containers(odd))
    assert tracked == TrackedContainer(
        "c", image="x", state=ContainerRunning("", 0.0), role=ContainerRole.MAIN
    )
