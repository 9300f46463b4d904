"""kubectl reads: tables, columns, selectors, descriptions, watches."""

from __future__ import annotations

import json
import threading

import pytest

from tests.contract.documents import (
    allocation,
    claim,
    config,
    consumer,
    device_class,
    node,
    old_claim,
    pod,
    resource_slice,
    template,
)
from tests.e2e.kubectl import Kubectl


@pytest.fixture
def devices(kubectl: Kubectl) -> str:
    """A node with a slice of two devices and a class; the name of the node."""
    name = f"node-{kubectl.namespace}"
    published = resource_slice(f"{name}-gpu", name)
    kubectl("apply", "-f", "-", given=[node(name), published, device_class()])
    return name


def _allocated(kubectl: Kubectl, node_name: str) -> None:
    """A claim that a pod uses on a node, as a scheduler leaves it."""
    kubectl("apply", "-f", "-", given=[claim("used", kubectl.namespace), claim("free", kubectl.namespace)])
    kubectl("apply", "-f", "-", given=pod("user", kubectl.namespace, claim_name="used"))
    user = kubectl.get("pod", "user")
    status = {"allocation": allocation(node=node_name), "reservedFor": [consumer(user)]}
    patch = json.dumps({"status": status})
    kubectl("patch", "resourceclaim", "used", "--subresource=status", "--type=merge", "-p", patch)


def test_claims_show_what_became_of_them(kubectl: Kubectl, devices: str) -> None:
    _allocated(kubectl, devices)
    header, free, used = kubectl("get", "resourceclaims").rows
    assert header[:2] == ["NAME", "STATE"]
    assert free[:2] == ["free", "pending"]
    assert used[:2] == ["used", "allocated,reserved"]
    wide = kubectl("get", "resourceclaims", "-o", "wide")
    assert devices in wide.out
    assert "gpu-0" in wide.out


def test_slices_show_node_driver_pool_and_what_is_free(kubectl: Kubectl, devices: str) -> None:
    header, row = kubectl("get", "resourceslice", f"{devices}-gpu").rows
    assert header[:6] == ["NAME", "NODE", "DRIVER", "POOL", "DEVICES", "FREE"]
    assert row[:6] == [f"{devices}-gpu", devices, "gpu.example.com", devices, "2", "2"]
    _allocated(kubectl, devices)
    assert kubectl("get", "resourceslice", f"{devices}-gpu").rows[1][4:6] == ["2", "1"]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("pods", ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]),
        ("nodes", ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]),
        ("deviceclasses", ["NAME", "AGE"]),
        ("resourceclaimtemplates", ["NAME", "AGE"]),
    ],
)
def test_tables_have_the_usual_columns(kubectl: Kubectl, devices: str, kind: str, columns: list[str]) -> None:
    kubectl("apply", "-f", "-", given=[pod("p", kubectl.namespace), template("t") | _at(kubectl, "t")])
    assert kubectl("get", kind).rows[0][: len(columns)] == columns
    assert len(kubectl("get", kind, "-o", "wide").rows[0]) >= len(columns)


def _at(kubectl: Kubectl, name: str) -> dict:
    return {"metadata": {"name": name, "namespace": kubectl.namespace}}


@pytest.fixture
def some(kubectl: Kubectl) -> list[str]:
    """Five config maps in two colours."""
    names = [f"c{number}" for number in range(5)]
    colours = ["red", "blue", "red", "blue", "red"]
    pairs = zip(names, colours, strict=True)
    given = [config(name, kubectl.namespace, labels={"colour": colour}) for name, colour in pairs]
    kubectl("create", "-f", "-", given=given)
    return names


def test_lists_in_many_forms(kubectl: Kubectl, some: list[str]) -> None:
    assert [row[0] for row in kubectl("get", "cm", "--no-headers").rows] == some
    assert kubectl("get", "cm", "-o", "name").out.split() == [f"configmap/{name}" for name in some]
    path = "jsonpath={.items[*].metadata.name}"
    assert kubectl("get", "cm", "-o", path).out.split() == some
    columns = "custom-columns=N:.metadata.name,C:.metadata.labels.colour"
    assert kubectl("get", "cm", "-o", columns).rows[:3] == [["N", "C"], ["c0", "red"], ["c1", "blue"]]
    assert "kind: ConfigMap" in kubectl("get", "cm", "c0", "-o", "yaml").out
    assert kubectl("get", "cm", "c0", "--show-managed-fields", "-o", "json").document["metadata"][
        "managedFields"
    ]


