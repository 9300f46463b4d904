"""Explanations of pods of a running cluster: where they are, what keeps them from nodes or devices."""

from __future__ import annotations

from itertools import count

import pytest

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.search.resumable import TimeLimit
from dray.client.object_refs import get_kind
from dray.cluster.live.access import AccessGap
from dray.cluster.live.explain import LiveExplainer, LiveExplanation
from dray.cluster.live.snapshot import LiveSnapshot
from dray.gates import GateSet
from dray.simulation.file_placement import build_inventory
from tests.unit.simulation.cluster_text import (
    allocated,
    bundle,
    claim,
    device_class,
    evaluator,
    pod,
    slice_of,
)

GPU = "gpu.example.com"


def node(name: str, cpu: str = "4", spec: str = "{}") -> str:
    return (
        f"apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{name: {name}}}\n"
        f"spec: {spec}\nstatus:\n  allocatable: {{cpu: '{cpu}', memory: 8Gi, pods: '10'}}\n---\n"
    )


def asking(cpu: str) -> str:
    return f"  containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]\n"


TAINTED = "{taints: [{key: example.com/down, effect: NoSchedule}]}"
SMALL = (
    node("node-a")
    + node("node-b", cpu="2")
    + node("node-c", spec=TAINTED)
    + "".join(slice_of(name, "gpu-0") for name in ("node-a", "node-b", "node-c"))
    + device_class("gpu", GPU)
    + claim("one", "gpu")
    + claim("two", "gpu", count=2)
)


def asked(
    text: str, name: str, kind: str = "pod", only: str | None = None, gaps: tuple[AccessGap, ...] = ()
) -> LiveExplanation:
    cluster, admission = bundle(SMALL + text), AllocatorGateFilter(GateSet.from_defaults())
    explainer = LiveExplainer(
        LiveSnapshot(cluster, gaps),
        admission,
        build_inventory(cluster, admission, evaluator),
        only,
        TimeLimit(lambda: 0.0),
    )
    explain = explainer.explain_pod if kind == "pod" else explainer.explain_claim
    return explain(("default", name))


def left_out(explanation: LiveExplanation) -> dict[str, str]:
    return {name: each.rejection.reason for each in explanation.excluded_nodes for name in each.nodes}


def test_a_pod_that_fits_is_left_to_the_scheduler() -> None:
    explanation = asked(pod("p", claims="one", extra=asking("3")), "p")
    assert explanation.is_good
    assert explanation.headline == "Pod default/p fits node-a"
    assert left_out(explanation) == {
        "node-b": "too little cpu in all (asks for 3)",
        "node-c": "untolerated taint example.com/down:NoSchedule",
    }
    assert explanation.remarks == ("waits for scheduler `default-scheduler`",)


def test_the_scheduler_s_last_message_is_shown_when_the_pod_would_fit_now() -> None:
    condition = (
        "status:\n  conditions: [{type: PodScheduled, status: 'False', message: there were no nodes}]\n"
    )
    explanation = asked(pod("p", claims="one", extra=condition), "p")
    assert explanation.remarks == (
        "waits for scheduler `default-scheduler`, which said last: there were no nodes",
    )


def test_a_pod_that_waits_for_devices_to_become_ready_names_them() -> None:
    held = allocated(GPU, "node-a", "gpu-0", "node-a").replace(
        "device: gpu-0}",
        "device: gpu-0, bindingConditions: [attached], bindingFailureConditions: [broken]}",
    )
    held += "  reservedFor: [{resource: pods, name: p, uid: u}]\n"
    waits = pod("p", claims="slow").replace("  name: p\n", "  name: p\n  uid: u\n")
    explanation = asked(claim("slow", "gpu", status=held) + waits, "p")
    assert not explanation.is_good
    assert explanation.summary == "claim default/slow: device gpu.example.com/node-a/gpu-0 waits for attached"
    assert explanation.headline == f"Pod default/p cannot run yet: {explanation.summary}"


