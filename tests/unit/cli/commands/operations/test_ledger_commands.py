"""`dray doctor ledger`, `dray fence node` and `dray unfence node`: on a file, and against a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.api.core import Node
from dray.api.kinds import find_kind
from dray.api.meta import ObjectMeta
from dray.api.preparation import Preparation, PreparationSpec, PreparedClaim
from dray.claims.ledger.rows import LEDGER_PREFIX
from dray.client.client import Client
from dray.client.patches import MergePatch
from dray.placement.fencing import FENCED_AT_ANNOTATION
from dray.store import Put, open_store
from tests.contract.controlled import by_name, pod
from tests.unit.cli.conftest import Typed
from tests.unit.cli.serving import served, through
from tests.unit.server.registries import claim, result

ROW = LEDGER_PREFIX + b"devices/gpu.example.com/pool/gpu-7"
CLAIMS = find_kind("resource.k8s.io", "ResourceClaim")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a server that runs in another thread."""
    with served(tmp_path / "server") as kubeconfig:
        yield kubeconfig


async def in_quarantine(client: Client) -> None:
    """Node n1 has gpu-0 of a claim that was removed, and gpu-1 of one that exists."""
    assert CLAIMS is not None
    await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    for i, name in enumerate(("old", "live")):
        made = await client.create(claim(name))
        uid = made["metadata"]["uid"] if isinstance(made, dict) else made.metadata.uid
        status = {"status": {"allocation": {"devices": {"results": [result(f"gpu-{i}")]}}}}
        await client.patch(CLAIMS, name, MergePatch(status), "default", subresource="status")
        await client.create(
            Preparation(
                metadata=ObjectMeta(name=f"n1-{name}"),
                spec=PreparationSpec(
                    node_name="n1", claim=PreparedClaim(namespace="default", name=name, uid=uid)
                ),
            )
        )
    await client.delete(CLAIMS, "old", "default")


