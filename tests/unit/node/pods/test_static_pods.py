"""Static pods: created, changed, restored and deleted with their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.api.json_text import write_json
from dray.node.claims.admission import SOURCE_ANNOTATION
from dray.node.pods import static_pods
from dray.node.pods.static_pods import StaticPods
from dray.telemetry.logs import build_silent_logger
from tests.unit.node.agent_harness import NODE, POD, AgentHarness, Document, pod, run_on_node, until


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


def test_a_static_pod_exists_as_long_as_its_file(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
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
        async with harness.agent(static_pods=folder):
            first = await harness.phase_of_any(name, "Running")
            assert first["metadata"]["annotations"][SOURCE_ANNOTATION] == "file"
            assert first["spec"]["nodeName"] == NODE
            manifest(folder, "web", version="2")
            second = await another(harness, name, first)
            assert second["metadata"]["labels"] == {"version": "2"}
            await harness.delete(name)
            await another(harness, name, second)
            file.unlink()
            await harness.gone(name)
            assert (await harness.admin.list(POD)).items == ()

    run_on_node(tmp_path, work)


async def another(harness: AgentHarness, name: str, before: Document) -> Document:
    """The pod that comes after one, when it runs."""

    async def has_come() -> bool:
        pods = (await harness.admin.list(POD)).items
        return any(one["metadata"]["uid"] != before["metadata"]["uid"] for one in pods)

    await until(has_come)
    return await harness.phase(name, "Running")


def test_static_pods_outlive_their_agent(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        folder, name = tmp_path / "static", f"web-{NODE}"
        folder.mkdir()
        manifest(folder, "web")
        async with harness.agent(static_pods=folder):
            before = await harness.phase_of_any(name, "Running")
        async with harness.agent(static_pods=folder):
            after = await harness.phase(name, "Running")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert after["status"]["containerStatuses"][0]["restartCount"] == 0

    run_on_node(tmp_path, work)


def test_pods_stay_when_their_directory_cannot_be_read(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        folder, name = tmp_path / "static", f"web-{NODE}"
        folder.mkdir()
        manifest(folder, "web")
        syncer = StaticPods(harness.own, NODE, folder, build_silent_logger())
        async with harness.agent():
            await syncer.sync()
            await harness.phase(name, "Running")
            folder.rename(tmp_path / "away")
            await syncer.sync()
            seen = await harness.pod(name)
            assert "deletionTimestamp" not in seen["metadata"]

    run_on_node(tmp_path, work)