def test_lists_are_chosen_sorted_and_paged(kubectl: Kubectl, some: list[str]) -> None:
    assert [row[0] for row in kubectl("get", "cm", "-l", "colour=red", "--no-headers").rows] == some[::2]
    chosen = kubectl("get", "cm", "--field-selector", "metadata.name!=c1", "-o", "name").out.split()
    assert chosen == [f"configmap/{name}" for name in some if name != "c1"]
    by_colour = kubectl("get", "cm", "--sort-by=.metadata.labels.colour", "--no-headers").rows
    assert [row[0] for row in by_colour] == ["c1", "c3", "c0", "c2", "c4"]
    assert [row[0] for row in kubectl("get", "cm", "--chunk-size=2", "--no-headers").rows] == some
    labelled = kubectl("get", "cm", "-L", "colour", "--no-headers").rows
    assert [row[-1] for row in labelled] == ["red", "blue", "red", "blue", "red"]
    both = kubectl("get", "cm,pods", "-A", "-o", "name").out.split()
    assert f"configmap/{some[0]}" in both


def test_what_is_not_there_is_told(kubectl: Kubectl) -> None:
    missing = kubectl("get", "pod", "nope", fails=True)
    assert missing.err.strip() == 'Error from server (NotFound): pods "nope" not found'
    assert kubectl("get", "pods").err.strip().startswith("No resources found in")
    assert "doesn't have a resource type" in kubectl("get", "nosuchkind", fails=True).err
    assert kubectl("get", "pod", "nope", "--ignore-not-found").out == ""


def test_descriptions(kubectl: Kubectl, devices: str) -> None:
    _allocated(kubectl, devices)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": kubectl.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": kubectl.namespace,
            "name": "user",
            "uid": kubectl.get("pod", "user")["metadata"]["uid"],
        },
        "reason": "Scheduled",
        "message": "it fits",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "source": {"component": "default-scheduler"},
    }
    kubectl("create", "-f", "-", given=event)
    assert "it fits" in kubectl("describe", "pod", "user").out
    assert "Allocation:" in kubectl("describe", "resourceclaim", "used").out
    assert "gpu.example.com" in kubectl("describe", "resourceslice", f"{devices}-gpu").out
    assert "Unschedulable:" in kubectl("describe", "node", devices).out
    assert "Selectors:" in kubectl("describe", "deviceclass", "gpu.example.com").out
    assert "it fits" in kubectl("events").out
    assert "it fits" in kubectl("events", "--for=pod/user").out
    assert "it fits" in kubectl("get", "events").out


def test_a_watch_prints_what_happens(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=claim("a", kubectl.namespace))
    with kubectl.beside("get", "resourceclaims", "-w", "--output-watch-events") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["EVENT", "NAME", "STATE"]
        assert watching.stdout.readline().split()[:3] == ["ADDED", "a", "pending"]
        kubectl("create", "-f", "-", given=claim("b", kubectl.namespace))
        assert watching.stdout.readline().split()[:3] == ["ADDED", "b", "pending"]
        kubectl("label", "resourceclaim", "a", "x=y")
        assert watching.stdout.readline().split()[:2] == ["MODIFIED", "a"]
        kubectl("delete", "resourceclaim", "a")
        assert watching.stdout.readline().split()[:2] == ["DELETED", "a"]


def test_only_what_changes_can_be_watched(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "old")
    with kubectl.beside("get", "cm", "--watch-only", "-o", "name") as watching:
        assert watching.stdout is not None
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.append(watching.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reading.start()
        for number in range(50):  # until the watch has begun
            kubectl("create", "configmap", f"new-{number}")
            reading.join(0.1)
            if lines:
                break
        assert lines[0].startswith("configmap/new-")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_beta_manifests_are_read_back_in_every_version(kubectl: Kubectl, version: str) -> None:
    document = old_claim("old", version)
    document["metadata"]["namespace"] = kubectl.namespace
    kubectl("apply", "-f", "-", given=document)
    kubectl("apply", "-f", "-", given=document)
    new = kubectl.get("resourceclaims.v1.resource.k8s.io", "old")
    assert new["apiVersion"] == "resource.k8s.io/v1"
    assert new["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    old = kubectl.get("resourceclaims.v1beta1.resource.k8s.io", "old")
    assert old["apiVersion"] == "resource.k8s.io/v1beta1"
    assert old["spec"]["devices"]["requests"][0]["count"] == 2
    table = kubectl("get", f"resourceclaims.{version}.resource.k8s.io").rows
    assert table[1][:2] == ["old", "pending"]
    kubectl("delete", f"resourceclaims.{version}.resource.k8s.io", "old")
