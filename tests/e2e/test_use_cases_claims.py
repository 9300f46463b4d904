"""Use cases of pods and their claims, run with kubectl against `dray up`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.patience import until
from tests.e2e.use_case_cluster import Stage, claim, named, pod, request, template

req = pytest.mark.req

GPU = "gpu.example.com"
SHARED = claim("shared", request("gpu", GPU))


def test_a_pod_gets_a_claim_from_its_template_and_takes_it_along(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(pod("p", template("one")))
    where = stage.bound("p")
    (made,) = stage.claims()
    assert stage.claim_of("p") == made["metadata"]["name"]
    assert made["metadata"]["labels"] == {"made": "from-template"}
    assert [owner["name"] for owner in made["metadata"]["ownerReferences"]] == ["p"]
    assert stage.got("p") == [f"gpu {where} gpu-0"]
    assert stage.users(made["metadata"]["name"]) == ["p"]
    assert any(f"to {where}" in text for text in stage.events("p"))
    stage.ends("p")
    stage.until_gone()


def test_a_pod_waits_for_devices_and_gets_those_that_come_free(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(pod("p0", template("two")), pod("p1", template("two")))
    assert {stage.bound("p0"), stage.bound("p1")} == {"node-a", "node-b"}
    stage.make(pod("late", template("two")))
    why = stage.pending("late")
    assert "2 in use" in why, why
    freed = stage.bound("p0")
    stage.ends("p0")
    assert stage.bound("late") == freed
    assert stage.got("late") == [f"gpu {freed} gpu-0", f"gpu {freed} gpu-1"]


@req("K4816-072", "K4816-073", "K4816-074")
def test_two_pods_share_a_named_claim_and_its_one_device(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(SHARED, pod("first", named("shared")))
    where = stage.bound("first")
    devices = stage.devices("shared")
    stage.make(*(pod(f"more-{number}", named("shared")) for number in range(4)))
    assert {stage.bound(f"more-{number}") for number in range(4)} == {where}
    assert stage.devices("shared") == devices == [f"gpu {where} gpu-0"]
    assert stage.users("shared") == ["first", "more-0", "more-1", "more-2", "more-3"]
    stage.ends("first", "more-0", "more-1")
    until(lambda: stage.users("shared") == ["more-2", "more-3"], lambda: stage.users("shared"))
    assert stage.devices("shared") == devices
    stage.ends("more-2", "more-3")
    stage.until_free("shared")


def test_a_pod_cannot_leave_the_node_where_its_claim_has_devices(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(SHARED, pod("first", named("shared")))
    where = stage.bound("first")
    elsewhere = {"node-a": "node-b", "node-b": "node-a"}[where]
    stage.make(pod("second", named("shared"), nodeSelector={"name": elsewhere}))
    assert f"{elsewhere}: claim {stage.kubectl.namespace}/shared has its devices elsewhere" in stage.pending(
        "second"
    )
    # when nobody else uses the claim any more, it may move
    stage.ends("first")
    assert stage.bound("second") == elsewhere
    assert stage.devices("shared") == [f"gpu {elsewhere} gpu-0"]


def test_a_pod_with_several_claims_gets_all_of_them_on_one_node(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(pod("single", template("one")))
    busy = stage.bound("single")
    stage.make(pod("several", template("one", "x"), template("one", "y")))
    free = stage.bound("several")
    assert {busy, free} == {"node-a", "node-b"}
    assert {*stage.got("several", "x"), *stage.got("several", "y")} == {f"gpu {free} gpu-{n}" for n in (0, 1)}
    stage.make(SHARED, pod("mixed", named("shared", "s"), template("one", "own")))
    why = stage.pending("mixed")
    assert "claim" in why, why
    assert "allocation" not in stage.claim("shared").get("status", {})
    stage.ends("several")
    assert stage.bound("mixed") == free
    assert sorted([*stage.devices("shared"), *stage.got("mixed", "own")]) == [
        f"gpu {free} gpu-0",
        f"gpu {free} gpu-1",
    ]


def test_a_pod_waits_for_a_template_and_a_class_that_come_later(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(pod("early", named("later")))
    assert "later" in stage.pending("early")
    stage.make(claim("later", request("g", "later.example.com")))
    assert "later.example.com" in stage.until_pending_says("early", "later.example.com")
    selector = {"cel": {"expression": "true"}}
    stage.make(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "later.example.com"},
            "spec": {"selectors": [selector]},
        }
    )
    where = stage.bound("early")
    assert stage.devices("later") == [f"g {where} gpu-0"]


@req("K4816-024")
def test_what_people_get_is_what_the_classes_of_their_cluster_select(stage: Stage) -> None:
    stage.scenery("gpus")
    classes: list[dict[str, Any]] = [
        {"metadata": {"name": "anything"}},
        {
            "metadata": {"name": "one"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'no'"}}]},
        },
    ]
    for each in classes:
        stage.make({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **each})
        name = each["metadata"]["name"]
        stage.make(claim(name, request("x", name)), pod(name, named(name)))
    where = stage.bound("anything")
    assert stage.devices("anything") == [f"x {where} gpu-0"]
    assert "device.driver == 'no'" in stage.pending("one")


def test_admin_access_looks_at_devices_that_others_use_and_is_for_marked_namespaces(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(pod("p0", template("two")), pod("p1", template("two")))
    assert {stage.bound("p0"), stage.bound("p1")} == {"node-a", "node-b"}
    watch = claim("watch", request("all", GPU, allocationMode="All", adminAccess=True))
    refused = stage.kubectl("create", "-f", "-", given=watch, fails=True).err
    assert "resource.kubernetes.io/admin-access" in refused, refused
    admin = stage.beside(**{"resource.kubernetes.io/admin-access": "true"})
    admin.make(watch, pod("monitor", named("watch")))
    where = admin.bound("monitor")
    assert admin.devices("watch") == [f"all {where} gpu-0", f"all {where} gpu-1"]
    assert all(result["adminAccess"] for result in admin.results("watch"))
    # what is only looked at is nobody's: the next pod gets it when its owner goes
    owner = "p0" if stage.bound("p0") == where else "p1"
    stage.ends(owner)
    stage.make(pod("next", template("two")))
    assert stage.bound("next") == where


def test_tainted_devices_are_for_those_who_tolerate_it(stage: Stage) -> None:
    stage.scenery("gpus")
    taint = {"key": "example.com/sick", "effect": "NoSchedule"}
    devices = [{"name": f"gpu-{number}", "taints": [taint]} for number in range(2)]
    for slice_name in ("node-a-gpu", "node-b-gpu"):
        change = {"spec": {"devices": devices}}
        stage.kubectl("patch", "resourceslice", slice_name, "--type=merge", "-p", json.dumps(change))
    stage.make(pod("plain", template("one")))
    assert "example.com/sick" in stage.pending("plain")
    toleration = {"key": "example.com/sick", "operator": "Exists"}
    brave = claim("brave", request("gpu", GPU, tolerations=[toleration]))
    stage.make(brave, pod("brave", named("brave")))
    where = stage.bound("brave")
    assert stage.devices("brave") == [f"gpu {where} gpu-0"]
    healed = {"spec": {"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}}
    stage.kubectl("patch", "resourceslice", "node-b-gpu", "--type=merge", "-p", json.dumps(healed))
    assert stage.bound("plain") == "node-b"


def test_a_device_that_falls_ill_evicts_the_pods_that_do_not_tolerate_it(stage: Stage) -> None:
    stage.scenery("gpus")
    stage.make(SHARED, pod("p", named("shared")))
    where = stage.bound("p")
    taint = {"key": "example.com/dead", "effect": "NoExecute"}
    devices = [{"name": "gpu-0", "taints": [taint]}, {"name": "gpu-1"}]
    change = json.dumps({"spec": {"devices": devices}})
    stage.kubectl("patch", "resourceslice", f"{where}-gpu", "--type=merge", "-p", change)
    stage.kubectl("wait", "--for=condition=DisruptionTarget", "pod/p", "--timeout=30s")
    until(lambda: "deletionTimestamp" in stage.kubectl.get("pod", "p")["metadata"])
    stage.ends("p")
    stage.until_free("shared")
    stage.make(pod("again", named("shared")))
    again = stage.bound("again")
    assert stage.devices("shared") == [f"gpu {again} gpu-{1 if again == where else 0}"]
