"""`dray free`: what can be had, who holds the rest, and why nobody can have what nobody holds."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from dray.cli.input import live_cluster
from dray.cli.input.live_cluster import LiveInput
from dray.client.object_refs import get_kind
from dray.cluster.live.access import AccessGap, describe_gaps
from dray.cluster.live.snapshot import LiveSnapshot
from dray.simulation.bundle import Bundle
from tests.outside import ROOT
from tests.unit.cli.conftest import Result, Typed
from tests.unit.simulation.cluster_text import bundle, node

GPU_CLUSTER = str(ROOT / "examples" / "gpu-cluster")


def published(pool: str, devices: str, spec: str = "nodeName: w1", name: str = "s", count: int = 1) -> str:
    return dedent(f"""\
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlice
        metadata: {{name: {name}}}
        spec:
          driver: x.example.com
          {spec}
          pool: {{name: {pool}, generation: 1, resourceSliceCount: {count}}}
          devices: [{devices}]
        ---
        """)


def held(name: str, device: str, pool: str = "w1", amounts: str = "", pod: str = "") -> str:
    share = f", shareID: 11111111-1111-4111-8111-111111111111, consumedCapacity: {{{amounts}}}"
    reserved = f"\n  reservedFor: [{{resource: pods, name: {pod}, uid: u}}]" if pod else ""
    return dedent("""\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: %s, namespace: ml}
        spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}
        status:
          allocation:
            devices:
              results: [{request: r, driver: x.example.com, pool: %s, device: %s%s}]%s
        ---
        """) % (name, pool, device, share if amounts else "", reserved)


NODE = node("w1")
SHARED = "{name: d, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}"
COUNTERS = dedent("""\
    apiVersion: resource.k8s.io/v1
    kind: ResourceSlice
    metadata: {name: counters}
    spec:
      driver: x.example.com
      nodeName: w1
      pool: {name: w1, generation: 1, resourceSliceCount: 2}
      sharedCounters: [{name: gpu, counters: {memory: {value: 40Gi}}}]
    ---
    """)


def partition(name: str, amount: str) -> str:
    counters = f"{{memory: {{value: {amount}}}}}"
    return f"{{name: {name}, consumesCounters: [{{counterSet: gpu, counters: {counters}}}]}}"


HALVES = [partition("gpu", "40Gi"), partition("half-0", "20Gi"), partition("half-1", "20Gi")]
PARTITIONS = COUNTERS + published("w1", ", ".join(HALVES), count=2)
LARGE_SHARES = SHARED.replace("40Gi", "40Gi, requestPolicy: {default: 16Gi, validRange: {min: 16Gi}}")
TAINTED = "{name: d, taints: [{key: down, value: fan, effect: NoExecute}]}"

CASES = {
    "a free device": (published("w1", "{name: d}"), ["d free - - -"]),
    "a device of a claim": (
        published("w1", "{name: d}, {name: e}") + held("c", "d"),
        ["d in use - claim ml/c -", "e free - - -"],
    ),
    "a device of a pod": (published("w1", "{name: d}") + held("c", "d", pod="p"), ["d in use - pod ml/p -"]),
    "a share": (
        published("w1", SHARED) + held("c", "d", amounts="memory: 30Gi"),
        ["d shared memory 10Gi of 40Gi claim ml/c -"],
    ),
    "all shares": (
        published("w1", SHARED)
        + held("c", "d", amounts="memory: 30Gi")
        + held("e", "d", amounts="memory: 10Gi"),
        ["d used up memory 0 of 40Gi claim ml/c and claim ml/e -"],
    ),
    "less left than the policy gives": (
        published("w1", LARGE_SHARES) + held("c", "d", amounts="memory: 30Gi"),
        ["d used up memory 10Gi of 40Gi claim ml/c -"],
    ),
    "partitions": (PARTITIONS, ["gpu free - - -", "half-0 free - - -", "half-1 free - - -"]),
    "a partition of a device": (
        PARTITIONS + held("c", "half-0", pod="p"),
        [
            "gpu used up - - used up by partition half-0 (pod ml/p)",
            "half-0 in use - pod ml/p -",
            "half-1 free - - -",
        ],
    ),
    "the device of partitions": (
        PARTITIONS + held("c", "gpu"),
        [
            "gpu in use - claim ml/c -",
            "half-0 used up - - used up by gpu (claim ml/c)",
            "half-1 used up - - used up by gpu (claim ml/c)",
        ],
    ),
    "a partition larger than its device": (
        COUNTERS + published("w1", partition("big", "50Gi"), count=2),
        ["big unusable - - unusable: it needs more of a counter than its pool has"],
    ),
    "a taint": (published("w1", TAINTED), ["d unusable - - tainted (down=fan:NoExecute)"]),
}


def list_devices(result: Result) -> list[str]:
    """The devices of the document, as `name state left holders reason`."""
    found = []
    for pool in json.loads(result.out)["pools"]:
        for device in pool["devices"]:
            left = ", ".join(f"{k} {v['left']} of {v['total']}" for k, v in device["capacity"].items())
            holders = [
                name
                for each in device["heldBy"]
                for name in [f"pod {pod}" for pod in each["pods"]] or [f"claim {each['claim']}"]
            ]
            reason = "" if device["heldBy"] else device["reason"]
            cells = (device["name"], device["state"], left, " and ".join(holders), reason)
            found.append(" ".join(cell or "-" for cell in cells))
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_had(case: str, typed: Typed, desk: Path) -> None:
    text, expected = CASES[case]
    (desk / "c.yaml").write_text(NODE + text)
    ended = typed("free", "-f", "c.yaml", "-o", "json")
    assert (ended.code, ended.err) == (0, "")
    assert list_devices(ended) == expected


def test_the_page_explains_itself(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ended = typed("free", "-f", GPU_CLUSTER)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "NODE                DRIVER            POOL            FREE   DEVICES",
        "node-a              gpu.example.com   node-a          1/3    gpu-0-half-1",
        "node-a              nic.example.com   node-a          1/1    eth1 (bandwidth 10G)",
        "node-a and node-b   gpu.example.com   rack-1-fabric   1/1    fabric-gpu-0",
        "node-b              gpu.example.com   node-b          1/2    gpu-0",
        "node-b              nic.example.com   node-b          1/1    eth1 (bandwidth 10G)",
        "node-c              nic.example.com   node-c          1/1    eth1 (bandwidth 10G)",
        "",
        "gpu-0 on node-a is used up by partition gpu-0-half-0 (pod ml/infer-0 and pod ml/infer-1)",
        "gpu-1 on node-b is tainted (gpu.example.com/maintenance=fan:NoSchedule)",
        "",
        "6 of 9 devices can be had on 3 nodes",
    ]


def test_a_page_fits_the_terminal(typed: Typed, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ", ".join(f"{{name: device-{i}}}" for i in range(30))
    (desk / "c.yaml").write_text(NODE + published("w1", names))
    monkeypatch.setenv("COLUMNS", "70")
    lines = typed("free", "-f", "c.yaml").out.splitlines()
    assert lines[1] == "w1     x.example.com   30/30   device-0, device-1, device-2 +27"
    assert all(len(line) <= 70 for line in lines)


def test_partitions_that_exclude_each_other_are_called_that(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(NODE + PARTITIONS)
    text = " ".join(typed("free", "-f", "c.yaml").out.split())
    assert "not all free devices of pool x.example.com/w1 can be had at once" in text


def test_pools_and_nodes_that_are_out_of_reach_are_named(typed: Typed, desk: Path) -> None:
    closed = NODE.replace("kind: Node\n", "kind: Node\nspec: {unschedulable: true}\n")
    text = closed + published("w1", "{name: d}") + published("half", "{name: e}", name="t", count=2)
    text += published("far", "{name: f}", "nodeName: elsewhere", name="u")
    (desk / "c.yaml").write_text(text)
    lines = typed("free", "-f", "c.yaml").out.splitlines()
    assert "pool x.example.com/half is incomplete: 1 of 2 slices, generation 1 (on w1)" in lines
    assert "pool x.example.com/far is seen by no node" in lines
    assert "w1 is cordoned: it takes no new pods, whatever is free there" in lines


def test_devices_are_counted_by_an_attribute(typed: Typed) -> None:
    ended = typed("free", "-f", GPU_CLUSTER, "--by", "model")
    assert ended.out.splitlines()[:4] == [
        "MODEL    DRIVER            FREE   NODES",
        "a100     gpu.example.com   2/4    node-a and node-b",
        "v100     gpu.example.com   1/2    node-b",
        "(none)   nic.example.com   3/3    node-a, node-b and node-c",
    ]
    full = typed("free", "-f", GPU_CLUSTER, "--by", "gpu.example.com/model", "-o", "yaml")
    assert yaml.safe_load(full.out)["groups"][0] == {
        "value": "a100",
        "driver": "gpu.example.com",
        "total": 4,
        "free": 2,
        "nodes": ["node-a", "node-b"],
    }


def test_filters(typed: Typed) -> None:
    def rows(*options: str) -> list[str]:
        return list_devices(typed("free", "-f", GPU_CLUSTER, "-o", "json", *options))

    assert [row.split()[0] for row in rows("--node", "node-b")] == ["gpu-0", "gpu-1", "eth1", "fabric-gpu-0"]
    assert [row.split()[0] for row in rows("--driver", "nic.example.com")] == ["eth1", "eth1", "eth1"]
    shown = rows("-n", "ml", "--node", "node-a", "--driver", "gpu.example.com")
    assert [row.split(" - ")[0] for row in shown] == [
        "gpu-0-half-0 in use",
        "gpu-0-half-1 free",
        "fabric-gpu-0 free",
    ]
    assert not any("in use" in row for row in rows("-n", "other"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--node", "x"], "node `x` is not among the manifests; those are `node-a`, `node-b`, `node-c`"),
        (["--driver", "x"], "no slice of driver `x` is among the manifests; drivers are `gpu.example.com`"),
        (["--by", "x"], "no device has an attribute `x`; attributes are `driverVersion`"),
        (["--context", "x"], "either files or a server"),
    ],
)
def test_wrong_names_are_one_line(options: list[str], words: str, typed: Typed) -> None:
    ended = typed("free", "-f", GPU_CLUSTER, *options)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert ended.err.count("\n") == 1


# --- a running cluster ---


def serve(monkeypatch: pytest.MonkeyPatch, snapshot: LiveSnapshot) -> None:
    monkeypatch.setattr(live_cluster, "read_live_input", lambda *_: LiveInput(snapshot, "default"))


def test_without_files_the_server_is_asked(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, LiveSnapshot(bundle(NODE + published("w1", "{name: d}"))))
    ended = typed("free", "-o", "json")
    assert list_devices(ended) == ["d free - - -"]


def test_what_may_not_be_read_is_said_and_the_rest_shown(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps = (AccessGap(get_kind("ResourceClaim.resource.k8s.io"), ("ml",)),)
    seen = bundle(NODE + published("w1", "{name: d}"))
    told = Bundle(nodes=seen.nodes, slices=seen.slices, remarks=describe_gaps(gaps))
    serve(monkeypatch, LiveSnapshot(told, gaps))
    ended = typed("free")
    assert ended.code == 0
    assert ended.err.splitlines() == [
        "dray: not allowed to read resourceclaims.resource.k8s.io outside of namespace `ml`: the answer "
        "comes from the rest (devices of unseen claims look free)",
        "dray: hint: the role `dray:viewer` (deploy/viewer.yaml) allows reading all of it",
    ]
    assert "1 of 1 device can be had" in ended.out


def test_without_rights_to_devices_there_is_no_answer(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = (AccessGap(get_kind("ResourceSlice.resource.k8s.io")),)
    serve(monkeypatch, LiveSnapshot(Bundle(remarks=describe_gaps(gaps)), gaps))
    ended = typed("free")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "dray: no devices can be read: not allowed to read resourceslices.resource.k8s.io"
    )
