"""`dray verify`: allocations in claims, checked again."""

from __future__ import annotations

import json
from pathlib import Path

from tests.outside import ROOT
from tests.unit.cli.commands.manifests.test_allocate import SMALL
from tests.unit.cli.conftest import Typed
from tests.unit.simulation.cluster_text import allocated, claim, pod

CLUSTER = str(ROOT / "examples" / "gpu-cluster")
HELD = allocated("gpu.example.com", "node-a", "gpu-0", "node-a")


def test_sound_allocations(typed: Typed) -> None:
    ended = typed("verify", "-f", CLUSTER)
    assert (ended.code, ended.out, ended.err) == (0, "checked 1 allocation: nothing wrong\n", "")


def test_what_allocate_writes_stands_before_the_referee(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + pod("x", templates="t"))
    written = typed("allocate", "-f", "c.yaml", "--write").out
    (desk / "then.yaml").write_text(SMALL + written)
    assert typed("verify", "-f", "then.yaml").out == "checked 1 allocation: nothing wrong\n"


def test_a_device_that_two_claims_have_is_found_on_both(typed: Typed, desk: Path) -> None:
    (desk / "c.yaml").write_text(SMALL + claim("a", "gpu", status=HELD) + claim("b", "gpu", status=HELD))
    ended = typed("verify", "-f", "c.yaml")
    assert ended.code == 1
    told = ended.out.splitlines()
    assert [line.split(":")[0] for line in told[:-1]] == ["claim default/a", "claim default/b"]
    assert all(line.endswith("[NotInUse]") for line in told[:-1])
    assert told[-1] == "checked 2 allocations: 2 with something wrong"


def test_a_device_that_is_gone_and_a_node_that_is_gone(typed: Typed, desk: Path) -> None:
    gone = claim("a", "gpu", status=allocated("gpu.example.com", "node-a", "gpu-9", "node-a"))
    far = claim("b", "gpu", status=allocated("gpu.example.com", "node-z", "gpu-0", "node-z"))
    (desk / "c.yaml").write_text(SMALL + gone + far)
    told = json.loads(typed("verify", "-f", "c.yaml", "-o", "json").out)
    first, second = told["claims"]
    assert "DeviceExists" in [finding["rule"] for finding in first["findings"]]
    assert second["node"] is None
    assert [finding["rule"] for finding in second["findings"]] == ["NodeSelector"]


def test_a_closed_gate_is_a_finding(typed: Typed, desk: Path) -> None:
    held = HELD.replace("request: r", "request: r/gpu")
    (desk / "c.yaml").write_text(SMALL + claim("a", "gpu", "other", status=held))
    ended = typed("verify", "-f", "c.yaml", "--feature-gates", "DRAPrioritizedList=false")
    assert ended.code == 1
    assert ended.out.splitlines()[0].endswith("[FeatureGate]")
