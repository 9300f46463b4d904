"""The overview of a cluster, built from objects and rendered as text."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.codec import decode_document
from dray.api.core import Node, Pod
from dray.api.decode_report import UnknownField
from dray.api.kinds import get_kind_by_type
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.unknown_fields import mark_unknown_fields
from dray.cli.commands.operations.status import render_overview
from dray.cluster.live.overview import ClusterOverview, build_overview, describe_pod_state

Document = dict[str, Any]


def read(document: Document) -> Any:
    return decode_document(document).object


def node(name: str, **spec: Any) -> Node:
    found: Node = read({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
    return found


def pod(name: str, node: str = "", phase: str = "Pending", claim: str = "", **status: Any) -> Pod:
    spec: Document = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
    if claim:
        spec["resourceClaims"] = [{"name": "devices", "resourceClaimName": claim}]
    found: Pod = read(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": spec,
            "status": {"phase": phase, **status},
        }
    )
    return found


def claim(name: str, *results: Document) -> ResourceClaim:
    status = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    found: ResourceClaim = read(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"devices": {"requests": []}},
            "status": status,
        }
    )
    return found


def result(device: str, pool: str = "node-2", **more: Any) -> Document:
    return {"request": "r", "driver": "gpu.example.com", "pool": pool, "device": device, **more}


def pages(pool: str, *devices: str, node: str | None = None, generation: int = 1) -> ResourceSlice:
    where: Document = {"nodeName": node} if node else {"allNodes": True}
    found: ResourceSlice = read(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{pool}-{generation}"},
            "spec": {
                "driver": "gpu.example.com",
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "devices": [{"name": name} for name in devices],
                **where,
            },
        }
    )
    return found


def seen() -> ClusterOverview:
    return build_overview(
        [node("node-10"), node("node-2"), node("node-3", unschedulable=True)],
        [
            pod("train", "node-2", "Running", "two"),
            pod("over", "node-2", "Succeeded", "two"),
            pod("later", claim="none", conditions=[{"type": "PodScheduled", "message": "no device\nat all"}]),
        ],
        [
            claim(
                "two", result("gpu-1", consumedCapacity={"memory": "5Gi"}), result("gpu-0", adminAccess=True)
            )
        ],
        [
            pages("node-2", "gpu-0", "gpu-1", "gpu-10", "gpu-2", node="node-2", generation=2),
            pages("node-2", "old", node="node-2"),
            pages("fabric", "far"),
        ],
    )


def test_nodes_stand_in_the_order_in_which_people_count() -> None:
    assert [each.name for each in seen().nodes] == ["node-2", "node-3", "node-10", ""]


def test_devices_are_those_of_the_newest_generation_and_admin_access_takes_none() -> None:
    (pool,) = seen().nodes[0].pools
    assert pool.used == ("gpu-1",)
    assert pool.free == ("gpu-0", "gpu-2", "gpu-10")


def test_pods_that_are_over_have_nothing() -> None:
    train = {each.name: each for each in seen().nodes[0].pods}
    assert [str(each) for each in train["ml/train"].devices] == ["gpu-1 (memory 5Gi)", "gpu-0"]
    assert (train["ml/over"].word, train["ml/over"].devices) == ("done", ())


def test_the_state_of_a_pod() -> None:
    assert describe_pod_state(pod("a")) == "waiting"
    assert describe_pod_state(pod("a", "n")) == "starting"
    assert describe_pod_state(pod("a", "n", "Running")) == "running"
    assert describe_pod_state(pod("a", "n", "Failed")) == "failed"


@pytest.mark.parametrize(
    ("spec", "ready", "word"),
    [
        ({}, "", "ready"),
        ({}, "True", "ready"),
        ({}, "False", "not ready"),
        ({}, "Unknown", "lost"),
        ({"unschedulable": True}, "True", "cordoned"),
        ({"unschedulable": True}, "False", "not ready"),
        ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}, "True", "not ready"),
        ({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}, "True", "lost"),
        ({"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}, "True", "fenced"),
    ],
)
def test_the_state_of_a_node(spec: Document, ready: str, word: str) -> None:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": spec}
    seen = build_overview([read({**document, "status": {"conditions": conditions}})], [], [], [])
    assert [each.word for each in seen.nodes] == [word]


def test_the_page_of_a_cluster() -> None:
    assert list(render_overview(seen())) == [
        "NODE      STATE      PODS   DEVICES",
        "node-2    ready      1      gpu.example.com ■□□□ 1/4",
        "node-3    cordoned   0",
        "node-10   ready      0",
        "(any)                       gpu.example.com □ 0/1",
        "",
        "POD        STATE     NODE     DEVICES",
        "ml/over    done      node-2",
        "ml/train   running   node-2   gpu-1 (memory 5Gi), gpu-0",
        "",
        "POD        STATE     WHY",
        "ml/later   waiting   no device",
        "hint: `dray explain pod/later -n ml` shows the whole reason",
    ]


def test_wide_names_every_pool_and_device() -> None:
    lines = list(render_overview(seen(), wide=True))
    assert lines[:5] == [
        "NODE      STATE      PODS   DRIVER            POOL     USED    FREE",
        "node-2    ready      1      gpu.example.com   node-2   gpu-1   gpu-0, gpu-2, gpu-10",
        "node-3    cordoned   0",
        "node-10   ready      0",
        "(any)                       gpu.example.com   fabric           far",
    ]
    assert lines[8].endswith("gpu.example.com/node-2/gpu-1 (memory 5Gi), gpu.example.com/node-2/gpu-0")


def test_nodes_that_may_not_be_read_have_no_state() -> None:
    now = build_overview(None, [pod("p", "a", "Running")], [], [pages("one", "x", node="a")])
    assert [(each.name, each.word) for each in now.nodes] == [("a", "unknown")]


def test_what_is_not_ready_has_a_reason() -> None:
    unready = [{"type": "Ready", "status": "False", "message": "containers with unready status: [c]"}]
    said = [{"type": "Ready", "status": "False", "message": "runc is gone\nfor good"}]
    ailing: Node = read(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": said}}
    )
    seen = build_overview(
        [ailing, node("other")],
        [pod("crashing", "other", "Running", conditions=unready), pod("ending", "n", "Failed")],
        [],
        [],
    )
    assert [(each.word, each.why) for each in seen.nodes] == [
        ("not ready", said[0]["message"]),
        ("ready", ""),
    ]
    assert list(render_overview(seen)) == [
        "NODE    STATE       PODS",
        "n       not ready   0",
        "other   ready       1",
        "n is not ready: runc is gone\\nfor good",
        "",
        "POD           STATE       NODE",
        "ml/ending     failed      n",
        "ml/crashing   not ready   other",
        "ml/crashing is not ready: containers with unready status: [c]",
        "hint: `kubectl describe pod/crashing -n ml` shows what its containers wait for",
    ]


def test_a_page_fits_the_terminal_it_is_shown_in() -> None:
    now = build_overview(
        [node("a")],
        [pod("later", conditions=[{"type": "PodScheduled", "message": "no device " * 20}])],
        [],
        [pages("one", "x", "y", node="a"), pages("two", "z", node="a")],
    )
    assert list(render_overview(now, 48)) == [
        "NODE   STATE   PODS   DEVICES",
        "a      ready   0      gpu.example.com □□ 0/2",
        "                      gpu.example.com □ 0/1",
        "",
        "POD        STATE     WHY",
        "ml/later   waiting   no device no device no dev…",
        "hint: `dray explain pod/later -n ml` shows the whole reason",
    ]
    wide = list(render_overview(now, 250))
    assert wide[1] == "a      ready   0      gpu.example.com □□ 0/2   gpu.example.com □ 0/1"
    assert wide[4] == "ml/later   waiting   " + ("no device " * 20).strip()


def test_a_cluster_without_nodes_says_so() -> None:
    assert list(render_overview(build_overview([], [], [], []))) == ["there is no node yet"]


def test_a_pool_with_unknown_fields_is_named():
    published: ResourceSlice = read(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}],
            },
        }
    )
    unknown = [UnknownField("spec.devices[0].tomorrow", "tomorrow")]
    marked = mark_unknown_fields(published, get_kind_by_type(ResourceSlice), unknown)
    lines = list(render_overview(build_overview([node("node-1")], [], [], [marked])))
    why = "`spec.devices[].tomorrow` is unknown to this dray"
    assert f"pool gpu.example.com/node-1 is not usable: {why}" in lines
