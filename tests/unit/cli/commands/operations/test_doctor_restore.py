"""`dray server backup`, `dray server restore` and `dray doctor restore`."""

from __future__ import annotations

import json
from pathlib import Path

from dray.api.core import Node
from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE
from dray.client.client import Client
from tests.unit.cli.conftest import Typed
from tests.unit.cli.serving import served, through


async def two_nodes(client: Client) -> None:
    for name in ("n1", "n2"):
        metadata = {"name": name, "annotations": {ACCOUNTED_ANNOTATION: NO_RESTORE}}
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def test_a_restored_server_waits_for_nodes_until_they_are_fenced_or_settled(
    tmp_path: Path, typed: Typed
) -> None:
    with served(tmp_path / "first") as server:
        through(server, two_nodes)
        whole = typed("doctor", "restore", "--kubeconfig", str(server))
        assert (whole.code, whole.out) == (0, "the server was never restored from a backup\n")
        copied = typed("server", "backup", str(tmp_path / "copy"), "--kubeconfig", str(server))
        assert copied.code == 0, copied.err
    second = tmp_path / "second"
    assert typed("server", "restore", str(tmp_path / "copy"), "--data-dir", str(second)).code == 0
    with served(second) as server:
        reach = ("--kubeconfig", str(server))
        waits = typed("doctor", "restore", *reach)
        lines = waits.out.splitlines()
        assert (waits.code, lines[:2]) == (
            1,
            [f"node {name} has not reported its prepared devices" for name in ("n1", "n2")],
        )
        assert "waiting for 2 nodes, and " in lines[2]
        assert lines[3] == "hint: `dray fence node n1` when it is switched off"
        assert typed("fence", "node", "n1", "--yes", *reach).code == 0
        told = json.loads(typed("doctor", "restore", "-o", "json", *reach).out)
        assert told["awaited"] == ["n2"]

        async def noted(client: Client) -> None:
            node = await client.get(Node, "n1")
            assert node.metadata.annotations[ACCOUNTED_ANNOTATION] == told["id"]

        through(server, noted)
        ended = typed("doctor", "restore", "--settle", "--yes", *reach)
        assert ended.code == 0
        assert ended.out.endswith(": no node is missing\n")
    with served(second) as server:
        assert typed("doctor", "restore", "--kubeconfig", str(server)).code == 0, "it is settled for good"


def test_every_restore_is_another_one(tmp_path: Path, typed: Typed) -> None:
    with served(tmp_path / "first") as server:
        assert typed("server", "backup", str(tmp_path / "copy"), "--kubeconfig", str(server)).code == 0
    seen = set()
    for _ in range(2):
        folder = str(tmp_path / "again")
        assert typed("server", "restore", str(tmp_path / "copy"), "--data-dir", folder, "--force").code == 0
        with served(tmp_path / "again") as server:
            seen.add(through(server, _restore))
    assert len(seen) == 2


async def _restore(client: Client) -> str:
    return str((await client.get_json("/dray/restored"))["id"])
