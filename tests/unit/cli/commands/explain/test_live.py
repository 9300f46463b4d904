"""`dray explain` without files: the state of a server, with everything that keeps pods from nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.cli.commands.explain import live
from dray.cli.input.live_cluster import LiveInput
from dray.cli.input.server_connection import ServerTarget
from dray.cluster.live.snapshot import LiveSnapshot
from tests.unit.cli.conftest import Typed
from tests.unit.simulation.cluster_text import allocated, bundle, claim, pod, slice_of

NODE = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
spec: {unschedulable: true}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
"""
SMALL = (
    NODE
    + slice_of("node-a", "gpu-0", "gpu-1")
    + claim("two", "gpu", count=2)
    + claim("three", "gpu", count=3)
)
HELD = claim("held", "gpu", status=allocated("gpu.example.com", "node-a", "gpu-0", "node-a"))


def elsewhere(text: str, namespace: str) -> str:
    return text.replace("metadata:\n", f"metadata:\n  namespace: {namespace}\n")


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch):
    """Says what the server has, and the namespace of the context."""

    def told(text: str, namespace: str = "default") -> None:
        def read(_server: ServerTarget, _namespace: str | None) -> LiveInput:
            return LiveInput(LiveSnapshot(bundle(text)), namespace)

        monkeypatch.setattr(live, "read_live_input", read)
        monkeypatch.setenv("KUBECONFIG", "somewhere")

    return told


def test_the_page_of_a_pod_that_waits(typed: Typed, has) -> None:
    has(SMALL + pod("p", claims="three"))
    ended = typed("explain", "pod/p")
    assert (ended.code, ended.err) == (1, "")
    lines = ended.out.splitlines()
    assert lines[0] == "Pod default/p cannot run yet: no node can satisfy claim default/three"
    assert lines[-1] == "  left out node-b: unschedulable (cordoned)"
    assert any(line.startswith("hint: asking for 2 devices instead of 3") for line in lines)


def test_the_page_of_a_pod_that_has_its_place(typed: Typed, has) -> None:
    has(SMALL + HELD + pod("p", claims="held", extra="  nodeName: node-a\n"))
    ended = typed("explain", "pods/p")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "Pod default/p is on node-a",
        "",
        "  CLAIM          REQUEST   DEVICE",
        "  default/held   r         gpu.example.com/node-a/gpu-0",
    ]


def test_the_document_for_machines(typed: Typed, has) -> None:
    has(SMALL + pod("p", claims="three"))
    document = json.loads(typed("explain", "pod/p", "-o", "json").out)
    assert document["verdict"] == "DoesNotFit"
    assert document["headline"] == "Pod default/p cannot run yet: no node can satisfy claim default/three"
    assert document["leftOut"] == [
        {"nodes": ["node-b"], "plugin": "NodeUnschedulable", "reason": "unschedulable (cordoned)"}
    ]
    assert document["summary"].endswith("node-b: unschedulable (cordoned)")
    assert (document["node"], document["remarks"]) == ("", [])


def test_all_that_wait(typed: Typed, has) -> None:
    first, second = pod("a", claims="two"), elsewhere(pod("b", claims="gone"), "other")
    there = pod("c", extra="  nodeName: node-a\n")
    has(SMALL + first + second + there)
    ended = typed("explain")
    assert ended.code == 1
    heads = [line for line in ended.out.splitlines() if line.startswith("Pod")]
    assert heads == [
        "Pod default/a fits node-a",
        "Pod other/b cannot run yet: claim other/gone does not exist",
    ]
    assert typed("explain", "-n", "default").code == 0
    many = json.loads(typed("explain", "-o", "json").out)
    assert [item["pod"] for item in many["items"]] == ["default/a", "other/b"]


def test_nothing_waits(typed: Typed, has) -> None:
    has(SMALL)
    ended = typed("explain")
    assert (ended.code, ended.out) == (0, "no pod waits for a node\n")


def test_a_name_is_looked_for_in_the_namespace_of_the_context_first(typed: Typed, has) -> None:
    both = SMALL + pod("p") + elsewhere(pod("p"), "other")
    for namespace in ("default", "other"):
        has(both, namespace)
        assert typed("explain", "pod/p").out.startswith(f"Pod {namespace}/p fits node-a")
    has(both, "third")
    assert "`p` is in several namespaces: `default`, `other`" in typed("explain", "pod/p").err
    assert typed("explain", "pod/p", "-n", "other").out.startswith("Pod other/p fits node-a")
    assert typed("explain", "pod/other/p").out.startswith("Pod other/p fits node-a")


def test_a_claim(typed: Typed, has) -> None:
    has(SMALL + HELD)
    ended = typed("explain", "claim/held")
    assert ended.code == 0
    assert ended.out.startswith("Claim default/held has its devices\n")
    assert "reserved for nobody" in ended.out
    assert typed("explain", "claim/three").code == 1


def test_files_and_a_server_are_not_mixed(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL)
    ended = typed("explain", "-f", "c.yaml", "--context", "x")
    assert ended.code == 2
    assert "either files or a server" in ended.err


def test_neither_files_nor_a_server(typed: Typed, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(desk))
    ended = typed("explain")
    assert ended.code == 2
    assert "nothing to read; name files or folders with `-f`, or a running cluster" in ended.err
