"""`dray explain`: the page of a pod or claim when everything is placed in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.outside import ROOT
from tests.unit.cli.commands.manifests.test_allocate import GPU, SMALL
from tests.unit.cli.conftest import Typed
from tests.unit.simulation.cluster_text import allocated, claim, node, pod, slice_of

CLUSTER = str(ROOT / "examples" / "gpu-cluster")


@pytest.fixture
def small(desk: Path) -> str:
    (desk / "c.yaml").write_text(SMALL + pod("x", templates="t") + pod("late", templates="t"))
    return "c.yaml"


def test_why_not(typed: Typed, small: str) -> None:
    ended = typed("explain", "-f", small, "pod/late")
    assert (ended.code, ended.err) == (1, "")
    head, _, closest, *_ = ended.out.splitlines()
    assert head == "Pod default/late cannot run yet: no node can satisfy claim default/late-t"
    assert closest.startswith("  node-a")
    assert "in use by default/x-t" in closest


def test_why_these_devices(typed: Typed) -> None:
    ended = typed("explain", "-f", CLUSTER, "pods/train-0", "-n", "ml")
    assert ended.code == 0
    assert ended.out.startswith("Pod ml/train-0 fits node-a\n")
    assert "gpu-0-half-0 in use by ml/half-gpu" in ended.out


def test_the_order_of_allocate_holds_unless_asked_otherwise(typed: Typed, small: str) -> None:
    assert typed("explain", "-f", small, "pod/late").code == 1
    ended = typed("explain", "-f", small, "pod/late", "--alone")
    assert ended.code == 0
    assert ended.out.startswith("Pod default/late fits node-a")


def test_everything_that_waits_is_explained_when_nothing_is_named(typed: Typed, small: str) -> None:
    ended = typed("explain", "-f", small)
    assert ended.code == 1
    heads = [line for line in ended.out.splitlines() if line.startswith("Pod")]
    assert heads == [
        "Pod default/x fits node-a",
        "Pod default/late cannot run yet: no node can satisfy claim default/late-t",
    ]


def test_the_documents_for_machines(typed: Typed, small: str) -> None:
    one = json.loads(typed("explain", "-f", small, "pod/late", "-o", "json").out)
    assert (one["kind"], one["verdict"], one["pod"]) == ("Diagnosis", "DoesNotFit", "default/late")
    many = json.loads(typed("explain", "-f", small, "-o", "json").out)
    assert many["kind"] == "DiagnosisList"
    assert [item["verdict"] for item in many["items"]] == ["Fits", "DoesNotFit"]
    assert {**many["items"][1], "invalid": [], "warnings": []} == one
    assert (many["invalid"], many["warnings"]) == ([], [])


def test_a_single_node(typed: Typed, small: str) -> None:
    ended = typed("explain", "-f", small, "pod/x", "--node", "node-b")
    assert ended.code == 1
    assert "node-a" not in ended.out
    assert "node-b" in ended.out


def test_a_claim_of_a_pod_can_be_explained_by_itself(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("mine", "gpu") + pod("x", claims="mine"))
    ended = typed("explain", "-f", "c.yaml", "claim/mine")
    assert ended.code == 0
    assert ended.out.startswith("Claim default/mine fits node-a")


def test_devices_that_a_claim_has_already_rule_out_nodes(typed: Typed, desk: Path) -> None:
    held = claim("held", "gpu", status=allocated("gpu.example.com", "node-b", "gpu-0", "node-b"))
    text = SMALL + slice_of("node-b", "gpu-0", "gpu-1") + held + pod("x", claims="held", templates="t")
    (desk / "c.yaml").write_text(text)
    ended = typed("explain", "-f", "c.yaml", "pod/x")
    assert ended.code == 0
    assert ended.out.startswith("Pod default/x fits node-b")
    assert "has devices already: default/held" in ended.out
    assert "left out, as default/held has its devices elsewhere: `node-a`" in ended.out
    ended = typed("explain", "-f", "c.yaml", "pod/x", "--node", "node-a")
    assert ended.code == 1
    assert "claim default/held has its devices elsewhere, out of reach of node `node-a`" in ended.out


def test_what_waits_for_nothing_says_so(typed: Typed, desk: Path) -> None:
    held = claim("held", "gpu", status=allocated("gpu.example.com", "node-a", "gpu-0", "node-a"))
    (desk / "c.yaml").write_text(SMALL + held + pod("x", claims="held", extra="  nodeName: node-a\n"))
    for words in (["pod/x"], ["claim/held"], []):
        ended = typed("explain", "-f", "c.yaml", *words)
        assert ended.code == 0
        assert "for" in ended.out
        assert ended.out.endswith(": what is asked for is there already\n")


def test_an_obstacle_is_a_page_too(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + pod("x", claims="gone"))
    ended = typed("explain", "-f", "c.yaml", "pod/x")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "Pod default/x can never run as it is",
        "",
        "  claim `default/gone` is not among the manifests",
    ]


def test_a_closed_gate_is_a_page_too(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("c", "gpu", "other"))
    ended = typed("explain", "-f", "c.yaml", "--feature-gates", "DRAPrioritizedList=false")
    assert ended.code == 2
    assert ended.out.startswith("Claim default/c can never be allocated as it is")
    assert "DRAPrioritizedList" in ended.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pod/nope"], "pod `nope` is not among the manifests"),
        (["pod/x", "-n", "ml"], "pod `ml/x` is not among the manifests"),
        (["pod/x", "claim/x"], "one pod or claim at a time"),
        (["pod/x", "--node", "nope"], "node `nope` is not among the manifests"),
        (["nonsense/x"], "cannot read `nonsense/x`"),
    ],
)
def test_what_is_not_there_is_broken_input(
    arguments: list[str], words: str, typed: Typed, small: str
) -> None:
    ended = typed("explain", "-f", small, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_colour_decorates_and_says_nothing(small: str, desk: Path, typed: Typed) -> None:
    plain = typed("explain", "-f", small, "--color", "never").out
    assert typed("explain", "-f", small, "--color", "always").out == plain


def test_more_files_may_follow(typed: Typed, desk: Path) -> None:
    (desk / "a.yaml").write_text(node("node-a") + GPU)
    (desk / "b.yaml").write_text(slice_of("node-a", "gpu-0") + claim("c", "gpu"))
    ended = typed("explain", "-f", "a.yaml", "b.yaml", "claim/c")
    assert ended.code == 0
