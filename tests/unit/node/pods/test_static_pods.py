"""Pods that a node runs by itself, from files: made, changed, brought back and removed with their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.api.json_text import write_json
from dray.node.claims.admission import SOURCE_ANNOTATION
from dray.node.pods import static_pods
from dray.node.pods.static_pods import StaticPods
from dray.telemetry.logs import build_silent_logger
from tests.unit.node.stage import NODE, POD, Document, Stage, played, pod, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: Any) -> None:
    monkeypatch.setattr(static_pods, "POLL_SECONDS", 0.1)


def manifest(folder: Path, name: str, **labels: str) -> Path:
    document = pod(name)
    del document["spec"]["nodeName"]
    document["metadata"]["labels"] = labels
    file = folder / f"{name}.json"
    file.write_bytes(write_json(document))
    return file


def test_a_pod_lives_as_long_as_its_file(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        folder, name = tmp_path / "static", f"web-{NODE}"
        folder.mkdir()
        file = manifest(folder, "web", version="1")
        (folder / "broken.yaml").write_text("a: [")
        odd: tuple[Document, ...] = (
            {"metadata": "x"},
            {"metadata": {"name": "o", "annotations": "x"}},
            {"metadata": {"name": 5}},
        )
        for number, more in enumerate(odd):
            document = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}, **more}
            (folder / f"odd{number}.json").write_bytes(write_json(document))
        (folder / "note.txt").write_text("not a manifest")
        (folder / "map.json").write_bytes(write_json({"apiVersion": "v1", "kind": "ConfigMap"}))
        async with stage.agent(static_pods=folder):
            first = await stage.phase_of_any(name, "Running")
            assert first["metadata"]["annotations"][SOURCE_ANNOTATION] == "file"
            assert first["spec"]["nodeName"] == NODE
            manifest(folder, "web", version="2")
            second = await another(stage, name, first)
            assert second["metadata"]["labels"] == {"version": "2"}
            await stage.delete(name)
            await another(stage, name, second)
            file.unlink()
            await stage.gone(name)
            assert (await stage.admin.list(POD)).items == ()

    played(tmp_path, work)


async def another(stage: Stage, name: str, before: Document) -> Document:
    """The pod that comes after one, when it runs."""

    async def has_come() -> bool:
        pods = (await stage.admin.list(POD)).items
        return any(one["metadata"]["uid"] != before["metadata"]["uid"] for one in pods)

    await until(has_come)
    return await stage.phase(name, "Running")


def test_pods_from_files_outlive_their_agent(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        folder, name = tmp_path / "static", f"web-{NODE}"
        folder.mkdir()
        manifest(folder, "web")
        async with stage.agent(static_pods=folder):
            before = await stage.phase_of_any(name, "Running")
        async with stage.agent(static_pods=folder):
            after = await stage.phase(name, "Running")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert after["status"]["containerStatuses"][0]["restartCount"] == 0

    played(tmp_path, work)


def test_pods_stay_when_their_directory_cannot_be_read(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        folder, name = tmp_path / "static", f"web-{NODE}"
        folder.mkdir()
        manifest(folder, "web")
        keeper = StaticPods(stage.own, NODE, folder, build_silent_logger())
        async with stage.agent():
            await keeper.sync()
            await stage.phase(name, "Running")
            folder.rename(tmp_path / "away")
            await keeper.sync()
            seen = await stage.pod(name)
            assert "deletionTimestamp" not in seen["metadata"]

    played(tmp_path, work)
