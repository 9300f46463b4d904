"""Pods and claims find their nodes, one after the other; what goes wrong with one touches no other."""

from __future__ import annotations

import pytest

from dray.simulation.file_placement import PlacedUnit, PlacementOutcome, PlacementScope, UnplacedUnit
from tests.unit.simulation.cluster_text import (
    allocated,
    bundle,
    claim,
    device_class,
    node,
    outcomes,
    owned_by,
    pod,
    slice_of,
    template,
)

GPU = "gpu.example.com"
TWO_NODES = node("node-a") + node("node-b") + device_class("gpu", GPU)


def shown(outcome: PlacementOutcome) -> str:
    """`pod default/x on node-a: gpu-0`, or why not."""
    if isinstance(outcome, UnplacedUnit):
        return f"{outcome.unit}: {outcome.why or 'no devices'}"
    devices = [
        result.device
        for made in outcome.claims
        if made.status.allocation
        for result in made.status.allocation.devices.results
    ]
    return f"{outcome.unit} on {outcome.node.metadata.name}: {' '.join(devices)}"


def placed(text: str, limits: PlacementScope | None = None, **switches: bool) -> list[str]:
    return [shown(outcome) for outcome in outcomes(bundle(text), limits, **switches)]


def test_what_one_pod_takes_the_next_does_not_get():
    text = TWO_NODES + slice_of("node-a", "gpu-0") + slice_of("node-b", "gpu-0") + template("t", "gpu")
    pods = "".join(pod(name, templates="t") for name in ("x", "second", "z"))
    assert placed(text + pods) == [
        "pod default/x on node-a: gpu-0",
        "pod default/second on node-b: gpu-0",
        "pod default/z: no devices",
    ]


def test_pods_come_as_in_the_manifests_unless_they_have_priorities():
    text = TWO_NODES + slice_of("node-a", "gpu-0", "gpu-1", "gpu-2") + template("t", "gpu")
    pods = (
        pod("z", templates="t") + pod("a", templates="t") + pod("m", templates="t", extra="  priority: 9\n")
    )
    assert [line.split(" ")[1] for line in placed(text + pods)] == ["default/m", "default/z", "default/a"]


@pytest.mark.req("K4816-065", "K4816-066", "K4816-067", "K4816-068")
def test_the_better_alternative_decides_the_node_before_its_name_does():
    text = (
        TWO_NODES
        + device_class("big", "big.example.com")
        + slice_of("node-a", "gpu-0")
        + slice_of("node-b", "gpu-0")
        + slice_of("node-b", "huge", driver="big.example.com")
    )
    assert placed(text + claim("c", "big", "gpu")) == ["claim default/c on node-b: huge"]
    assert placed(text + claim("c", "gpu", "big")) == ["claim default/c on node-a: gpu-0"]


@pytest.mark.req("K4816-067")
def test_ranks_of_several_claims_are_added_up():
    text = (
        TWO_NODES
        + device_class("big", "big.example.com")
        + slice_of("node-a", "gpu-0", "gpu-1")
        + slice_of("node-a", "huge", driver="big.example.com")
        + slice_of("node-b", "huge-0", "huge-1", driver="big.example.com")
    )
    both = claim("c", "big", "gpu") + claim("d", "big", "gpu") + pod("x", claims="c d")
    assert placed(text + both) == ["pod default/x on node-b: huge-0 huge-1"]


def test_a_shared_claim_is_allocated_once_and_reserved_for_each():
    text = TWO_NODES + slice_of("node-b", "gpu-0") + claim("c", "gpu")
    found = outcomes(bundle(text + pod("x", claims="c") + pod("second", claims="c")))
    assert [shown(outcome) for outcome in found] == [
        "pod default/x on node-b: gpu-0",
        "pod default/second on node-b: gpu-0",
    ]
    first, second = found
    assert isinstance(first, PlacedUnit)
    assert isinstance(second, PlacedUnit)
    assert [len(o.newly_allocated) for o in (first, second)] == [1, 0]
    assert [c.name for c in second.claims[0].status.reserved_for] == ["x", "second"]


def test_a_claim_with_devices_holds_its_pod_where_they_are():
    text = (
        TWO_NODES
        + slice_of("node-a", "gpu-0")
        + slice_of("node-b", "gpu-0", "gpu-1")
        + claim("c", "gpu", status=allocated(GPU, "node-b", "gpu-0", "node-b"))
        + template("t", "gpu")
    )
    assert placed(text + pod("x", claims="c", templates="t")) == ["pod default/x on node-b: gpu-0 gpu-1"]


