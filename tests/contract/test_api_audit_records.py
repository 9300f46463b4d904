"""The audit lines of writes on a store that records them with the commit, and on one that does not."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from dray.api.transactions import GROUP, KIND, TRANSACTIONS_PATH, VERSION
from dray.server.audit import verify_files
from dray.server.audit.log_file import AuditLogFile
from dray.store import Store
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore
from tests.contract.api import Api, path, serving

Work = Any


async def open_store(name: str, folder: Path) -> Store:
    return MemoryStore() if name == "memory" else await SqliteStore.open(folder / "store.db")


def run(name: str, folder: Path, work: Work) -> list[dict[str, Any]]:
    """Do something with a server; returns the lines of its log."""
    log = folder / "audit.log"

    async def main() -> None:
        async with await open_store(name, folder) as store, serving(store, audit=log) as api:
            await work(api)

    asyncio.run(main())
    assert verify_files([log]).findings == ()
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def write_everything(api: Api) -> None:
    """Send writes of every verb: some are carried out, some change nothing, some are refused."""
    await api.create(config("a"))
    assert (await api.ask("POST", path("configmaps"), config("a"))).code == 409
    assert (await api.ask("POST", path("configmaps"), config("dry"), dryRun="All")).code == 201
    assert (await api.ask("POST", path("configmaps", namespace="absent"), config("a"))).code == 404
    assert (await api.ask("PUT", path("configmaps", "a"), config("a", k="v"))).code == 200
    assert (await api.ask("PUT", path("configmaps", "a"), config("a", k="v"))).code == 200
    assert (await api.ask("PUT", path("configmaps", "a"), {**config("a"), "data": 1})).code == 400
    assert (await api.ask("DELETE", path("configmaps", "a"))).code == 200
    for number in range(3):
        await api.create(config(f"many-{number}"))
    assert (await api.ask("DELETE", path("configmaps"))).code == 200
    names = ("t-1", "t-2")
    assert (await api.ask("POST", TRANSACTIONS_PATH, build_transaction(*names))).code == 201
    assert (await api.ask("POST", TRANSACTIONS_PATH, build_transaction("t-3", "t-1"))).code == 409
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}}
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    assert (await api.ask("POST", path("serviceaccounts", "robot") + "/token", token)).code == 201


def build_transaction(*names: str) -> dict[str, Any]:
    requests = [
        {
            "method": "POST",
            "path": path("configmaps"),
            "contentType": "application/json",
            "body": config(name),
        }
        for name in names
    ]
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "spec": {"requests": requests}}


def summarize(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The lines of the requests, in the order in which these began, as pairs."""
    words = ("configmaps", "token", TRANSACTIONS_PATH)
    picked = [line for line in lines if any(word in line.get("path", "") for word in words)]
    return [
        (line["event"], line["verb"], line["path"], line.get("code"), len(line.get("requests", ())))
        for line in picked
    ]


def test_every_store_leaves_the_same_lines(tmp_path):
    found = {}
    for name in ("memory", "sqlite"):
        folder = tmp_path / name
        folder.mkdir()
        found[name] = summarize(run(name, folder, write_everything))
    assert found["sqlite"] == found["memory"]
    events = [event for event, *_ in found["sqlite"]]
    assert events == ["received", "complete"] * 15


def test_a_log_without_space_refuses_writes_before_anything_is_changed(tmp_path, monkeypatch):
    full = False
    real = AuditLogFile.append

    def append(file: AuditLogFile, bodies: list[bytes]) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, bodies)

    monkeypatch.setattr(AuditLogFile, "append", append)

    async def work(api: Api) -> None:
        nonlocal full
        await api.create(config("before"))
        full = True
        refused = [await api.ask("POST", path("configmaps"), config(f"full-{n}")) for n in range(3)]
        refused += [await api.ask("POST", TRANSACTIONS_PATH, build_transaction("full-4"))]
        assert [response.code for response in refused] == [503] * 4
        for response in refused:
            assert "audit log cannot be written (No space left on device)" in response.message
        assert [each["metadata"]["name"] for each in (await api.get(path("configmaps")))["items"]] == [
            "before"
        ]
        full = False
        async with asyncio.timeout(60):
            while (await api.ask("POST", path("configmaps"), config("after"))).code != 201:
                await asyncio.sleep(0.01)

    lines = run("sqlite", tmp_path, work)
    received = {line["id"] for line in lines if line["event"] == "received"}
    changed = [line for line in lines if line["event"] == "complete" and line["code"] == 201]
    assert {line["id"] for line in changed} <= received
    assert [line["event"] for line in lines].count("resumed") == 1


@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_concurrent_writers_of_one_object_leave_one_line_each(tmp_path, name):
    async def work(api: Api) -> None:
        await api.create(config("contended"))
        patches = [{"data": {f"k{number}": "v"}} for number in range(30)]
        where, headers = path("configmaps", "contended"), {"content-type": "application/merge-patch+json"}
        answers = await asyncio.gather(
            *(api.ask("PATCH", where, patch, headers=headers) for patch in patches)
        )
        assert {answer.code for answer in answers} == {200}

    lines = run(name, tmp_path, work)
    patched = [line for line in lines if line.get("verb") == "patch"]
    received = [line["id"] for line in patched if line["event"] == "received"]
    complete = [line["id"] for line in patched if line["event"] == "complete"]
    assert len(received) == len(set(received)) == 30
    assert sorted(complete) == sorted(received)
