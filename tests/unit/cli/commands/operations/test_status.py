"""`dray status`: JSON and YAML, servers that do not respond, and `--watch`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.cli.commands.operations import status
from dray.client.errors import ServerUnreachableError
from dray.client.object_refs import get_kind
from dray.cluster.live.access import AccessGap
from dray.cluster.live.snapshot import LiveSnapshot
from dray.simulation.bundle import Bundle
from tests.unit.cli.conftest import Typed

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""
NOTHING = LiveSnapshot(Bundle())


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    return str(file)


def answers(monkeypatch: pytest.MonkeyPatch, *given: Any) -> None:
    """What a server answers, one after the other."""
    left = iter(given)

    async def read(_client: object, _namespaces: object) -> Any:
        answer = next(left)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr("dray.cluster.live.snapshot.read_snapshot", read)
    monkeypatch.setattr(status, "_PAUSE_SECONDS", 0.0)


def test_a_server_that_does_not_respond_is_reported_with_its_kubeconfig(
    typed: Typed, kubeconfig: str
) -> None:
    said = typed("status", "--kubeconfig", kubeconfig)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("dray: no answer to GET http://127.0.0.1:1/")
    assert said.err.endswith(f": connection refused (`{kubeconfig}` names this server)\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_machines_get_all_of_it(
    form: str, read: Any, typed: Typed, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, NOTHING)
    said = typed("status", "--kubeconfig", kubeconfig, "-o", form)
    assert said.code == 0
    assert read(said.out) == {"nodes": [], "waiting": []}


def test_who_watches_sees_how_it_goes_on_when_the_server_is_back(
    typed: Typed, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = LiveSnapshot(Bundle(nodes=(Node(metadata=ObjectMeta(name="back")),)))
    away = ServerUnreachableError("connection refused", sent=False)
    answers(monkeypatch, NOTHING, away, away, NOTHING, later, KeyboardInterrupt())
    said = typed("status", "--kubeconfig", kubeconfig, "--watch")
    assert said.code == 0
    assert said.out.splitlines() == ["there is no node yet", "NODE   STATE   PODS", "back   ready   0"]
    assert said.err.splitlines() == ["the server does not answer, still trying: connection refused"]


def test_watching_a_server_that_was_never_there_fails_at_once(
    typed: Typed, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, ServerUnreachableError("connection refused", sent=False))
    assert typed("status", "--kubeconfig", kubeconfig, "--watch").code == 2


def test_pods_of_one_namespace(typed: Typed, kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = tuple(Pod(metadata=ObjectMeta(name="p", namespace=namespace)) for namespace in ("ml", "web"))
    cluster = LiveSnapshot(Bundle(pods=pods))
    answers(monkeypatch, cluster, cluster)
    one = json.loads(typed("status", "--kubeconfig", kubeconfig, "-n", "ml", "-o", "json").out)
    assert [pod["name"] for pod in one["waiting"]] == ["ml/p"]
    every = json.loads(typed("status", "--kubeconfig", kubeconfig, "-A", "-o", "json").out)
    assert [pod["name"] for pod in every["waiting"]] == ["ml/p", "web/p"]
    both = typed("status", "--kubeconfig", kubeconfig, "-n", "ml", "-A")
    assert (both.code, both.out) == (2, "")
    assert "either one namespace (`-n`) or all of them (`-A`)" in both.err


def test_who_may_read_no_pods_gets_one_line(
    typed: Typed, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, LiveSnapshot(Bundle(), (AccessGap(get_kind("Pod")), AccessGap(get_kind("Node")))))
    said = typed("status", "--kubeconfig", kubeconfig)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "dray: not allowed to read pods, nodes, not even in namespace `default`; name one that you may read "
        "with `-n`; the role `dray:viewer` (deploy/viewer.yaml) allows reading all of it\n"
    )
