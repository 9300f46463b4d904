"""The Ready condition of a node: while its agent starts, during problems, and after them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dray.client.object_refs import get_kind
from dray.node.containers.runtime.oci import OciRuntime
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.status import node_readiness
from dray.node.status.node_readiness import STARTING_MESSAGE, NodeReadinessMonitor, find_disk_problem
from dray.node.status.node_registration import NodeDescription, NodeRegistration
from dray.telemetry.logs import build_silent_logger
from tests.unit.node.agent_harness import NODE, AgentHarness, Document, pod, run_on_node, until

NODES = get_kind("Node")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_readiness, "CHECK_SECONDS", 0.02)


async def ready(harness: AgentHarness) -> Document | None:
    """What the node says of whether it is ready."""
    conditions = (await harness.admin.get(NODES, NODE))["status"]["conditions"]
    found: list[Document] = [one for one in conditions if one["type"] == "Ready"]
    return found[0] if found else None


async def says(harness: AgentHarness, status: str, *words: str) -> None:
    said: list[Document | None] = []

    async def is_said() -> bool:
        said[:] = [await ready(harness)]
        return said[0] is not None and said[0]["status"] == status

    await until(is_said, lambda: said)
    assert said[0] is not None
    assert all(word in said[0]["message"] for word in words), said


class Ailing(ProcessRuntime):
    """A runtime that has what the test says."""

    ails = ""

    async def find_problem(self) -> str:
        return self.ails or await super().find_problem()


def test_a_runtime_that_starts_nothing_makes_the_node_not_ready_until_it_does(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        runtime = Ailing(harness.root / "containers")
        async with harness.agent(runtime=runtime):
            before = await ready(harness)
            assert before is not None
            assert (before["status"], before["reason"]) == ("True", "KubeletReady")
            runtime.ails = "the runtime is on fire"
            await says(harness, "False", "the runtime is on fire")
            runtime.ails = ""
            await says(harness, "True", "the agent takes pods")

    run_on_node(tmp_path, work)


def test_a_record_that_cannot_be_written_makes_the_node_not_ready_until_it_can(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            checkpoint = harness.root / "checkpoint"
            checkpoint.unlink()
            checkpoint.mkdir()
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await says(harness, "False", "the record of prepared claims cannot be written: ", "checkpoint")
            assert harness.driver.asked == []
            checkpoint.rmdir()
            await says(harness, "True")
            await harness.phase("p", "Running")

    run_on_node(tmp_path, work)


def test_a_node_that_was_away_for_a_moment_stays_as_it_was(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            before = await ready(harness)
        board = NodeRegistration(harness.own, NodeDescription(NODE), build_silent_logger())
        await board.register()
        assert await ready(harness) == before, "an agent that has only begun to start says nothing"
        async with harness.agent():
            after = await ready(harness)
        assert before is not None
        assert after is not None
        assert (after["status"], after["lastTransitionTime"]) == ("True", before["lastTransitionTime"])

    run_on_node(tmp_path, work)


def test_a_node_whose_agent_takes_long_to_start_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_readiness, "START_SECONDS", 0.01)

    async def work(harness: AgentHarness) -> None:
        board = NodeRegistration(harness.own, NodeDescription(NODE), build_silent_logger())
        await board.register()
        looking = NodeReadinessMonitor(board, harness.own.options.time_source, build_silent_logger())
        task = asyncio.create_task(looking.run())
        await says(harness, "False", STARTING_MESSAGE)
        await looking.start()
        await says(harness, "True")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_on_node(tmp_path, work)


def test_a_single_failure_does_not_make_the_node_unready(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        board = NodeRegistration(harness.own, NodeDescription(NODE), build_silent_logger())
        await board.register()
        looks = iter(["", "once", "", "", "twice", "twice"])
        seen: list[tuple[str, str]] = []

        async def check() -> str:
            said = await ready(harness)
            why = next(looks, "")
            seen.append((why, said["status"] if said else ""))
            return why

        looking = NodeReadinessMonitor(board, harness.own.options.time_source, build_silent_logger())
        task = asyncio.create_task(looking.run())
        await looking.start(check)

        async def is_over() -> bool:
            return len(seen) > 7

        await until(is_over)
        told = [("", ""), ("once", "True"), ("", "True"), ("", "True"), ("twice", "True"), ("twice", "True")]
        assert seen[:8] == [*told, ("", "False"), ("", "True")]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_on_node(tmp_path, work)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"f_flag": os.ST_RDONLY}, "mounted read-only"),
        ({"f_bfree": 3, "f_bavail": 3}, "a disk that is full"),
        ({"f_ffree": 0, "f_favail": 0}, "takes no more files"),
        ({"f_ffree": 0, "f_favail": 0, "f_files": 0}, ""),
        ({"f_bfree": 0, "f_bavail": 0, "f_blocks": 0}, ""),
    ],
)
def test_a_full_or_read_only_disk_is_a_problem(
    changes: dict[str, int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = {"f_flag": 0, "f_frsize": 4096, "f_blocks": 9999, "f_bfree": 999, "f_bavail": 999}
    more = {"f_files": 99, "f_ffree": 9, "f_favail": 9}
    disk = SimpleNamespace(**{**fine, **more, **changes})
    monkeypatch.setattr("dray.node.status.node_readiness.os.statvfs", lambda _root: disk)
    said = asyncio.run(find_disk_problem(Path("/somewhere")))
    assert says in said
    assert bool(said) == bool(says)


def test_a_deleted_directory_is_a_problem(tmp_path: Path) -> None:
    assert asyncio.run(find_disk_problem(tmp_path)) == ""
    assert "No such file or directory" in asyncio.run(find_disk_problem(tmp_path / "gone"))


def test_a_runtime_reports_what_it_lacks(tmp_path: Path) -> None:
    program, rootfs, containers = tmp_path / "runc", tmp_path / "rootfs", tmp_path / "containers"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    rootfs.mkdir()
    runtime = OciRuntime(containers, rootfs, program)
    assert asyncio.run(runtime.find_problem()) == ""
    containers.rename(tmp_path / "elsewhere")
    assert "the directory of containers, cannot be written" in asyncio.run(runtime.find_problem())
    rootfs.rmdir()
    assert "with the files that containers see, is gone" in asyncio.run(runtime.find_problem())
    program.unlink()
    assert f"the OCI runtime `{program}` is gone" in asyncio.run(runtime.find_problem())