async def in_use(client: Client) -> None:
    """A pod on node n1, which is ready, has gpu-0."""
    assert CLAIMS is not None
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": ready})
    await client.create(claim("c"))
    made = await client.create(pod("p", by_name("c")))
    given = {"allocation": {"devices": {"results": [result("gpu-0")]}}}
    reserved = {"reservedFor": [{"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}]}
    status = MergePatch({"status": given | reserved})
    await client.patch(CLAIMS, "c", status, "default", subresource="status")
    await client.bind("p", "default", "n1")


def test_a_fenced_node_sets_its_devices_free(server: Path, typed: Typed) -> None:
    through(server, in_quarantine)
    ended = typed("fence", "node", "n1", "--kubeconfig", str(server), "--yes")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "gpu.example.com/pool/gpu-0 is free",
        "gpu.example.com/pool/gpu-1 stays with claim default/live: "
        "somebody allocated the claim by hand; it keeps its devices until it is deleted",
    ]
    assert ended.err.splitlines() == [
        "node n1 has 0 pods, 2 preparations and 2 devices",
        "  gpu.example.com/pool/gpu-0: quarantined for claim default/old",
        "  gpu.example.com/pool/gpu-1: held by claim default/live",
        "fenced node n1: 0 pods removed, 2 preparations deleted, 1 device free",
        "hint: when it is back, `dray unfence node n1` lets pods run on it again",
    ]

    async def look(client: Client) -> None:
        node = await client.get(Node, "n1")
        assert node.metadata.annotations.keys() == {FENCED_AT_ANNOTATION}
        assert [(each.key, each.value, each.effect) for each in node.spec.taints] == [
            ("node.kubernetes.io/out-of-service", "fenced", "NoExecute")
        ]
        assert (await client.list(Preparation)).items == ()

    through(server, look)
    assert typed("doctor", "ledger", "--kubeconfig", str(server)).code == 0
    nobody = typed("fence", "node", "n9", "--kubeconfig", str(server), "--yes")
    assert (nobody.code, nobody.err) == (
        1,
        "there is no node `n9`, and nothing is prepared on one of that name\n",
    )
    seen = typed("status", "--kubeconfig", str(server))
    assert "fenced" in seen.out
    assert "hint: `dray unfence node n1` lets pods run there again" in seen.out


def test_a_fenced_node_is_taken_back(server: Path, typed: Typed) -> None:
    through(server, in_quarantine)
    assert typed("fence", "node", "n1", "--kubeconfig", str(server), "--yes").code == 0
    back = typed("unfence", "node", "n1", "--kubeconfig", str(server))
    assert (back.code, back.err) == (0, "node n1 is back in service\n")

    async def look(client: Client) -> None:
        node = await client.get(Node, "n1")
        assert (node.metadata.annotations, node.spec.taints) == ({}, ())

    through(server, look)
    again = typed("unfence", "node", "n1", "--kubeconfig", str(server))
    assert (again.code, again.err) == (0, "node n1 was not fenced\n")
    nobody = typed("unfence", "node", "n9", "--kubeconfig", str(server))
    assert (nobody.code, nobody.err) == (1, "there is no node `n9`\n")


def test_fencing_reports_what_does_not_become_free(server: Path, typed: Typed) -> None:
    """Nobody releases the claim of a pod that was removed: there is no controller."""
    through(server, in_use)
    ended = typed("fence", "node", "n1", "--kubeconfig", str(server), "--yes", "--timeout", "0.2")
    assert ended.code == 1
    assert ended.out == (
        "gpu.example.com/pool/gpu-0 stays with claim default/c: "
        "the claim is still reserved for pod p, which ended; does a controller run?\n"
    )
    lines = ended.err.splitlines()
    assert lines[1] == "  pod default/p"
    assert "warning: node n1 is reported as ready; its pods may still use its devices" in lines
    assert "waiting up to 0.2 seconds for 1 claim to be released: default/c" in lines
    assert "fenced node n1: 1 pod removed, 0 preparations deleted, 0 devices free" in lines
    wrong = typed("fence", "node", "n1", "--kubeconfig", str(server), "--yes", "--timeout", "soon")
    assert wrong.code == 2


def test_fencing_asks_first(server: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    through(server, in_quarantine)
    monkeypatch.setattr("click.confirm", lambda *said, **more: (_ for _ in ()).throw(KeyboardInterrupt))
    assert typed("fence", "node", "n1", "--kubeconfig", str(server)).code == 130

    async def look(client: Client) -> None:
        assert len((await client.list(Preparation)).items) == 2

    through(server, look)


def test_the_doctor_finds_and_repairs_a_file(typed: Typed, desk: Path) -> None:
    async def spoil() -> None:
        async with await open_store("store.db") as store:
            await store.txn([], [Put(ROW, b'{"format":1,"holdings":[]}')])

    asyncio.run(spoil())
    sick = typed("doctor", "ledger", "--store", "store.db")
    assert sick.code == 1
    assert sick.out.splitlines() == [
        "device gpu.example.com/pool/gpu-7: quarantine without preparation: quarantined for nobody, "
        "and no preparation stands",
        "0 claims, 0 preparations and 1 rows at revision 2: 1 differ",
        "hint: `dray doctor ledger --repair` writes the rows anew",
    ]
    told = json.loads(typed("doctor", "ledger", "--store", "store.db", "-o", "json").out)
    assert (told["agrees"], told["rows"], len(told["findings"])) == (False, 1, 1)
    healed = typed("doctor", "ledger", "--store", "store.db", "--repair")
    assert healed.code == 0
    assert (
        healed.out.splitlines()[-1]
        == "0 claims, 0 preparations and 0 rows at revision 3: ledger and claims agree"
    )


def test_the_doctor_leaves_a_store_in_use_alone_and_makes_none(server: Path, typed: Typed) -> None:
    used = typed("doctor", "ledger", "--store", str(server.parent / "store.db"))
    assert used.code == 2
    assert "is in use by" in used.err
    missing = typed("doctor", "ledger", "--store", "nothing.db")
    assert missing.code == 2
    assert "there is no store at `nothing.db`" in missing.err
    both = typed("doctor", "ledger", "--store", "x", "--kubeconfig", "y")
    assert (both.code, both.err) == (2, "dray: give either `--store` or a server, not both\n")


def test_the_doctor_repairs_through_a_server(server: Path, typed: Typed) -> None:
    through(server, in_quarantine)
    report = json.loads(typed("doctor", "ledger", "--kubeconfig", str(server), "--repair", "-o", "json").out)
    assert report["agrees"] is True
    assert (report["claims"], report["preparations"], report["rows"]) == (1, 2, 4)
