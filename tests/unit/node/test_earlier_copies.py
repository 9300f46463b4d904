"""R-12: a checkpoint that is whole and was true once; what runs on the node tells more than it does."""

from __future__ import annotations

from pathlib import Path

from dray.node.containers.runtime.process import ProcessRuntime
from tests.unit.node.stage import Stage, played, pod

ONCE = ["prepare default/gpus", "unprepare default/gpus"]


async def _shared(stage: Stage) -> bytes:
    """Two pods share a claim; the checkpoint as it was with the first alone."""
    await stage.create(pod("a", claim="gpus"))
    await stage.claim("gpus", "a")
    await stage.phase("a", "Running")
    old = (stage.root / "checkpoint").read_bytes()
    await stage.create(pod("b", claim="gpus"))
    await stage.reserve("gpus", "a", "b")
    await stage.phase("b", "Running")
    return old


def _watched(stage: Stage) -> list[str]:
    """Containers that run when a driver is asked to let go."""
    seen: list[str] = []

    async def look() -> None:
        found = await ProcessRuntime(stage.root / "containers").list_containers()
        seen.extend(each.pod_name for each in found if each.exit is None)

    stage.driver.before_unprepare = look
    return seen


def test_r12_a_pod_that_an_earlier_copy_does_not_know_keeps_its_devices(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        async with stage.agent():
            old = await _shared(stage)
        (stage.root / "checkpoint").write_bytes(old)
        running = _watched(stage)
        async with stage.agent():
            await stage.delete("a")
            await stage.gone("a")
            assert stage.driver.asked == ONCE[:1]
            await stage.delete("b")
            await stage.gone("b")
            assert (stage.driver.asked, running) == (ONCE, [])

    played(tmp_path, work)


def test_r12_an_earlier_copy_with_a_pod_that_is_gone_takes_nothing_from_the_one_that_stayed(
    tmp_path: Path,
) -> None:
    async def work(stage: Stage) -> None:
        async with stage.agent():
            old = await _shared(stage)
            await stage.delete("a")
            await stage.gone("a")
        (stage.root / "checkpoint").write_bytes(old)
        running = _watched(stage)
        async with stage.agent():
            await stage.delete("b")
            await stage.gone("b")
            assert (stage.driver.asked, running) == (ONCE, [])

    played(tmp_path, work)


def test_r12_an_earlier_copy_from_when_the_claim_was_being_given_back_takes_nothing_either(
    tmp_path: Path,
) -> None:
    async def work(stage: Stage) -> None:
        copies: list[bytes] = []

        async def copied() -> None:
            copies.append((stage.root / "checkpoint").read_bytes())

        stage.driver.before_unprepare = copied
        async with stage.agent():
            await stage.create(pod("a", claim="gpus"))
            await stage.claim("gpus", "a")
            await stage.phase("a", "Running")
            await stage.delete("a")
            await stage.gone("a")
            await stage.create(pod("b", claim="gpus"))
            await stage.reserve("gpus", "b")
            await stage.phase("b", "Running")
        (stage.root / "checkpoint").write_bytes(copies[0])
        running = _watched(stage)
        async with stage.agent():
            await stage.delete("b")
            await stage.gone("b")
            # Until it is deleted, what runs may be asked for once more: nobody can tell what became of it.
            assert stage.driver.asked[:3] == [*ONCE, ONCE[0]]
            assert (stage.driver.asked.count(ONCE[1]), stage.driver.asked[-1], running) == (2, ONCE[1], [])

    played(tmp_path, work)
