"""The workloads with agents: their users, when a pod counts, and the command of the cluster."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bench.agents.credentials import create_token_file
from bench.scheduler.cluster import ClusterOptions
from bench.scheduler.load import PodTimes
from bench.scheduler.objects import DRIVER
from bench.scheduler.workloads import AGENTS
from dray.server.auth.authn.token_file import StaticTokens


def write_event(name, node="", phase="Pending"):
    spec = {"nodeName": node} if node else {}
    metadata = {"name": name, "namespace": "test"}
    event = {"type": "MODIFIED", "object": {"metadata": metadata, "spec": spec, "status": {"phase": phase}}}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def test_the_token_file_names_agents_and_drivers_as_the_server_expects(tmp_path):
    file = tmp_path / "tokens"
    first, second = create_token_file(file, 2)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tokens = StaticTokens.from_file(file)
    agent, driver = tokens.find(first.agent), tokens.find(second.driver)
    assert agent is not None
    assert driver is not None
    assert (agent.name, agent.groups[0]) == (f"system:node:{first.node}", "system:nodes")
    assert driver.name == f"{DRIVER}:{second.node}"
    assert set(driver.groups) >= {"dray:drivers", f"dray:driver:{DRIVER}", f"dray:on-node:{second.node}"}


@pytest.mark.parametrize(("runs", "expected"), [(False, ["test/a", "test/b"]), (True, ["test/b"])])
def test_with_agents_a_pod_counts_when_it_runs(runs, expected):
    events = write_event("a", "n") + write_event("b", "n", "Running") + write_event("c")
    seen = PodTimes(runs)
    seen.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(events), events))
    assert list(seen.bound) == expected


def test_workloads_with_agents_start_five_hundred_pods_on_nodes_of_ten_devices():
    assert [(work.name, work.nodes, work.pods) for work in AGENTS] == [
        ("agents/100nodes", 100, 500),
        ("agents/500nodes", 500, 500),
    ]
    assert all(work.agents and not work.is_steady and work.kubernetes is None for work in AGENTS)


def test_the_command_of_a_cluster_has_what_was_asked_for():
    plain = ClusterOptions(Path("/x"), ("perf", "stat"), "2").build_command()
    assert plain[:2] == ["perf", "stat"]
    assert plain[plain.index("--processes") + 1] == "2"
    assert "dray.cli" in plain
    assert "--token-file" not in plain
    counted = ClusterOptions(Path("/x"), token_file=Path("/t"), calls_file=Path("/c")).build_command()
    assert counted[2:5] == ["bench.scheduler.calls", "/c", "up"]
    assert counted[-2:] == ["--token-file", "/t"]
