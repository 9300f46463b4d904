"""`dray allocate`: everything that waits is placed, or reported with a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.outside import ROOT
from tests.unit.cli.conftest import Typed, process
from tests.unit.simulation.cluster_text import claim, device_class, node, pod, slice_of, template

CLUSTER = str(ROOT / "examples" / "gpu-cluster")
GPU = device_class("gpu", "'device.driver == \"gpu.example.com\"'")
SMALL = node("node-a") + node("node-b") + GPU + slice_of("node-a", "gpu-0") + template("t", "gpu")


@pytest.fixture
def small(desk: Path) -> str:
    (desk / "c.yaml").write_text(SMALL + pod("x", templates="t") + pod("late", templates="t"))
    return "c.yaml"


def test_the_example_cluster_in_a_table(typed: Typed) -> None:
    ended = typed("allocate", "-f", CLUSTER)
    assert (ended.code, ended.err) == (0, "")
    lines = re.sub("[0-9a-f]{8}   ", "<share>    ", ended.out).splitlines()
    assert lines[0].split() == ["POD", "CLAIM", "REQUEST", "NODE", "DEVICE", "SHARE", "CONSUMED"]
    assert [line.split() for line in lines[5:9]] == [
        [
            "ml/train-0",
            "ml/train-0-devices",
            "gpu/two-small",
            "node-a",
            "gpu.example.com/node-a/gpu-0-half-1",
        ],
        [
            "ml/train-0",
            "ml/train-0-devices",
            "gpu/two-small",
            "node-a",
            "gpu.example.com/rack-1-fabric/fabric-gpu-0",
        ],
        [
            "ml/train-0",
            "ml/train-0-devices",
            "nic",
            "node-a",
            "nic.example.com/node-a/eth1",
            "<share>",
            "bandwidth=5G",
        ],
        ["ml/notebook", "gpu", "node-b", "gpu.example.com/node-b/gpu-0"],
    ]
    assert lines[-1] == "placed 3 of 3"


def test_what_is_not_placed_is_reported_with_a_hint(typed: Typed, small: str) -> None:
    ended = typed("allocate", "-f", small)
    assert ended.code == 1
    table, refusal, ending = ended.out.split("\n\n")
    assert table.splitlines() == [
        "POD         CLAIM         REQUEST   NODE     DEVICE",
        "default/x   default/x-t   r         node-a   gpu.example.com/node-a/gpu-0",
    ]
    assert refusal.startswith(
        "not placed: pod default/late: no node can satisfy claim default/late-t; node-a: "
    )
    assert "in use by default/x-t" in refusal
    assert ending == "placed 1 of 2\nhint: dray explain -f c.yaml pod/late -n default\n"


def test_the_same_for_machines(typed: Typed, small: str) -> None:
    ended = typed("allocate", "-f", small, "-o", "json")
    assert ended.code == 1
    told = json.loads(ended.out)
    (placed,) = told["placed"]
    assert (placed["kind"], placed["name"], placed["node"]) == ("pod", "x", "node-a")
    assert placed["claims"][0]["allocatedNow"] is True
    assert placed["claims"][0]["devices"]["results"][0]["device"] == "gpu-0"
    (refused,) = told["notPlaced"]
    assert (refused["kind"], refused["name"], refused["gaveUp"]) == ("pod", "late", False)
    assert "no node can satisfy" in refused["reason"]
    as_yaml = typed("allocate", "-f", small, "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == told


def test_claims_are_written_with_their_status(typed: Typed, small: str) -> None:
    ended = typed("allocate", "-f", small, "--write")
    assert ended.code == 1
    assert ended.err.startswith("dray: not placed: pod default/late")
    (written,) = yaml.safe_load_all(ended.out)
    assert written["kind"] == "ResourceClaim"
    assert written["status"]["reservedFor"] == [{"resource": "pods", "name": "x"}]
    assert written["status"]["allocation"]["devices"]["results"] == [
        {"request": "r", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
    ]


def test_what_was_written_can_be_read_and_leaves_nothing_to_do(typed: Typed, small: str, desk: Path) -> None:
    written = typed("allocate", "-f", small, "--write").out
    (desk / "then.yaml").write_text(SMALL + written + "---\n" + pod("x", templates="t"))
    ended = typed("allocate", "-f", "then.yaml", "-o", "json")
    assert ended.code == 0
    (placed,) = json.loads(ended.out)["placed"]
    assert [made["allocatedNow"] for made in placed["claims"]] == [False]


def test_claims_are_written_into_a_folder_one_file_each(typed: Typed, small: str, desk: Path) -> None:
    ended = typed("allocate", "-f", small, "--write", "out")
    assert ended.err.splitlines() == ["dray: wrote 1 claim into `out`"]
    assert ended.out.startswith("POD")
    (path,) = (desk / "out").iterdir()
    assert path.name == "default-x-t.yaml"
    assert yaml.safe_load(path.read_text())["status"]["allocation"]["devices"]["results"]


def test_names_from_files_do_not_lead_out_of_the_folder(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("../../evil", "gpu"))
    ended = typed("allocate", "-f", "c.yaml", "--write", "out")
    assert ended.code == 2
    assert 'metadata.name: Invalid value: "../../evil"' in ended.err
    assert not list(desk.rglob("*evil*"))


def test_a_run_can_be_limited(typed: Typed, small: str) -> None:
    assert "default/late   default/late-t" in typed("allocate", "-f", small, "--pod", "late").out
    ended = typed("allocate", "-f", small, "--node", "node-b", "--pod", "default/x")
    assert ended.code == 1
    assert ended.out.endswith("hint: dray explain -f c.yaml pod/x -n default --node node-b --alone\n")


def test_a_claim_can_be_asked_for_alone(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("mine", "gpu") + pod("x", claims="mine"))
    ended = typed("allocate", "-f", "c.yaml", "--claim", "mine")
    assert ended.code == 0
    assert ended.out.splitlines()[1].split()[0] == "default/mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--node", "nope"], "node `nope` is not among the manifests; those are `node-a`, `node-b`"),
        (["--pod", "nope"], "pod `nope` is not among the manifests; those are `default/x`, `default/late`"),
        (["--claim", "a/b"], "claim `a/b` is not among the manifests; those are none"),
        (["-o", "xml"], "is not one of"),
    ],
)
def test_what_is_not_there_is_broken_input(
    arguments: list[str], words: str, typed: Typed, small: str
) -> None:
    ended = typed("allocate", "-f", small, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_a_name_in_two_namespaces_must_be_told_apart(typed: Typed, desk: Path) -> None:
    twin = pod("x", templates="t").replace("  name: x\n", "  name: x\n  namespace: ml\n")
    (desk / "c.yaml").write_text(SMALL + pod("x", templates="t") + twin)
    ended = typed("allocate", "-f", "c.yaml", "--pod", "x")
    assert ended.code == 2
    assert "is in several namespaces: `default`, `ml`" in ended.err


def test_broken_input_names_every_fault_and_answers_nothing(typed: Typed, desk: Path) -> None:
    bad = claim("c", "gpu", count=1).replace("count: 1", "count: many")
    (desk / "c.yaml").write_text(SMALL + bad + "just words\n")
    ended = typed("allocate", "-f", "c.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 2
    assert all(line.startswith("dray: c.yaml:") for line in ended.err.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to read; name files"),
        (["-f", "gone.yaml"], "cannot read `gone.yaml`: no such file or folder"),
    ],
)
def test_files_are_needed(arguments: list[str], words: str, typed: Typed) -> None:
    ended = typed("allocate", *arguments)
    assert ended.code == 2
    assert words in ended.err


def test_nothing_to_do_is_a_yes(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL)
    ended = typed("allocate", "-f", "c.yaml")
    assert (ended.code, ended.out) == (0, "nothing waits for devices: looked at 0 pods and 0 claims\n")


def test_what_was_assumed_is_said_beside_the_answer(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(GPU + slice_of("node-a", "gpu-0") + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 0
    assert ended.err == "dray: no nodes given: took 1 from the slices, without labels: `node-a`\n"


FAULTS = [
    (claim("bad", "nope"), "claim default/bad: request `r`: device class `nope` does not exist"),
    (claim("bad", "gpu", count=33), "asks for 33 devices, but one claim can hold at most 32"),
    (
        device_class("odd", '\'device.attributes["gpu.example.com"].model == "x"\'') + claim("bad", "odd"),
        "no such key: model",
    ),
]


@pytest.mark.parametrize(("broken", "why"), FAULTS, ids=["class", "33 devices", "selector"])
def test_a_bad_object_gets_a_reason_and_nobody_else_is_affected(
    broken: str, why: str, typed: Typed, desk: Path
) -> None:
    (desk / "c.yaml").write_text(SMALL + broken + pod("x", templates="t"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    told = ended.out.splitlines()
    assert any(line.startswith("default/x") for line in told)
    (refusal,) = [line for line in told if line.startswith("not placed")]
    assert refusal.startswith("not placed: claim default/bad: ")
    assert why in refusal
    assert "placed 1 of 2" in told


def test_an_incomplete_pool_is_named(typed: Typed, desk: Path) -> None:
    part = slice_of("node-b", "gpu-0").replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    (desk / "c.yaml").write_text(node("node-b") + GPU + part + claim("c", "gpu"))
    ended = typed("allocate", "-f", "c.yaml")
    assert ended.code == 1
    assert "pool gpu.example.com/node-b is incomplete: 1 of 2 slices" in ended.out


def test_a_closed_gate_is_named(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("c", "gpu", "other") + claim("d", "gpu"))
    ended = typed("allocate", "-f", "c.yaml", "--feature-gates", "DRAPrioritizedList=false")
    assert ended.code == 1
    assert "dropped, because feature gate `DRAPrioritizedList` is off" in ended.err
    assert "not placed: claim default/c: invalid: spec.devices.requests[0]: Required value" in ended.out
    assert "placed 1 of 2" in ended.out


def test_manifests_come_through_a_pipe_too() -> None:
    text = SMALL + pod("x", templates="t")
    ended = process("allocate", "-f", "-", stdin=text.encode())
    assert ended.code == 0
    assert "placed 1 of 1" in ended.out
