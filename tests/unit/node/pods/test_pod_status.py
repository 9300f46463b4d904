"""A pod's status, as kubectl shows it: whole values, and what is read back from them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dray.node.pods.pod_status import Health, Scene, Verdict, remembered, status_of
from dray.node.pods.restart_policy import Ended, Pace, Role, Running, Tale, Waiting, tales_of
from dray.server.tables.pod_columns import PODS

PACE = Pace()
NOW = 1_700_000_000.0
THEN = "2023-11-14T22:13:20Z"
RUNS = Running("process://u_c_0", NOW)
BADLY = Ended(3, "Error", "it broke", 0, NOW - 20, NOW - 10, "process://u_c_0")
WELL = Ended(0, "Completed", "", 0, NOW - 20, NOW - 10, "process://u_c_0")

Document = dict[str, Any]


def pod(*inits: Document, policy: str = "Always", **status: Any) -> Document:
    spec = {"containers": [{"name": "c", "image": "x"}], "restartPolicy": policy}
    if inits:
        spec["initContainers"] = list(inits)
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    return {"metadata": metadata, "spec": spec, "status": status}


def told(given: Document, scene: Scene) -> Document:
    return status_of(given, scene, PACE)


def shown(given: Document, scene: Scene) -> list[str]:
    """The columns READY, STATUS and RESTARTS, as the server shows them."""
    whole = {**given, "status": {**given["status"], **told(given, scene)}}
    columns = {column.title: column for column in PODS}
    return [
        str(columns[name].cell(whole, None)).split(" (")[0]  # type: ignore[arg-type]
        for name in ("Ready", "Status")
    ] + [str(told(given, scene)["containerStatuses"][0]["restartCount"])]


def conditions(status: Document) -> dict[str, str]:
    return {
        one["type"]: one["status"] + (f" {one['reason']}" if one["reason"] else "")
        for one in status["conditions"]
    }


def test_the_whole_status_of_a_pod_that_runs() -> None:
    scene = Scene((Tale("c", image="x", state=RUNS),), NOW, "10.0.0.1", True)
    condition = {"status": "True", "lastProbeTime": None, "reason": None, "message": None}
    assert told(pod(), scene) == {
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


def test_the_words_of_kubectl_get_pods() -> None:
    one = Tale("c")
    i = {"name": "i"}
    crashed = replace(one, state=replace(BADLY, finished=NOW), crashes=2, restarts=1, last=BADLY)
    refused = Waiting("ClaimNotReserved", "claim x is not reserved for this pod")
    over = replace(one, state=BADLY)
    inits = tales_of(pod(i))
    assert shown(pod(), Scene((one,), NOW)) == ["0/1", "ContainerCreating", "0"]
    assert shown(pod(), Scene((replace(one, state=RUNS),), NOW)) == ["1/1", "Running", "0"]
    assert shown(pod(), Scene((crashed,), NOW)) == ["0/1", "CrashLoopBackOff", "1"]
    assert shown(pod(), Scene((one,), NOW, hindrance=refused)) == ["0/1", "ClaimNotReserved", "0"]
    assert shown(pod(policy="Never"), Scene((over,), NOW)) == ["0/1", "Error", "0"]
    assert shown(pod(policy="Never"), Scene((replace(one, state=WELL),), NOW)) == ["0/1", "Completed", "0"]
    assert shown(pod(i), Scene(inits, NOW)) == ["0/1", "Init:0/1", "0"]
    assert shown(pod(i), Scene((replace(inits[0], state=RUNS), inits[1]), NOW)) == ["0/1", "Init:0/1", "0"]
    assert shown(pod(i), Scene((replace(inits[0], state=WELL), inits[1]), NOW))[1] == "PodInitializing"


def test_a_crash_loop_says_how_long_it_waits_and_how_it_ended() -> None:
    crashed = Tale("c", state=replace(BADLY, finished=NOW), crashes=6, restarts=5)
    (one,) = told(pod(), Scene((crashed,), NOW))["containerStatuses"]
    message = "back-off 2m40s restarting failed container=c pod=p_default(u)"
    assert one["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    assert one["lastState"]["terminated"]["exitCode"] == 3
    assert one["lastState"]["terminated"]["message"] == "it broke"


def test_a_pod_that_is_refused_says_why() -> None:
    why = Waiting("ClaimNotReserved", "claim default/x is not reserved for this pod")
    status = told(pod(), Scene((Tale("c"),), NOW, "10.0.0.1", hindrance=why))
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "ClaimNotReserved", "message": "claim default/x is not reserved for this pod"}
    }
    assert conditions(status)["PodReadyToStartContainers"] == "False"
    assert "podIP" not in status


def test_conditions_of_a_pod_that_begins_runs_and_ends() -> None:
    side, inits = {"name": "s", "restartPolicy": "Always"}, {"name": "i"}
    given = pod(inits, side, policy="Never")
    fresh = tales_of(given)
    assert conditions(told(given, Scene(fresh, NOW))) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "False ContainersNotInitialized",
        "ContainersReady": "False ContainersNotReady",
        "Ready": "False ContainersNotReady",
    }
    through = (replace(fresh[0], state=WELL), replace(fresh[1], state=RUNS), replace(fresh[2], state=RUNS))
    status = told(given, Scene(through, NOW, claims_ready=True))
    assert set(conditions(status).values()) == {"True"}
    assert [one["ready"] for one in status["initContainerStatuses"]] == [True, True]
    over = tuple(replace(tale, state=WELL) for tale in through)
    assert conditions(told(given, Scene(over, NOW))) == {
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
    status = told(pod(conditions=known), Scene((Tale("c"),), NOW))
    since = {one["type"]: one["lastTransitionTime"] for one in status["conditions"]}
    assert (since["Initialized"], since["Ready"]) == (before, THEN)


def test_the_verdict_on_a_pod_goes_before_its_containers() -> None:
    verdict = Verdict("Failed", "DeadlineExceeded", "too long")
    status = told(pod(), Scene((Tale("c", state=BADLY, crashes=2),), NOW, verdict=verdict))
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )
    assert "terminated" in status["containerStatuses"][0]["state"], "it does not wait to be started again"


def test_how_devices_are_is_told_by_claim_and_request() -> None:
    health = (
        Health("claim:gpus", "d/p/gpu-0", "Healthy"),
        Health("claim:gpus", "d/p/gpu-1", "Unhealthy", "too hot"),
        Health("claim:nic/fast", "n/p/nic-0", "Unknown"),
    )
    status = told(pod(), Scene((Tale("c", state=RUNS),), NOW, health={"c": health}))
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


def test_what_was_told_is_read_back() -> None:
    given = pod({"name": "i"}, {"name": "s", "restartPolicy": "Always"})
    fresh = tales_of(given)
    tales = (
        replace(fresh[0], state=WELL),
        replace(fresh[1], state=replace(BADLY, finished=NOW), crashes=3, restarts=2),
        replace(fresh[2], state=RUNS, last=BADLY, restarts=1),
    )
    status = told(given, Scene(tales, NOW, claims_ready=True))
    init, side, main = remembered({**given, "status": status}, tales_of(given))
    assert init == replace(tales[0], crashes=1)
    assert side == tales[1]
    assert main == tales[2]


def test_a_status_that_somebody_wiped_is_no_trouble() -> None:
    assert remembered(pod(), tales_of(pod())) == tales_of(pod())
    odd = pod(containerStatuses=[{"name": "c", "state": {"running": {}}, "restartCount": "x"}, None])
    (tale,) = remembered(odd, tales_of(odd))
    assert tale == Tale("c", image="x", state=Running("", 0.0), role=Role.MAIN)
