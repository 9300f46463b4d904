"""`dray doctor ledger` and `dray fence node`: on a file, and against a server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import kind_named
from dray.api.meta import ObjectMeta
from dray.api.preparation import Preparation, PreparationSpec, PreparedClaim
from dray.claims.rows import LEDGER
from dray.client.changes import MergePatch
from dray.client.client import Client
from dray.client.http import Http
from dray.client.kubeconfig import find_access
from dray.cluster.control import ServerOptions, serving
from dray.store import Put, open_store
from tests.unit.cli.conftest import Typed
from tests.unit.server.registries import claim, result

ROW = LEDGER + b"devices/gpu.example.com/pool/gpu-7"
CLAIMS, NODES = kind_named("resource.k8s.io", "ResourceClaim"), kind_named("", "Node")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a server that runs in another thread."""
    started: list[Path] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        try:
            async with serving(ServerOptions(tmp_path / "server", port=0)) as running:
                started.append(running.kubeconfig)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(30)
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def through(kubeconfig: Path, story: Callable[[Client], Any]) -> Any:
    async def told() -> Any:
        client = Client(Http(find_access(str(kubeconfig))))
        try:
            return await story(client)
        finally:
            await client.close()

    return asyncio.run(told())


async def in_quarantine(client: Client) -> None:
    """Node n1 has gpu-0 of a claim that was removed, and gpu-1 of one that lives."""
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


def test_a_fenced_node_sets_its_devices_free(server: Path, typed: Typed) -> None:
    through(server, in_quarantine)
    ended = typed("fence", "node", "n1", "--kubeconfig", str(server), "--yes")
    assert ended.code == 0, ended.err
    assert ended.out == "gpu.example.com/pool/gpu-0 is free\n"
    assert "gpu.example.com/pool/gpu-0: quarantined for claim default/old" in ended.err
    assert "gpu.example.com/pool/gpu-1: held by claim default/live" in ended.err
    assert "fenced node n1: 2 preparations deleted, 1 devices free" in ended.err

    async def look(client: Client) -> None:
        assert NODES is not None
        node = await client.get(NODES, "n1")
        assert node["metadata"]["annotations"].keys() == {"dray.dev/fenced-at"}
        assert (await client.list(Preparation)).items == ()

    through(server, look)
    assert typed("doctor", "ledger", "--kubeconfig", str(server)).code == 0
    nobody = typed("fence", "node", "n9", "--kubeconfig", str(server), "--yes")
    assert (nobody.code, nobody.err) == (
        1,
        "there is no node `n9`, and nothing is prepared on one of that name\n",
    )


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
