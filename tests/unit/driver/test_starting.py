"""What a driver finds when it starts: after a crash, a reboot, damage, and with files nobody owns."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.driver import Claim, Ready
from dray.durable import StateFile
from tests.unit.driver.onnode import DRIVER, Gpu, Node, on_node
from tests.unit.driver.served import until


def test_after_a_restart_the_reply_is_the_same_and_the_author_is_not_asked() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid = await node.claim("c")
                answer = await line.ok(uid, "c")
            node.way.inner = None  # not even the API is needed
            gpu = Gpu()
            async with node.running(gpu, until_published=False) as line:
                assert await line.ok(uid, "c") == answer
            assert gpu.calls == []

    asyncio.run(scene())


def test_after_a_reboot_everything_is_prepared_anew() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid, other = await node.claim("c"), await node.claim("other", "gpu-1")
                answer = await line.ok(uid, "c")
                await line.ok(other, "other")
            gpu = Gpu()
            async with node.running(gpu, boot_id="boot-2") as line:
                assert node.cdi() == {}, "what CDI files of another boot speak of is gone"
                assert await line.ok(uid, "c") == answer
                await line.given_back(other, "other")
                assert gpu.calls == [("prepare", "c"), ("unprepare", "other")]
                assert list(node.cdi()) == [f"{DRIVER}_{uid}.json"]

    asyncio.run(scene())


def test_a_damaged_entry_is_set_aside_and_told_and_the_claim_can_be_set_right() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                names = ("again", "back", "lost", "fine")
                uids = {name: await node.claim(name, f"gpu-{i}") for i, name in enumerate(names)}
                for name, uid in uids.items():
                    await line.ok(uid, name)
            for name in ("again", "back", "lost"):
                _entry(node, uids[name]).write_text('{"what":"dray driver cl')
            await node.remove_claim("lost")
            gpu = Gpu()
            async with node.running(gpu) as line:
                assert node.said.count("the claim counts as begun") == 3
                assert len(list((node.state / "damaged").iterdir())) == 3
                assert await line.ok(uids["fine"], "fine")
                assert gpu.calls == []
                assert await line.ok(uids["again"], "again")
                await line.given_back(uids["back"], "back")
                await line.given_back(uids["lost"], "lost")
                assert gpu.calls == [("prepare", "again"), ("unprepare", "back"), ("unprepare", "lost")]
                assert [len(claim.devices) for _, claim in gpu.asked] == [1, 1, 0]
                assert set(node.cdi()) == {f"{DRIVER}_{uids[name]}.json" for name in ("again", "fine")}

    asyncio.run(scene())


def test_damage_while_running_is_told_and_does_not_stop_other_claims() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            one, two = await node.claim("one"), await node.claim("two", "gpu-1")
            await line.ok(one, "one")
            _entry(node, one).write_text("")
            assert await line.ok(two, "two")
            assert "the claim counts as begun" in node.said
            assert await line.ok(one, "one")

    asyncio.run(scene())


def test_an_entry_of_a_later_version_is_set_aside_too() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")
            StateFile("dray driver claim", 7).write(_entry(node, uid), {"later": "members"})
            async with node.running() as line:
                assert "a later dray wrote it" in node.said
                assert await line.ok(uid, "c")

    asyncio.run(scene())


def test_cdi_files_of_ours_that_nobody_owns_are_removed_and_others_stay() -> None:
    async def scene() -> None:
        async with on_node() as node:
            node.choices.cdi.mkdir()
            for name in (f"{DRIVER}_1234.json", f".{DRIVER}_1234.json.77", "other.example.com_1.json"):
                (node.choices.cdi / name).write_text("{}")
            async with node.running():
                assert list(node.cdi()) == ["other.example.com_1.json"]
                assert "no prepared claim has this CDI file: removed" in node.said

    asyncio.run(scene())


def test_names_that_lead_elsewhere_stay_inside_the_directory() -> None:
    async def scene() -> None:
        class Trusting(Gpu):
            """Says whatever the claim is called."""

            def prepare(self, claim: Claim) -> Any:
                return [Ready(got, env={"NAME": "../../x\n", "GPU": got.device}) for got in claim.devices]

        async with on_node() as node, node.running(Trusting()) as line:
            for uid in ("../../escape", "a/b", "x\n.json", "", ".."):
                error = (await line.prepare((uid, "none")))[uid].error
                assert "there is no such claim" in error
                assert (await line.unprepare((uid, "none")))[uid].error == ""
            real = await node.claim("c")
            await line.ok(real, "c")
            assert list(node.cdi()) == [f"{DRIVER}_{real}.json"]
            assert sorted(each.name for each in node.root.iterdir()) == ["cdi", "p", "r"]

    asyncio.run(scene())


def test_reconciling_waits_for_an_api_that_does_not_answer() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")
            await node.remove_claim("c")
            inner, node.way.inner = node.way.inner, None
            gpu = Gpu()
            async with node.running(gpu, until_published=False):
                await until(lambda: _now("cannot tell yet whether claims are gone" in node.said))
                assert gpu.calls == []
                node.way.inner = inner
                await until(lambda: _now(gpu.calls), lambda calls: calls == [("unprepare", "c")])
                await until(lambda: _now(node.cdi()), lambda files: not files)

    asyncio.run(scene())


def _entry(node: Node, uid: str) -> Any:
    return node.state / "prepared" / f"{uid}.json"


async def _now(value: Any) -> Any:
    return value