def test_claims_with_devices_on_two_nodes_leave_no_node():
    text = (
        TWO_NODES
        + claim("c", "gpu", status=allocated(GPU, "node-a", "gpu-0", "node-a"))
        + claim("d", "gpu", status=allocated(GPU, "node-b", "gpu-0", "node-b"))
    )
    (found,) = outcomes(bundle(text + pod("x", claims="c d")))
    assert isinstance(found, UnplacedUnit)
    assert found.why == (
        "no node reaches the devices that these claims already have: `default/d`, `default/c`"
    )
    assert [(n.metadata.name, c.metadata.name) for n, c in found.context.excluded] == [
        ("node-a", "d"),
        ("node-b", "c"),
    ]


def test_a_pod_that_has_a_node_is_only_tried_there():
    text = TWO_NODES + slice_of("node-a", "gpu-0") + slice_of("node-b", "gpu-0") + template("t", "gpu")
    bound = pod("x", templates="t", extra="  nodeName: node-b\n")
    assert placed(text + bound) == ["pod default/x on node-b: gpu-0"]
    assert placed(text + bound, PlacementScope(node="node-a")) == [
        "pod default/x: the pod is bound to node `node-b`, not to `node-a`"
    ]
    gone = pod("x", templates="t", extra="  nodeName: node-z\n")
    assert placed(text + gone) == ["pod default/x: node `node-z` is not among the manifests"]


def test_pods_that_have_all_they_need_or_are_over_do_not_wait():
    text = TWO_NODES + claim("c", "gpu", status=allocated(GPU, "node-a", "gpu-0", "node-a"))
    running = pod("x", claims="c", extra="  nodeName: node-a\n")
    over = pod("second", claims="c", extra="status: {phase: Succeeded}\n")
    assert placed(text + running + over + pod("bare")) == []


def test_cordoned_nodes_are_left_out_unless_asked_for():
    cordoned = "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\nspec: {unschedulable: true}\n---\n"
    text = cordoned + device_class("gpu", GPU) + slice_of("node-a", "gpu-0") + claim("c", "gpu")
    assert placed(text) == ["claim default/c: no node takes pods: `node-a` unschedulable"]
    assert placed(text, PlacementScope(node="node-a")) == ["claim default/c on node-a: gpu-0"]


def test_claims_of_waiting_pods_wait_with_them_and_others_alone():
    text = TWO_NODES + slice_of("node-a", "gpu-0", "gpu-1") + claim("lone", "gpu") + claim("used", "gpu")
    assert placed(text + pod("x", claims="used")) == [
        "pod default/x on node-a: gpu-0",
        "claim default/lone on node-a: gpu-1",
    ]


def test_a_run_can_be_limited_to_a_pod_or_a_claim():
    text = (
        TWO_NODES + slice_of("node-a", "gpu-0") + claim("c", "gpu") + claim("d", "gpu") + pod("x", claims="d")
    )
    assert placed(text, PlacementScope(claims=frozenset({("default", "c")}))) == [
        "claim default/c on node-a: gpu-0"
    ]
    assert placed(text, PlacementScope(pods=frozenset({("default", "x")}))) == [
        "pod default/x on node-a: gpu-0"
    ]


def test_claims_from_templates_are_made_as_the_controller_makes_them():
    text = TWO_NODES + slice_of("node-a", "gpu-0") + template("t", "gpu") + pod("x", templates="t")
    (found,) = outcomes(bundle(text))
    assert isinstance(found, PlacedUnit)
    metadata = found.claims[0].metadata
    assert (metadata.namespace, metadata.name) == ("default", "x-t")
    assert metadata.labels == {"app": "x"}
    assert metadata.annotations == {"resource.kubernetes.io/pod-claim-name": "t"}
    assert [(o.kind, o.name, o.controller) for o in metadata.owner_references] == [("Pod", "x", True)]


def test_a_name_that_is_taken_is_not_given_again():
    text = TWO_NODES + slice_of("node-a", "gpu-0") + template("t", "gpu") + claim("x-t", "gpu")
    first, _ = outcomes(bundle(text + pod("x", templates="t")))
    assert isinstance(first, PlacedUnit)
    assert first.claims[0].metadata.name == "x-t-2"


def test_the_claim_made_for_a_template_earlier_is_used_again():
    made = owned_by(claim("x-t-abcde", "gpu"), "x", entry="t")
    text = TWO_NODES + slice_of("node-a", "gpu-0", "gpu-1") + template("t", "gpu") + made
    (found,) = outcomes(bundle(text + pod("x", templates="t")))
    assert isinstance(found, PlacedUnit)
    assert found.claims[0].metadata.name == "x-t-abcde"


def test_the_status_of_the_pod_names_claims_and_entries_that_need_none():
    statuses = "status:\n  resourceClaimStatuses:\n  - {name: t, resourceClaimName: mine}\n  - {name: u}\n"
    text = (
        TWO_NODES
        + slice_of("node-a", "gpu-0", "gpu-1")
        + template("t", "gpu")
        + template("u", "gpu")
        + owned_by(claim("mine", "gpu"), "x")
    )
    (found,) = outcomes(bundle(text + pod("x", templates="t u", extra=statuses)))
    assert isinstance(found, PlacedUnit)
    assert [made.metadata.name for made in found.claims] == ["mine"]


