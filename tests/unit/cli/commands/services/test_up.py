"""`dray up`, `dray scheduler` and `dray controller`: invalid options are reported before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.cli.commands.services import up
from dray.cluster.services import process_setup
from dray.gates import GateSet
from tests.unit.cli.conftest import Typed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("up", "--nodes", "-1"), "--nodes"),
        (("up", "--scheduler-feature-gates", "Nope=true"), "unknown feature gate `Nope`"),
        (
            ("up", "--controller-feature-gates", "DynamicResourceAllocation=false"),
            "`DynamicResourceAllocation`",
        ),
        (("up", "--config", "nope.yaml"), "cannot read `nope.yaml`"),
        (("up", "--limit", "nope=1"), "`nope`"),
        (("up", "--processes", "4"), "--processes"),
        (("scheduler", "--kubeconfig", "nope"), "cannot read the kubeconfig `nope`"),
        (("scheduler", "--config", "nope.yaml"), "cannot read `nope.yaml`"),
        (("controller", "--qps", "-1"), "--qps"),
        (("controller", "--kubeconfig", "nope"), "cannot read the kubeconfig `nope`"),
    ],
    ids=str,
)
def test_mistakes(typed: Typed, desk: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = typed(*arguments)
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert words in line
    assert not (desk / "dray-data").exists()


def test_a_profile_is_read_whole(typed: Typed, desk: Path) -> None:
    (desk / "p.yaml").write_text("scoring: mostly\nweights: {NodeAffinity: -1}\n")
    ended = typed("up", "--config", "p.yaml")
    assert ended.code == 2
    assert "scoring" in ended.err
    assert "weights" in ended.err


def chosen(**more: Any) -> dict[str, Any]:
    usual = {
        "gates": GateSet.from_defaults(),
        "server_feature_gates": "",
        "scheduler_feature_gates": "",
        "controller_feature_gates": "",
        "node_feature_gates": "",
        "nodes": 3,
        "simulated": 0,
        "runtime": "process",
        "rootfs": None,
        "container_user": "pod",
        "processes": "auto",
        "profile": None,
        "search_timeout": 2.0,
        "data_dir": Path("d"),
        "store": "",
        "host": "127.0.0.1",
        "port": 0,
        "names": (),
        "keys": None,
        "tokens": None,
        "anonymous": False,
        "limits": (),
        "log_level": "info",
        "log_format": "text",
    }
    return {**usual, **more}


def test_a_component_may_have_gates_of_its_own() -> None:
    every = GateSet.parse("DRAAdminAccess=false")
    options = up._build_options(chosen(gates=every, scheduler_feature_gates="DRAPrioritizedList=false"))
    assert options.server.gates == options.controller.gates == options.gates == every
    assert options.scheduler.gates == GateSet.parse("DRAAdminAccess=false,DRAPrioritizedList=false")


def test_only_clusters_that_share_a_store_elect() -> None:
    assert not up._build_options(chosen()).scheduler.leader_elect
    assert up._build_options(chosen()).scheduler.search_seconds == 2.0
    assert up._build_options(chosen(store="etcd://127.0.0.1:2379/x")).controller.leader_elect


def test_processes_are_counted_or_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [up._build_options(chosen(processes=each)).processes for each in ("1", "2", "3")] == [1, 2, 3]
    found = []
    for processors in (1, 2, 64):
        monkeypatch.setattr(process_setup, "count_processors", lambda count=processors: count)
        found.append(up._build_options(chosen()).processes)
    assert found == [1, 2, 2]
