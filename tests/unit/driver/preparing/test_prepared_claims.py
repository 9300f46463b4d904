"""The store of prepared claims at the start: after a crash, a reboot, damage, and with stray files."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.driver import Claim, Ready
from dray.durable import StateFile
from tests.unit.driver.driver_node import DRIVER, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until


def test_after_a_restart_the_reply_is_the_same_without_a_call_of_the_author() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                answer = await agent.prepare_ok(uid, "c")
            node.transport.inner = None  # not even the API is needed
            gpu = Gpu()
            async with node.run_driver(gpu, until_published=False) as agent:
                assert await agent.prepare_ok(uid, "c") == answer
            assert gpu.calls == []

    asyncio.run(scenario())


def test_after_a_reboot_everything_is_prepared_again() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid, other = await node.create_claim("c"), await node.create_claim("other", "gpu-1")
                answer = await agent.prepare_ok(uid, "c")
                await agent.prepare_ok(other, "other")
            gpu = Gpu()
            async with node.run_driver(gpu, boot_id="boot-2") as agent:
                assert node.cdi() == {}, "what CDI files of another boot speak of is gone"
                assert await agent.prepare_ok(uid, "c") == answer
                await agent.unprepare_ok(other, "other")
                assert gpu.calls == [("prepare", "c"), ("unprepare", "other")]
                assert list(node.cdi()) == [f"{DRIVER}_{uid}.json"]

    asyncio.run(scenario())


def test_a_damaged_record_is_set_aside_and_its_claim_can_be_prepared_or_unprepared() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                names = ("again", "back", "lost", "fine")
                uids = {name: await node.create_claim(name, f"gpu-{i}") for i, name in enumerate(names)}
                for name, uid in uids.items():
                    await agent.prepare_ok(uid, name)
            for name in ("again", "back", "lost"):
                _entry(node, uids[name]).write_text('{"what":"dray driver cl')
            await node.remove_claim("lost")
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                assert node.log_text.count("the claim counts as begun") == 3
                assert len(list((node.state / "damaged").iterdir())) == 3
                assert await agent.prepare_ok(uids["fine"], "fine")
                assert gpu.calls == []
                assert await agent.prepare_ok(uids["again"], "again")
                await agent.unprepare_ok(uids["back"], "back")
                await agent.unprepare_ok(uids["lost"], "lost")
                assert gpu.calls == [("prepare", "again"), ("unprepare", "back"), ("unprepare", "lost")]
                assert [len(claim.devices) for _, claim in gpu.received] == [1, 1, 0]
                assert set(node.cdi()) == {f"{DRIVER}_{uids[name]}.json" for name in ("again", "fine")}

    asyncio.run(scenario())


def test_damage_while_running_is_logged_and_does_not_stop_other_claims() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            one, two = await node.create_claim("one"), await node.create_claim("two", "gpu-1")
            await agent.prepare_ok(one, "one")
            _entry(node, one).write_text("")
            assert await agent.prepare_ok(two, "two")
            assert "the claim counts as begun" in node.log_text
            assert await agent.prepare_ok(one, "one")

    asyncio.run(scenario())


def test_an_entry_of_a_later_version_is_set_aside_too() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
            StateFile("dray driver claim", 7).write(_entry(node, uid), {"later": "members"})
            async with node.run_driver() as agent:
                assert "a later dray wrote it" in node.log_text
                assert await agent.prepare_ok(uid, "c")

    asyncio.run(scenario())


def test_stray_cdi_files_of_the_driver_are_removed_and_others_stay() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            node.options.cdi.mkdir()
            for name in (f"{DRIVER}_1234.json", f".{DRIVER}_1234.json.77", "other.example.com_1.json"):
                (node.options.cdi / name).write_text("{}")
            async with node.run_driver():
                assert list(node.cdi()) == ["other.example.com_1.json"]
                assert "no prepared claim has this CDI file: removed" in node.log_text

    asyncio.run(scenario())


def test_names_that_lead_elsewhere_stay_inside_the_directory() -> None:
    async def scenario() -> None:
        class Trusting(Gpu):
            """Says whatever the claim is called."""

            def prepare(self, claim: Claim) -> Any:
                return [Ready(got, env={"NAME": "../../x\n", "GPU": got.device}) for got in claim.devices]

        async with open_driver_node() as node, node.run_driver(Trusting()) as agent:
            for uid in ("../../escape", "a/b", "x\n.json", "", ".."):
                error = (await agent.prepare((uid, "none")))[uid].error
                assert "there is no such claim" in error
                assert (await agent.unprepare((uid, "none")))[uid].error == ""
            real = await node.create_claim("c")
            await agent.prepare_ok(real, "c")
            assert list(node.cdi()) == [f"{DRIVER}_{real}.json"]
            assert sorted(each.name for each in node.root.iterdir()) == ["cdi", "p", "r"]

    asyncio.run(scenario())


def test_reconciling_waits_for_an_api_that_does_not_answer() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
            await node.remove_claim("c")
            inner, node.transport.inner = node.transport.inner, None
            gpu = Gpu()
            async with node.run_driver(gpu, until_published=False):
                await wait_until(lambda: _now("cannot tell yet whether claims are gone" in node.log_text))
                assert gpu.calls == []
                node.transport.inner = inner
                await wait_until(lambda: _now(gpu.calls), lambda calls: calls == [("unprepare", "c")])
                await wait_until(lambda: _now(node.cdi()), lambda files: not files)

    asyncio.run(scenario())


def _entry(node: DriverNode, uid: str) -> Any:
    return node.state / "prepared" / f"{uid}.json"


async def _now(value: Any) -> Any:
    return value
