"""The agent as a whole: pods run, end and go; an agent that comes back finds what it left."""

from __future__ import annotations

from pathlib import Path

from tests.unit.node.stage import Stage, container, played, pod


def test_a_pod_runs_and_goes(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with stage.agent():
            await stage.create(pod("p"))
            seen = await stage.phase("p", "Running")
            print(seen["status"])
            await stage.delete("p")
            await stage.gone("p")

    played(tmp_path, work)


def test_a_pod_with_a_claim(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with stage.agent():
            await stage.create(pod("p", container("c", "sh", "-c", "exit 0"), claim="gpus", restartPolicy="Never"))
            await stage.until("p", lambda p: "ClaimMissing" in str(p["status"]))
            await stage.claim("gpus", "p")
            seen = await stage.phase("p", "Succeeded")
            print(seen["status"])
            print(stage.driver.asked, await stage.events())

    played(tmp_path, work)
