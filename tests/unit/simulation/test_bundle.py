"""A cluster in files becomes objects, or says exactly what is broken."""

from __future__ import annotations

import pytest

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.simulation.allocation_audit import audit_bundle
from dray.simulation.bundle import ASSUMED_NODE_NAME, BundleError, build_bundle
from dray.simulation.file_placement import build_inventory
from tests.unit.simulation.cluster_text import (
    NOW,
    allocated,
    bundle,
    claim,
    device_class,
    documents,
    node,
    pod,
    slice_of,
    template,
)


def test_every_kind_finds_its_place_and_gets_its_defaults():
    cluster = bundle(
        node("node-b")
        + node("node-a")
        + slice_of("node-a", "gpu-0")
        + device_class("gpu", "gpu.example.com")
        + claim("mine", "gpu")
        + template("each", "gpu")
        + pod("train", claims="mine")
        + "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}\n"
    )
    assert [n.metadata.name for n in cluster.nodes] == ["node-a", "node-b"]
    assert [s.spec.driver for s in cluster.slices] == ["gpu.example.com"]
    assert [c.metadata.name for c in cluster.classes] == ["gpu"]
    exactly = cluster.claims[0].spec.devices.requests[0].exactly
    assert exactly is not None
    assert exactly.allocation_mode == "ExactCount"
    assert cluster.claims[0].metadata.namespace == "default"
    assert cluster.templates[0].spec.spec.devices.requests[0].exactly is not None
    assert cluster.pods[0].spec.resource_claims[0].resource_claim_name == "mine"
    assert [n.metadata.name for n in cluster.namespaces] == ["ml"]
    assert cluster.remarks == ()
    assert cluster.find_location(cluster.claims[0]) == "cluster.yaml:32"


def test_lists_as_kubectl_prints_them_and_older_versions_are_understood():
    cluster = bundle(
        """
        apiVersion: v1
        kind: List
        items:
        - apiVersion: resource.k8s.io/v1beta1
          kind: ResourceClaim
          metadata: {name: old, namespace: ml}
          spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}
        - apiVersion: v1
          kind: Node
          metadata: {name: node-a}
        """
    )
    exactly = cluster.claims[0].spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.device_class_name, exactly.count) == ("gpu", 1)


def test_all_that_is_broken_is_named_with_its_line():
    broken = documents(
        """
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: a}
        spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: many}}]}}
        ---
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlices
        metadata: {name: b}
        ---
        - just
        - words
        """
    )
    with pytest.raises(BundleError) as refused:
        build_bundle(broken, now=NOW)
    places = [problem.partition(": ")[0] for problem in refused.value.problems]
    assert places == ["cluster.yaml:5", "cluster.yaml:8", "cluster.yaml:11"]
    assert "count" in refused.value.problems[0]
    assert "ResourceSlices" in refused.value.problems[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (node("a") + node("a", zone="one"), "Node `a` is here again, see cluster.yaml:1"),
        (claim("c", "gpu") + claim("c", "cpu"), "ResourceClaim `c` is here again, see cluster.yaml:1"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: a}\nkind: Node\n", "`kind` stands here a second time"),
    ],
)
def test_what_stands_there_twice_is_broken_input(text, said):
    with pytest.raises(BundleError) as refused:
        build_bundle(documents(text), now=NOW)
    assert said in str(refused.value)


def test_the_same_object_again_is_only_remarked():
    cluster = bundle(node("a") + claim("c", "gpu") + claim("c", "gpu"))
    assert len(cluster.claims) == 1
    assert cluster.remarks == (
        "cluster.yaml:17: ResourceClaim `c` is here again; what counts is the same as in cluster.yaml:7",
    )


def test_places_in_json_are_found_when_they_are_asked_for():
    item = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "%s"}}'
    text = '{"apiVersion": "v1", "kind": "List", "items": [\n' + item % "a" + ",\n" + item % "b" + "]}"
    cluster = build_bundle(documents(text, "dump.json"), now=NOW)
    assert [cluster.find_location(known) for known in cluster.nodes] == ["dump.json:2", "dump.json:3"]
    with pytest.raises(BundleError, match=r"dump.json:3: Node `a` is here again, see dump.json:2"):
        build_bundle(documents(text.replace('"b"', '"a", "labels": {"x": "y"}'), "dump.json"), now=NOW)


def test_a_classic_claim_may_not_share_its_name_with_another_claim():
    classic = "apiVersion: cdi.k8s.io/v1alpha1\nkind: ResourceClaim\nmetadata: {name: c}\n"
    with pytest.raises(BundleError, match="is here again"):
        build_bundle(documents(claim("c", "gpu") + classic), now=NOW)


def test_classic_claims_are_set_aside_and_named():
    cluster = bundle(
        node("a")
        + "apiVersion: cdi.k8s.io/v1alpha1\nkind: ResourceClaim\nmetadata: {name: c, namespace: ml}\n"
    )
    assert [c.metadata.name for c in cluster.classic_claims] == ["c"]
    assert cluster.claims == ()
    assert cluster.remarks == ("claims of `cdi.k8s.io` are allocated by their drivers, not here: `ml/c`",)


def test_other_kinds_are_counted_and_unknown_fields_are_named():
    cluster = bundle(
        node("a")
        + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n"
        + "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: x}\n"
        + "spec:\n  extendedResourceName: a.b/c\n"
    )
    assert cluster.remarks == (
        "cluster.yaml:15: `spec.extendedResourceName` is unknown and ignored",
        "not looked at: 1 ConfigMap",
    )


