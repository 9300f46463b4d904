"""The user scenarios of the KEPs, run with kubectl against `dray up`: alternatives, shares, lists, order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.patience import until
from tests.e2e.use_case_cluster import SEEDS, Stage, claim, named, node, pod, request, template

req = pytest.mark.req

Document = dict[str, Any]


def gpus(where: str, *models: str) -> list[Document]:
    """A node and its GPUs."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"model": {"string": model}}}
        for number, model in enumerate(models)
    ]
    inventory = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{where}-gpu"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": where,
            "pool": {"name": where, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    return [node(where), inventory]


# --- KEP-4816: alternatives ---


@req("K4816-001", "K4816-002", "K4816-063", "K4816-078", "K4816-082", "K4816-112")
def test_the_newest_model_that_is_free_or_two_of_an_old_one(stage: Stage) -> None:
    stage.scenery("generations")
    stage.make(*gpus("new", "g3"), *gpus("middle", "g2"), *gpus("old", "g1", "g1", "g1"))
    got = []
    for name in ("p0", "p1", "p2"):
        stage.make(pod(name, template("flexible")))
        got.append((stage.bound(name), stage.got(name)))
    assert got == [
        ("new", ["gpu/newest new gpu-0"]),
        ("middle", ["gpu/older middle gpu-0"]),
        ("old", ["gpu/two-of-the-oldest old gpu-0", "gpu/two-of-the-oldest old gpu-1"]),
    ]
    stage.make(pod("p3", template("flexible")))
    assert "gpu not found: none of 3 alternatives" in stage.pending("p3")
    stage.ends("p1")
    assert stage.bound("p3") == "middle"
    assert stage.got("p3") == ["gpu/older middle gpu-0"]


@req("K4816-079")
@pytest.mark.parametrize(
    ("models", "picked"),
    [
        (("g1", "g1", "g2", "g3"), ["gpu/newest n gpu-3"]),
        (("g1", "g1", "g2"), ["gpu/older n gpu-2"]),
        (("g1", "g1"), ["gpu/two-of-the-oldest n gpu-0", "gpu/two-of-the-oldest n gpu-1"]),
    ],
)
def test_one_manifest_for_clusters_with_different_models(
    stage: Stage, models: tuple[str, ...], picked: list[str]
) -> None:
    stage.scenery("generations")
    stage.make(*gpus("n", *models), pod("p", template("flexible")))
    assert stage.bound("p") == "n"
    assert stage.got("p") == picked


@req("K4816-005", "K4816-075")
def test_claims_of_one_template_get_different_alternatives_and_other_rules_may_decide(stage: Stage) -> None:
    stage.scenery("generations")
    stage.make(*gpus("new", "g3"), *gpus("old", "g1", "g1"))
    stage.kubectl("label", "node", "old", "place=here")
    here = {"nodeSelector": {"place": "here"}}
    stage.make(pod("p0", template("flexible"), **here), pod("p1", template("flexible")))
    assert (stage.bound("p0"), stage.bound("p1")) == ("old", "new")
    assert {len(stage.got("p0")), len(stage.got("p1"))} == {1, 2}


@req("K4816-046", "K4816-047", "K4816-053", "K4816-054")
def test_the_manifests_of_the_proposal_of_alternatives(stage: Stage) -> None:
    """Three claims of one name in three versions; a container names one of two requests, both get devices."""
    stage.scenery(SEEDS / "kep-4816-classes.yaml", SEEDS / "kep-4816-slices.yaml")
    stage.make(node("node-1"), node("node-2"))
    wanted = {
        "kep-4816-single-request.yaml": ["gpu node-1 gpu-0"],
        "kep-4816-first-available.yaml": ["nic node-1 eth1", "gpu/big-gpu node-1 gpu-0"],
        "kep-4816-first-available-v1beta1.yaml": ["nic node-1 eth1", "gpu/big-gpu node-1 gpu-0"],
    }
    told = (SEEDS / "kep-4816-pod.yaml").read_text().split("\n---\n")[0]
    consumer = told.replace("namespace: single-request", f"namespace: {stage.kubectl.namespace}")
    for file, devices in wanted.items():
        text = "\n".join(
            line for line in (SEEDS / file).read_text().splitlines() if not line.startswith("  namespace:")
        )
        stage.kubectl("create", "-f", "-", given=text)
        stage.kubectl("create", "-f", "-", given=consumer)
        assert stage.bound("device-consumer") == "node-1"
        assert stage.devices("device-consumer-claim") == devices
        stage.ends("device-consumer")
        stage.kubectl("delete", "resourceclaim", "device-consumer-claim")


# --- KEP-5075: shares ---


def share(name: str, bandwidth: str) -> Document:
    return claim(name, request("nic", "shared-nic", capacity={"requests": {"bandwidth": bandwidth}}))


def consumed(stage: Stage, name: str) -> list[tuple[str, str]]:
    return [(each["device"], each["consumedCapacity"]["bandwidth"]) for each in stage.results(name)]


@req("K5075-001", "K5075-002", "K5075-013", "K5075-018", "K5075-142", "K5075-143", "K5075-144", "K5075-145")
@req("K5075-165")
def test_pods_of_two_namespaces_share_a_card_until_it_is_full_and_take_what_comes_free(stage: Stage) -> None:
    stage.scenery("network")
    devices = {
        each["name"]: each for each in stage.kubectl.get("resourceslice", "node-a-nic")["spec"]["devices"]
    }
    assert devices["eth1"]["allowMultipleAllocations"] is True
    assert devices["eth1"]["capacity"]["bandwidth"]["requestPolicy"]["default"] == "1Gi"
    other = stage.beside()
    stage.make(share("a", "8Gi"), pod("a", named("a")))
    assert stage.bound("a") == "node-a"
    assert consumed(stage, "a") == [("eth1", "8Gi")]
    other.make(share("b", "8Gi"), pod("b", named("b")), share("c", "2Gi"), pod("c", named("c")))
    assert (other.bound("b"), other.bound("c")) == ("node-a", "node-a")
    assert {*consumed(other, "b"), *consumed(other, "c")} == {("eth2", "8Gi"), ("eth1", "2Gi")}
    shares = [stage.results("a"), other.results("b"), other.results("c")]
    assert len({result["shareID"] for (result,) in shares}) == 3
    # 2Gi are left of 20Gi; eth0 has 10Gi, but is not for shares
    stage.make(share("d", "3Gi"), pod("d", named("d")))
    why = stage.pending("d")
    assert "2Gi" in why, why
    other.ends("c")
    other.kubectl("delete", "resourceclaim", "c")
    until(lambda: "c" not in [each["metadata"]["name"] for each in other.claims()])
    assert "nodeName" not in stage.kubectl.get("pod", "d")["spec"]
    other.ends("b")
    assert stage.bound("d") == "node-a"
    assert consumed(stage, "d") == [("eth2", "3Gi")]


@req("K5075-008")
def test_a_pod_is_bound_when_its_share_is_ready(stage: Stage) -> None:
    ready = {
        "bindsToNode": True,
        "bindingConditions": ["example.com/attached"],
        "bindingFailureConditions": ["example.com/broken"],
    }
    card = {"name": "eth1", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10Gi"}}}
    stage.scenery("network")
    published = stage.kubectl.get("resourceslice", "node-a-nic")
    published["spec"]["devices"] = [card | ready]
    stage.kubectl("replace", "-f", "-", given=published)
    stage.make(share("a", "4Gi"), pod("p", named("a")))
    until(lambda: any("example.com/attached" in text for text in stage.events("p")))
    waiting = stage.kubectl.get("pod", "p")
    assert "nodeName" not in waiting["spec"]
    assert waiting["status"]["nominatedNodeName"] == "node-a"
    (result,) = stage.results("a")
    assert (result["consumedCapacity"], stage.users("a")) == ({"bandwidth": "4Gi"}, ["p"])
    place = {name: result[name] for name in ("driver", "pool", "device", "shareID")}
    attached = {"type": "example.com/attached", "status": "True", "reason": "Attached", "message": ""}
    attached["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    told = {"status": {"devices": [{**place, "conditions": [attached]}]}}
    patch = ("patch", "resourceclaim", "a", "--subresource=status", "--type=merge", "-p", json.dumps(told))
    stage.kubectl(*patch)
    assert stage.bound("p") == "node-a"
    assert stage.results("a") == [result]


@req("K5075-005")
def test_pods_that_use_one_share_together(stage: Stage) -> None:
    stage.scenery("network")
    stage.make(share("a", "8Gi"), pod("p0", named("a")), pod("p1", named("a")))
    assert (stage.bound("p0"), stage.bound("p1")) == ("node-a", "node-a")
    assert consumed(stage, "a") == [("eth1", "8Gi")]
    assert stage.users("a") == ["p0", "p1"]


@req("K5075-019")
def test_two_requests_that_must_not_get_the_same_interface(stage: Stage) -> None:
    stage.scenery("network")
    two = (request("one", "shared-nic"), request("two", "shared-nic"))
    stage.make(claim("any", *two), pod("any", named("any")))
    assert stage.bound("any") == "node-a"
    assert stage.devices("any") == ["one node-a eth1", "two node-a eth1"]
    apart = {"requests": ["one", "two"], "distinctAttribute": "nic.example.com/interfaceName"}
    stage.make(claim("apart", *two, constraints=[apart]), pod("apart", named("apart")))
    assert stage.bound("apart") == "node-a"
    assert stage.devices("apart") == ["one node-a eth1", "two node-a eth2"]


@req("K5075-020", "K5075-021")
def test_bandwidth_is_what_was_asked_for_or_the_drivers_default_and_never_above_its_most(
    stage: Stage,
) -> None:
    stage.scenery("network")
    asked = claim("default", request("nic", "shared-nic"))
    stage.make(asked, share("little", "1Mi"), share("odd", "2500Mi"), share("much", "9Gi"))
    for name in ("default", "little", "odd", "much"):
        stage.make(pod(name, named(name)))
    assert {stage.bound(name) for name in ("default", "little", "odd")} == {"node-a"}
    got = {name: consumed(stage, name)[0][1] for name in ("default", "little", "odd")}
    assert got == {"default": "1Gi", "little": "1Gi", "odd": "3Gi"}
    why = stage.pending("much")
    assert "8Gi" in why, why
    assert "9Gi" in why, why


@req("K5075-101", "K5075-102", "K5075-103")
def test_the_manifests_of_the_proposal_of_shares(stage: Stage) -> None:
    files = ("kep-5075-class-selector.yaml", "kep-5075-shared-nic-slice.yaml")
    stage.scenery(*(SEEDS / file for file in files))
    stage.make(node("node-1"))
    for name, claim_name in (
        ("capacity-request", "guaranteed-bandwidth"),
        ("distinct-interfaces", "two-interfaces"),
    ):
        stage.kubectl("create", "namespace", name)
        stage.kubectl("apply", "-n", name, "-f", str(SEEDS / f"kep-5075-{name}.yaml"))
        stage.kubectl("create", "-n", name, "-f", "-", given=pod("p", named(claim_name)))
    for name in ("capacity-request", "distinct-interfaces"):
        wait = ("wait", "-n", name, "--for=jsonpath={.spec.nodeName}=node-1", "pod/p", "--timeout=30s")
        stage.kubectl(*wait)
    given = stage.kubectl.get("-n", "capacity-request", "resourceclaim", "guaranteed-bandwidth")
    (result,) = given["status"]["allocation"]["devices"]["results"]
    assert (result["device"], result["consumedCapacity"]) == ("eth1", {"bandwidth": "5Gi"})
    place = {name: result[name] for name in ("driver", "pool", "device", "shareID")}
    told = {"status": {"devices": [{**place, "data": {"ips": [{"address": "10.0.103.49/16"}]}}]}}
    patch = ("patch", "resourceclaim", "guaranteed-bandwidth", "--subresource=status", "--type=merge")
    stage.kubectl(*patch, "-n", "capacity-request", "-p", json.dumps(told))
    given = stage.kubectl.get("-n", "capacity-request", "resourceclaim", "guaranteed-bandwidth")
    assert [each["shareID"] for each in given["status"]["devices"]] == [result["shareID"]]
    given = stage.kubectl.get("-n", "distinct-interfaces", "resourceclaim", "two-interfaces")
    results = given["status"]["allocation"]["devices"]["results"]
    assert [(each["request"], each["device"]) for each in results] == [
        ("macvlan-1", "eth1"),
        ("macvlan-2", "eth2"),
    ]
    stage.kubectl("delete", "namespace", "capacity-request", "distinct-interfaces", "--wait=false")


# --- KEP-5491: lists ---


@req("K5491-011", "K5491-028", "K5491-030", "K5491-034", "K5491-035")
def test_a_cpu_a_gpu_and_a_card_on_one_root(stage: Stage) -> None:
    stage.scenery(SEEDS / "kep-5491-aligned-slices.yaml")
    stage.make(node("node-1"))
    given = (SEEDS / "kep-5491-aligned-claim.yaml").read_text()
    text = given.replace("namespace: aligned", f"namespace: {stage.kubectl.namespace}")
    stage.kubectl("create", "-f", "-", given=text)
    stage.make(pod("p", named("aligned")))
    assert stage.bound("p") == "node-1"
    assert stage.devices("aligned") == ["gpu gpu gpu-0", "nic nic nic-0", "cpu cpu cpu-0"]
    root = {"requests": ["cpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    second = claim(
        "second", request("cpu", "cpu.example.com"), request("nic", "nic.example.com"), constraints=[root]
    )
    stage.make(second, pod("late", named("second")))
    assert "nic" in stage.pending("late")
    stage.ends("p")
    assert stage.bound("late") == "node-1"
    assert stage.devices("second") == ["cpu cpu cpu-0", "nic nic nic-0"]


# --- KEP-5773: order ---


@req("K5773-004", "K5773-005", "K5773-006", "K5773-031")
def test_the_smallest_device_that_fits_and_local_ones_before_those_on_the_network(stage: Stage) -> None:
    stage.scenery("memory")
    at_least = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("{}")) >= 0'
    picked = []
    for number, least in enumerate(("1Gi", "1Gi", "1Gi", "1Gi")):
        selectors = [{"cel": {"expression": at_least.format(least)}}]
        stage.make(claim(f"c{number}", request("gpu", "gpu", selectors=selectors)))
        stage.make(pod(f"p{number}", named(f"c{number}")))
        assert stage.bound(f"p{number}") == "node-a"
        picked += stage.devices(f"c{number}")
    assert picked == ["gpu node-a gpu-1", "gpu node-a gpu-20", "gpu node-a gpu-80", "gpu a-fabric far-1"]
    stage.ends("p1")
    stage.until_free("c1")
    stage.make(claim("again", request("gpu", "gpu")), pod("again", named("again")))
    stage.bound("again")
    assert stage.devices("again") == ["gpu node-a gpu-20"]
