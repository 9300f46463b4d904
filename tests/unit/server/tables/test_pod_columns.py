"""Columns of pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.tables.stored_objects import cells, thing

RUNNING = {"state": {"running": {}}, "ready": True}
DONE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
READY = {"type": "Ready", "status": "True"}


def pod(spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    containers = {"containers": [{"name": "c"}, {"name": "d"}]}
    return cells(thing("v1", "Pod", metadata=metadata, spec=containers | spec, status=status))


INITS = {"initContainers": [{"name": "i"}, {"name": "j"}]}
SIDECAR = {"initContainers": [{"name": "i", "restartPolicy": "Always"}]}


@pytest.mark.parametrize(
    ("spec", "status", "ready", "word"),
    [
        ({}, {}, "0/2", ""),
        ({}, {"phase": "Pending"}, "0/2", "Pending"),
        ({}, {"phase": "Failed", "reason": "Evicted"}, "0/2", "Evicted"),
        (
            {},
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "0/2",
            "SchedulingGated",
        ),
        ({}, {"phase": "Running", "containerStatuses": [RUNNING, RUNNING]}, "2/2", "Running"),
        (
            {},
            {
                "phase": "Running",
                "containerStatuses": [RUNNING, {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
            },
            "1/2",
            "CrashLoopBackOff",
        ),
        (
            {},
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
            "0/2",
            "ExitCode:3",
        ),
        (
            {},
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"signal": 9}}}]},
            "0/2",
            "Signal:9",
        ),
        ({}, {"phase": "Succeeded", "containerStatuses": [DONE, DONE]}, "0/2", "Completed"),
        (
            {},
            {"phase": "Running", "containerStatuses": [DONE, RUNNING], "conditions": [READY]},
            "1/2",
            "Running",
        ),
        ({}, {"phase": "Running", "containerStatuses": [DONE, RUNNING]}, "1/2", "NotReady"),
        (INITS, {"phase": "Pending", "initContainerStatuses": [{"name": "i"}]}, "0/2", "Init:0/2"),
        (INITS, {"phase": "Pending", "initContainerStatuses": [DONE, {"name": "j"}]}, "0/2", "Init:1/2"),
        (
            INITS,
            {
                "phase": "Pending",
                "initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}],
            },
            "0/2",
            "Init:ErrImagePull",
        ),
        (
            INITS,
            {
                "phase": "Pending",
                "initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
            },
            "0/2",
            "Init:Error",
        ),
        (
            SIDECAR,
            {
                "phase": "Running",
                "initContainerStatuses": [{"name": "i", "started": True, "ready": True}],
                "containerStatuses": [RUNNING, RUNNING],
            },
            "3/3",
            "Running",
        ),
    ],
)
def test_what_a_pod_is_doing(spec, status, ready, word):
    shown = pod(spec, status)
    assert (shown["Ready"], shown["Status"]) == (ready, word)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_a_pod_on_its_way_out(status, word):
    assert pod({}, status, deletionTimestamp="2027-01-15T07:00:00Z")["Status"] == word


def test_restarts_show_the_age_of_the_last():
    ended = {"terminated": {"finishedAt": "2027-01-15T07:55:00Z"}}
    status = {"containerStatuses": [{"restartCount": 2, "lastState": ended}, {"restartCount": 1}]}
    assert pod({}, status)["Restarts"] == "3 (5m ago)"
    assert pod({}, {})["Restarts"] == "0"


def test_restarts_of_init_containers_that_are_done_no_longer_count():
    status = {
        "initContainerStatuses": [{**DONE, "restartCount": 5}],
        "containerStatuses": [{"restartCount": 1}],
    }
    assert pod(INITS, status)["Restarts"] == "1"


def test_the_wide_columns_show_node_and_claims_of_a_pod():
    gates = {"readinessGates": [{"conditionType": "net"}, {"conditionType": "Ready"}]}
    claims = [{"name": "g", "resourceClaimName": "big"}, {"name": "t", "resourceClaimTemplateName": "x"}]
    status = {
        "podIP": "10.0.0.1",
        "conditions": [READY],
        "nominatedNodeName": "n2",
        "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "p-t-1"}],
    }
    shown = pod({**gates, "resourceClaims": claims, "nodeName": "n1"}, status)
    assert shown["IP"] == "10.0.0.1"
    assert (shown["Node"], shown["Nominated Node"]) == ("n1", "n2")
    assert shown["Readiness Gates"] == "1/2"
    assert shown["Claims"] == "big,p-t-1"
    nothing = pod({}, {})
    for column in ("IP", "Node", "Nominated Node", "Readiness Gates", "Claims"):
        assert nothing[column] == "<none>"
