"""R-12: an earlier copy of the checkpoint; running containers take precedence over it."""

from __future__ import annotations

from pathlib import Path

from dray.node.containers.runtime.process import ProcessRuntime
from tests.unit.node.agent_harness import AgentHarness, pod, run_on_node

ONCE = ["prepare default/gpus", "unprepare default/gpus"]


async def _shared(harness: AgentHarness) -> bytes:
    """Two pods share a claim; the checkpoint as it was with the first alone."""
    await harness.create(pod("a", claim="gpus"))
    await harness.claim("gpus", "a")
    await harness.phase("a", "Running")
    old = (harness.root / "checkpoint").read_bytes()
    await harness.create(pod("b", claim="gpus"))
    await harness.reserve("gpus", "a", "b")
    await harness.phase("b", "Running")
    return old


def _watched(harness: AgentHarness) -> list[str]:
    """Containers that run when a driver is asked to let go."""
    seen: list[str] = []

    async def look() -> None:
        found = await ProcessRuntime(harness.root / "containers").list_containers()
        seen.extend(each.pod_name for each in found if each.exit is None)

    harness.driver.before_unprepare = look
    return seen


def test_r12_a_pod_that_an_earlier_copy_does_not_know_keeps_its_devices(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            old = await _shared(harness)
        (harness.root / "checkpoint").write_bytes(old)
        running = _watched(harness)
        async with harness.agent():
            await harness.delete("a")
            await harness.gone("a")
            assert harness.driver.asked == ONCE[:1]
            await harness.delete("b")
            await harness.gone("b")
            assert (harness.driver.asked, running) == (ONCE, [])

    run_on_node(tmp_path, work)


def test_r12_an_earlier_copy_with_a_deleted_pod_takes_nothing_from_the_remaining_one(
    tmp_path: Path,
) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            old = await _shared(harness)
            await harness.delete("a")
            await harness.gone("a")
        (harness.root / "checkpoint").write_bytes(old)
        running = _watched(harness)
        async with harness.agent():
            await harness.delete("b")
            await harness.gone("b")
            assert (harness.driver.asked, running) == (ONCE, [])

    run_on_node(tmp_path, work)


def test_r12_an_earlier_copy_with_the_claim_in_release_takes_nothing_either(
    tmp_path: Path,
) -> None:
    async def work(harness: AgentHarness) -> None:
        copies: list[bytes] = []

        async def copied() -> None:
            copies.append((harness.root / "checkpoint").read_bytes())

        harness.driver.before_unprepare = copied
        async with harness.agent():
            await harness.create(pod("a", claim="gpus"))
            await harness.claim("gpus", "a")
            await harness.phase("a", "Running")
            await harness.delete("a")
            await harness.gone("a")
            await harness.create(pod("b", claim="gpus"))
            await harness.reserve("gpus", "b")
            await harness.phase("b", "Running")
        (harness.root / "checkpoint").write_bytes(copies[0])
        running = _watched(harness)
        async with harness.agent():
            await harness.delete("b")
            await harness.gone("b")
            # Until it is deleted, what runs may be asked for once more: nobody can tell what became of it.
            assert harness.driver.asked[:3] == [*ONCE, ONCE[0]]
            assert (harness.driver.asked.count(ONCE[1]), harness.driver.asked[-1], running) == (
                2,
                ONCE[1],
                [],
            )

    run_on_node(tmp_path, work)