def test_devices_are_explained_on_the_nodes_that_are_left() -> None:
    explanation = asked(pod("p", claims="two", extra=asking("1")), "p")
    assert not explanation.is_good
    assert explanation.headline == "Pod default/p cannot run yet: no node can satisfy claim default/two"
    assert [report.nodes for report in explanation.diagnosis.node_reports] == [("node-a", "node-b")]
    assert list(left_out(explanation)) == ["node-c"]
    assert explanation.diagnosis.hints
    assert explanation.summary.startswith("no node can satisfy claim default/two; node-a and node-b: ")
    assert "node-c: untolerated taint" in explanation.summary


def test_a_pod_that_no_node_takes() -> None:
    explanation = asked(pod("p", extra=asking("9")), "p")
    assert not explanation.is_good
    assert explanation.headline == "Pod default/p cannot run yet: none of 3 nodes takes it"
    assert sorted(left_out(explanation)) == ["node-a", "node-b", "node-c"]
    assert "too little cpu in all (asks for 9)" in explanation.summary


def test_a_single_node() -> None:
    explanation = asked(pod("p", claims="one"), "p", only="node-c")
    assert explanation.headline == "Pod default/p cannot run yet: node-c does not take it"


def test_pods_that_are_there_fill_their_node() -> None:
    others = pod("there", extra=f"  nodeName: node-a\n{asking('3')}")
    explanation = asked(others + pod("p", extra=asking("2")), "p")
    assert explanation.headline == "Pod default/p fits node-b"
    assert left_out(explanation)["node-a"] == "too little cpu free (asks for 2)"


def test_a_pod_without_claims_is_explained_too() -> None:
    explanation = asked(pod("p", extra=asking("1")), "p")
    assert explanation.headline == "Pod default/p fits node-a"


HELD = claim("held", "gpu", status=allocated(GPU, "node-a", "gpu-0", "node-a"))


def test_a_pod_that_has_its_place() -> None:
    explanation = asked(HELD + pod("p", claims="held", extra="  nodeName: node-a\n"), "p")
    assert (explanation.is_good, explanation.is_allocated, explanation.node) == (True, True, "node-a")
    assert explanation.headline == "Pod default/p is on node-a"
    assert [str(found.device) for found in explanation.diagnosis.node_reports[0].found] == [
        f"{GPU}/node-a/gpu-0"
    ]


def test_a_pod_that_was_put_on_a_node_past_the_scheduler() -> None:
    explanation = asked(pod("p", claims="one", extra="  nodeName: node-a\n"), "p")
    assert explanation.remarks == (
        "claim default/one has no devices: the pod got its node without a scheduler",
    )


def test_a_pod_that_has_ended() -> None:
    ended = pod("p", claims="one", extra="  nodeName: node-a\nstatus: {phase: Succeeded}\n")
    assert asked(ended, "p").headline == "Pod default/p has ended (Succeeded)"


def test_devices_that_a_claim_has_elsewhere_leave_nodes_out() -> None:
    explanation = asked(HELD + pod("p", claims="held one"), "p")
    assert left_out(explanation)["node-b"] == "claim default/held has its devices elsewhere"
    assert explanation.headline == "Pod default/p cannot run yet: no node can satisfy claim default/one"
    assert "has devices already: default/held" in explanation.remarks


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (pod("p", claims="nope"), "claim default/nope does not exist"),
        (pod("p", templates="t"), "entry t: its claim has not been made from template t yet"),
        (
            pod("p", extra="  schedulingGates: [{name: a}, {name: b}]\n"),
            "it is held back by scheduling gates: a, b",
        ),
    ],
)
def test_what_is_missing_before_any_node_is_looked_at(text: str, why: str) -> None:
    explanation = asked(text, "p")
    assert not explanation.is_good
    assert explanation.headline == f"Pod default/p cannot run yet: {why}"
    assert explanation.summary == why
    missing = ("ResourceClaimTemplate t does not exist",) if "template t" in why else ()
    assert explanation.remarks == missing


CLASSIC = """
apiVersion: cdi.k8s.io/v1alpha1
kind: ResourceClaim
metadata: {name: old}
spec: {resourceClassName: acme, allocationMode: Delayed}
---
"""