def test_without_nodes_they_are_taken_from_slices_with_a_remark():
    cluster = bundle(slice_of("node-b", "x") + slice_of("node-a", "x"))
    assert [n.metadata.name for n in cluster.nodes] == ["node-a", "node-b"]
    assert cluster.node_remarks == (
        "no nodes given: took 2 from the slices, without labels: `node-a`, `node-b`",
    )


def test_nodes_of_single_devices_count_too():
    cluster = bundle(
        """
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlice
        metadata: {name: s}
        spec:
          driver: d.example.com
          pool: {name: p, generation: 1, resourceSliceCount: 1}
          perDeviceNodeSelection: true
          devices:
          - {name: x, nodeName: node-x}
        """
    )
    assert [n.metadata.name for n in cluster.nodes] == ["node-x"]


def test_a_single_node_is_never_assumed_in_silence():
    cluster = bundle(claim("c", "gpu"))
    assert [n.metadata.name for n in cluster.nodes] == [ASSUMED_NODE_NAME]
    assert cluster.node_remarks == (
        f"no nodes given and no slice names one: assumed a single node `{ASSUMED_NODE_NAME}`",
    )


def test_slices_of_nodes_that_are_not_given_are_remarked():
    cluster = bundle(node("node-a") + slice_of("node-z", "x"))
    assert cluster.node_remarks == ("slices name nodes that are not given and not used: `node-z`",)


def _deployment(kind: str = "Deployment", **metadata: str) -> str:
    meta = ", ".join(f"{key}: {value}" for key, value in {"name": "web", **metadata}.items())
    counted = "parallelism" if kind == "Job" else "replicas"
    group = "batch" if kind == "Job" else "apps"
    return (
        f"apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{{meta}}}\n"
        f"spec:\n  {counted}: 2\n  template:\n    metadata: {{labels: {{app: web}}}}\n"
        "    spec:\n      resourceClaims: [{name: gpu, resourceClaimTemplateName: each}]\n"
    )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_a_workload_stands_for_its_pods(kind):
    cluster = bundle(node("a") + _deployment(kind))
    assert [(p.metadata.name, p.metadata.labels) for p in cluster.pods] == [
        ("web-0", {"app": "web"}),
        ("web-1", {"app": "web"}),
    ]
    assert cluster.remarks == (f"cluster.yaml:7: looked at 2 of the pods that this {kind} makes",)


def test_a_workload_out_of_a_cluster_has_its_pods_there_already():
    cluster = bundle(node("a") + _deployment(uid="abc"))
    assert cluster.pods == ()
    assert cluster.remarks == ("not looked at: 1 Deployment",)


def test_a_daemon_set_is_not_counted_in_pods():
    assert bundle(node("a") + _deployment("DaemonSet")).pods == ()


RULE = """
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: service-day}
spec:
  deviceSelector: {pool: node-a, device: gpu-0}
  taint: {key: example.com/maintenance, effect: NoExecute}
---
"""


def test_taint_rules_count_for_placing_and_auditing_unless_their_gate_is_off():
    held = allocated("gpu.example.com", "node-a", "gpu-0", "node-a")
    cluster = bundle(
        node("node-a")
        + RULE
        + device_class("gpu", 'device.driver == "gpu.example.com"')
        + slice_of("node-a", "gpu-0")
        + claim("had", "gpu", status=held)
    )
    assert [rule.metadata.name for rule in cluster.rules] == ["service-day"]
    assert cluster.rules[0].spec.taint.time_added == NOW
    gate_filter, without = (
        AllocatorGateFilter.from_overrides({}),
        AllocatorGateFilter.from_overrides({"DRADeviceTaintRules": False}),
    )
    for way, taints in ((gate_filter, 1), (without, 0)):
        seen = build_inventory(cluster, way).get_node_view(cluster.nodes[0]).shape.profiles
        assert [len(profile.taints) for profile in seen] == [taints]
    (evaluate_toy,) = audit_bundle(cluster, gate_filter)
    assert evaluate_toy.rules == ("TaintsTolerated",)
    (evaluate_toy,) = audit_bundle(cluster, without)
    assert evaluate_toy.problems == ()


@pytest.mark.parametrize("first", [True, False])
def test_a_pod_that_is_there_itself_is_not_made_from_its_workload(first):
    itself, workload = pod("web-0", templates="each"), _deployment("StatefulSet")
    texts = [itself, workload + "---\n"] if first else [workload + "---\n", itself]
    cluster = bundle(node("a") + "".join(texts))
    assert sorted(p.metadata.name for p in cluster.pods) == ["web-0", "web-1"]
    assert any(
        "Pod `web-0` of this StatefulSet is here itself, see cluster.yaml:" in r for r in cluster.remarks
    )


PRIORITIES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 5
globalDefault: true
---
"""


def test_pods_get_the_priority_of_their_class_as_a_server_gives_it():
    cluster = bundle(
        node("a")
        + pod("plain", claims="c")
        + pod("named", claims="c", extra="  priorityClassName: high\n")
        + pod("vital", claims="c", extra="  priorityClassName: system-node-critical\n")
        + pod("settled", claims="c", extra="  priorityClassName: high\n  priority: 1000\n")
        + pod("lost", claims="c", extra="  priorityClassName: gone\n")
        + PRIORITIES
    )
    assert {p.metadata.name: p.spec.priority for p in cluster.pods} == {
        "plain": 5,
        "named": 1000,
        "vital": 2_000_001_000,
        "settled": 1000,
        "lost": None,
    }
    assert cluster.remarks == ("PriorityClass `gone` is not in the files; its pods count as priority 0",)