OBSTACLES = [
    ("", pod("x", claims="c"), "claim `default/c` is not among the manifests"),
    (
        "",
        pod("x", templates="t"),
        "entry `t`: ResourceClaimTemplate `default/t` is not among the manifests",
    ),
    (
        claim("c", "gpu").replace("  name: c\n", "  name: c\n  deletionTimestamp: 2026-01-01T00:00:00Z\n"),
        pod("x", claims="c"),
        "claim default/c is being deleted",
    ),
    (
        "apiVersion: cdi.k8s.io/v1alpha1\nkind: ResourceClaim\nmetadata: {name: c}\n---\n",
        pod("x", claims="c"),
        "claim `default/c` is one of `cdi.k8s.io`: its driver allocates it",
    ),
    (
        claim(
            "c", "gpu", status="status:\n  reservedFor:\n" + "  - {resource: pods, name: p, uid: u}\n" * 256
        ),
        pod("x", claims="c"),
        "claim default/c has 256 consumers already, the most a claim can have",
    ),
    (
        "",
        pod("x", claims="e").replace("resourceClaimName: e", "template: {}"),
        "entry `e` stands for a claim of `cdi.k8s.io`: its driver allocates it",
    ),
]


@pytest.mark.parametrize(("objects", "waiting", "why"), OBSTACLES, ids=[row[2] for row in OBSTACLES])
def test_an_obstacle_is_reported_and_concerns_only_its_pod(objects, waiting, why):
    text = TWO_NODES + slice_of("node-a", "gpu-0") + template("fine", "gpu") + objects
    found = placed(text + pod("other", templates="fine") + waiting)
    assert found[:2] == ["pod default/other on node-a: gpu-0", f"pod default/x: {why}"]


FAULTS = [
    (claim("c", "nope"), {}, "claim default/c: request `r`: device class `nope` does not exist"),
    (
        claim("c", "gpu", count=33),
        {},
        "claim default/c: spec.devices.requests: asks for 33 devices, but one claim can hold at most 32",
    ),
    (
        claim("c", "gpu", "gpu"),
        {"DRAPrioritizedList": False},
        "claim default/c: spec.devices.requests[0].firstAvailable: has alternatives (`firstAvailable`), "
        "but the DRAPrioritizedList feature is disabled",
    ),
]


@pytest.mark.parametrize(("broken", "switches", "why"), FAULTS, ids=["class", "too many", "gate"])
def test_a_claim_that_no_node_can_satisfy_stops_only_its_own_pod(broken, switches, why):
    text = TWO_NODES + slice_of("node-a", "gpu-0") + claim("fine", "gpu") + broken
    found = placed(text + pod("x", claims="c") + pod("second", claims="fine"), **switches)
    assert found == [f"pod default/x: {why}", "pod default/second on node-a: gpu-0"]


def test_a_selector_that_fails_on_one_device_rules_out_that_node_only():
    text = TWO_NODES + device_class("odd", "sized")
    text += slice_of("node-a", "bad") + slice_of("node-b", "gpu-0", memory="8Gi")
    assert placed(text + claim("c", "odd") + claim("d", "gpu")) == [
        "claim default/c on node-b: gpu-0",
        "claim default/d on node-a: bad",
    ]


def test_an_incomplete_pool_offers_nothing_and_affects_no_other():
    text = (
        TWO_NODES
        + slice_of("node-a", "gpu-0").replace("resourceSliceCount: 1", "resourceSliceCount: 2")
        + slice_of("node-b", "gpu-0")
        + claim("c", "gpu")
    )
    assert placed(text) == ["claim default/c on node-b: gpu-0"]


def test_shares_get_ids_from_the_caller_and_use_up_capacity():
    shared = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n"
        "  driver: nic.example.com\n  nodeName: node-a\n"
        "  pool: {name: p, generation: 1, resourceSliceCount: 1}\n"
        "  devices:\n  - {name: eth0, allowMultipleAllocations: true, capacity: {bw: {value: 10G}}}\n---\n"
    )
    ask = "".join(
        claim(name, "nic").replace(", count: 1}", ", count: 1, capacity: {requests: {bw: 6G}}}")
        for name in ("c", "d")
    )
    first, second = outcomes(bundle(TWO_NODES + device_class("nic", "nic.example.com") + shared + ask))
    assert isinstance(first, PlacedUnit)
    assert isinstance(second, UnplacedUnit)
    allocation = first.claims[0].status.allocation
    assert allocation is not None
    assert allocation.devices.results[0].share_id == "share-1"


def test_the_bundle_is_left_as_it_was():
    cluster = bundle(TWO_NODES + slice_of("node-a", "gpu-0") + claim("c", "gpu") + pod("x", claims="c"))
    before = repr(cluster)
    outcomes(cluster)
    assert repr(cluster) == before