def test_a_pod_that_waits_for_the_driver_of_a_classic_claim() -> None:
    explanation = asked(CLASSIC + pod("p", claims="old one"), "p")
    assert not explanation.is_good
    assert explanation.headline == (
        "Pod default/p cannot run yet: waiting for the driver of claim default/old to allocate it for "
        "node node-a"
    )
    assert list(left_out(explanation)) == ["node-c"]
    now = asked(CLASSIC.replace("Delayed", "Immediate") + pod("p", claims="old"), "p")
    assert now.summary == (
        "claim default/old is not allocated yet; its driver does so without waiting for a pod"
    )


def test_a_claim_with_and_without_devices() -> None:
    held = asked(HELD, "held", "claim")
    assert held.headline == "Claim default/held has its devices"
    assert held.remarks == ("reserved for nobody",)
    assert asked("", "one", "claim").headline == "Claim default/one fits node-a"
    assert asked("", "two", "claim").headline == (
        "Claim default/two cannot be allocated yet: no node has what it asks for"
    )


def test_what_was_given_up_once_is_not_searched_for_three_times() -> None:
    """The clock goes on by a second with every event, and the search may take three."""
    seconds = count()
    cluster = bundle(
        node("node-a")
        + slice_of("node-a", *(f"gpu-{number}" for number in range(30)))
        + device_class("gpu", GPU)
        + claim("many", "gpu", count=30)
        + pod("p", claims="many")
    )
    admission = AllocatorGateFilter(GateSet.from_defaults())
    limit = TimeLimit(lambda: float(next(seconds)), 3.0)
    explainer = LiveExplainer(
        LiveSnapshot(cluster), admission, build_inventory(cluster, admission, evaluator), None, limit
    )
    explanation = explainer.explain_pod(("default", "p"))
    assert not explanation.is_good
    assert explanation.headline == "Pod default/p may or may not fit: the search gave up on node-a"
    assert "was given up after" in explanation.summary
    assert explainer._devices.searches.ending_counts == {"GaveUp": 1}


SAID = "status:\n  conditions: [{type: PodScheduled, status: 'False', message: 0/3 nodes are available}]\n"


@pytest.mark.parametrize("kind", ["ResourceSlice.resource.k8s.io", "DeviceClass.resource.k8s.io"])
def test_who_may_not_read_devices_gets_the_words_of_the_scheduler(kind: str) -> None:
    explanation = asked(pod("p", claims="two", extra=SAID), "p", gaps=(AccessGap(get_kind(kind)),))
    assert not explanation.is_good
    assert explanation.headline == "Pod default/p cannot run yet: 0/3 nodes are available"
    assert explanation.remarks == (
        "claim default/two has no devices yet",
        "the reason is the scheduler's: not enough can be read to search for devices here",
    )


def test_a_claim_that_may_not_be_read_is_not_called_missing() -> None:
    claims = get_kind("ResourceClaim.resource.k8s.io")
    unread = asked(pod("p", claims="hidden"), "p", gaps=(AccessGap(claims),))
    assert unread.headline == "Pod default/p cannot run yet: the scheduler has not said yet why"
    read = asked(pod("p", claims="hidden"), "p", gaps=(AccessGap(claims, ("default",)),))
    assert read.headline == "Pod default/p cannot run yet: claim default/hidden does not exist"


def test_who_may_not_read_nodes_gets_an_answer_about_devices() -> None:
    explanation = asked(pod("p", claims="two", extra=SAID), "p", gaps=(AccessGap(get_kind("Node")),))
    assert not explanation.is_good
    assert explanation.headline == "Pod default/p cannot run yet: no node can satisfy claim default/two"
    assert explanation.remarks == ("the scheduler says: 0/3 nodes are available",)


def test_a_claim_without_readable_devices() -> None:
    gaps = (AccessGap(get_kind("ResourceSlice.resource.k8s.io")),)
    explanation = asked("", "two", "claim", gaps=gaps)
    assert (explanation.headline, explanation.is_good) == ("Claim default/two has no devices yet", False)
