"""Columns of nodes, events, quotas, RBAC and the opaque kinds."""

from __future__ import annotations

import pytest

from tests.unit.server.samples import sample
from tests.unit.server.tables.stored_objects import cells, thing


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        ({}, "Unknown"),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "Ready"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "NotReady"),
        (
            {
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                "spec": {"unschedulable": True},
            },
            "Ready,SchedulingDisabled",
        ),
    ],
)
def test_the_status_of_a_node(rest, status):
    assert cells(thing("v1", "Node", **rest))["Status"] == status


def test_a_bare_node_is_rendered_as_in_kubernetes(pytestconfig):
    theirs = sample(pytestconfig, "table_nodes.json")["rows"][0]["cells"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    ours = list(cells(thing("v1", "Node", metadata={"name": "node-a"}, status=ready)).values())
    assert [*ours[:3], *ours[4:]] == [*theirs[:3], *theirs[4:]]


def test_a_node_shows_its_roles_and_addresses():
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": "", "x": "y"}
    addresses = [{"type": "ExternalIP", "address": "1.2.3.4"}]
    shown = cells(thing("v1", "Node", metadata={"labels": labels}, status={"addresses": addresses}))
    assert shown["Roles"] == "gpu,worker"
    assert (shown["Internal-IP"], shown["External-IP"]) == ("<none>", "1.2.3.4")


REGARDING = {"kind": "Pod", "name": "p", "namespace": "ns", "fieldPath": "spec.containers{c}"}


def test_events_of_both_apis_show_age_reason_and_source():
    newer = thing(
        "v1",
        "Event",
        type="Warning",
        reason="FailedScheduling",
        message="no GPU is free \n",
        involvedObject=REGARDING,
        eventTime="2027-01-15T07:59:55.000000Z",
        reportingComponent="default-scheduler",
        reportingInstance="default-scheduler-vm",
    )
    assert cells(newer) == {
        "Last Seen": "5s",
        "Type": "Warning",
        "Reason": "FailedScheduling",
        "Object": "pod/p",
        "Subobject": "spec.containers{c}",
        "Source": "default-scheduler, default-scheduler-vm",
        "Message": "no GPU is free",
        "First Seen": "5s",
        "Count": 1,
        "Name": "a",
    }


def test_a_repeated_event_shows_its_count():
    older = {
        "firstTimestamp": "2027-01-15T07:55:00Z",
        "lastTimestamp": "2027-01-15T07:59:54Z",
        "count": 3,
        "source": {"component": "kubelet", "host": "n"},
    }
    shown = cells(thing("v1", "Event", **older))
    assert (shown["Last Seen"], shown["Count"], shown["Source"]) == ("6s (x3 over 5m)", 3, "kubelet, n")
    series = {"series": {"count": 2, "lastObservedTime": "2027-01-15T07:59:58Z"}}
    shown = cells(thing("v1", "Event", eventTime="2027-01-15T07:59:00Z", **series))
    assert shown["Last Seen"] == "2s (x2 over 60s)"


def test_a_quota_shows_its_usage():
    hard = {"gpu.deviceclass.resource.k8s.io/devices": "4", "limits.cpu": "10", "pods": "5"}
    used = {"pods": "2", "limits.cpu": "1"}
    shown = cells(thing("v1", "ResourceQuota", spec={"hard": hard}, status={"hard": hard, "used": used}))
    assert shown["Request"] == "gpu.deviceclass.resource.k8s.io/devices: 0/4, pods: 2/5"
    assert shown["Limit"] == "limits.cpu: 1/10"


def test_a_binding_shows_role_and_subjects():
    subjects = [
        {"kind": "User", "name": "jane"},
        {"kind": "ServiceAccount", "name": "sa", "namespace": "x"},
        {"kind": "Group", "name": "g"},
    ]
    role = {"kind": "ClusterRole", "name": "view"}
    shown = cells(thing("rbac.authorization.k8s.io/v1", "RoleBinding", subjects=subjects, roleRef=role))
    assert (shown["Role"], shown["Users"], shown["Groups"], shown["ServiceAccounts"]) == (
        "ClusterRole/view",
        "jane",
        "g",
        "x/sa",
    )


TEMPLATE = {"template": {"spec": {"containers": [{"name": "c", "image": "i:1"}]}}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (thing("v1", "ConfigMap", data={"a": "b"}, binaryData={"c": "d"}), {"Data": 2}),
        (thing("v1", "Secret", data={"a": "b"}), {"Type": "Opaque", "Data": 1}),
        (thing("v1", "ServiceAccount", secrets=[{"name": "s"}]), {"Secrets": 1}),
        (thing("v1", "Namespace", status={"phase": "Terminating"}), {"Status": "Terminating"}),
        (thing("coordination.k8s.io/v1", "Lease", spec={"holderIdentity": "me"}), {"Holder": "me"}),
        (
            thing("rbac.authorization.k8s.io/v1", "Role"),
            {"Name": "a", "Created At": "2027-01-15T07:00:00Z"},
        ),
        (
            thing(
                "apps/v1",
                "Deployment",
                spec={**TEMPLATE, "replicas": 3, "selector": {"matchLabels": {"b": "c", "a": "b"}}},
                status={"readyReplicas": 2, "updatedReplicas": 1},
            ),
            {
                "Ready": "2/3",
                "Up-to-date": 1,
                "Available": 0,
                "Containers": "c",
                "Images": "i:1",
                "Selector": "a=b,b=c",
            },
        ),
        (thing("apps/v1", "StatefulSet"), {"Ready": "0/1"}),
        (thing("apps/v1", "ReplicaSet", spec={"replicas": 2}), {"Desired": 2, "Ready": 0}),
        (thing("apps/v1", "DaemonSet", status={"numberReady": 4}), {"Ready": 4, "Node Selector": "<none>"}),
        (
            thing(
                "batch/v1",
                "Job",
                spec={"completions": 2},
                status={
                    "succeeded": 1,
                    "startTime": "2027-01-15T07:00:00Z",
                    "completionTime": "2027-01-15T07:00:09Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            ),
            {"Status": "Complete", "Completions": "1/2", "Duration": "9s"},
        ),
        (
            thing("batch/v1", "CronJob", spec={"schedule": "* * * * *", "suspend": True}),
            {"Schedule": "* * * * *", "Suspend": "True", "Last Schedule": "<none>", "Timezone": "<none>"},
        ),
        (
            thing(
                "v1",
                "Service",
                spec={
                    "clusterIP": "10.0.0.1",
                    "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
                },
            ),
            {"Type": "ClusterIP", "External-IP": "<none>", "Port(s)": "80:30080/TCP,53/UDP"},
        ),
        (thing("v1", "Service", spec={"type": "LoadBalancer"}), {"External-IP": "<pending>"}),
        (
            thing(
                "v1",
                "Endpoints",
                subsets=[{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 80}, {"port": 81}]}],
            ),
            {"Endpoints": "1.1.1.1:80,1.1.1.1:81"},
        ),
        (
            thing("v1", "PersistentVolumeClaim", status={"accessModes": ["ReadWriteOnce", "Own"]}),
            {"Status": "Pending", "Access Modes": "RWO,Own"},
        ),
        (
            thing("v1", "PersistentVolume", spec={"claimRef": {"namespace": "x", "name": "y"}}),
            {"Claim": "x/y", "VolumeMode": "<unset>"},
        ),
        (
            thing("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "50%"}),
            {"Min Available": "50%", "Max Unavailable": "N/A", "Allowed Disruptions": 0},
        ),
        (thing("storage.k8s.io/v1", "CSINode", spec={"drivers": [{}, {}]}), {"Drivers": 2}),
        (thing("storage.k8s.io/v1", "CSIDriver"), {"Name": "a", "Age": "60m"}),
        (
            thing("scheduling.k8s.io/v1", "PriorityClass", value=100, globalDefault=True),
            {"Value": 100, "Global-Default": "true"},
        ),
        (
            thing("certificates.k8s.io/v1", "CertificateSigningRequest", status={"certificate": "x"}),
            {"Condition": "Pending,Issued"},
        ),
    ],
    ids=lambda value: value.get("kind", "cells"),
)
def test_the_cells_of_a_kind(document, expected):
    shown = cells(document)
    assert {column: shown[column] for column in expected} == expected
