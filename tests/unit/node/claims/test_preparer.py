"""The claim preparer of a node, on a real server, with drivers in memory."""

from __future__ import annotations

import asyncio

import pytest

from dray.api.resource import ResourceClaim
from dray.client.errors import NotFoundError
from dray.client.patches import MergePatch
from dray.client.timing import TimeSource
from dray.node.claims.checkpoint import Checkpoint
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.record import ClaimsRecord, NodeClaimStage
from dray.node.plugins.driver_interface import DriverCallFailure, DriverCallFault
from tests.contract.controlled import by_name, by_template, pod, template
from tests.unit.node.claims.node_site import GPU, NIC, NODE, POD, result, site, why

PREPARE, UNPREPARE = ("prepare", ("c",)), ("unprepare", ("c",))


def on_disk(here) -> ClaimsRecord:
    loaded = Checkpoint(here.checkpoint).load()
    assert isinstance(loaded, ClaimsRecord)
    return loaded


async def run_another_pod(here) -> None:
    """Prepare and release a pod of the other driver: work that was started before has had its turn then."""
    await here.create_claim("other", result(NIC, "other"))
    other = await here.create_bound_pod("other", "other")
    await here.prepare_all(other)
    await here.release_all(other)


# --- the order of things ---


@pytest.mark.req("K3063-123", "K3063-127", "K3063-145")
async def test_a_claim_is_prepared_before_the_first_pod_and_released_after_the_last(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c")
        await here.prepare_all(a, b)
        assert here.gpu.calls == [PREPARE]
        await here.release_all(a)
        assert here.gpu.calls == [PREPARE]
        assert await here.list_announced() == ["c"]
        await here.release_all(b)
        assert here.gpu.calls == [PREPARE, UNPREPARE]
        await here.wait_until_empty()


async def test_what_is_asked_is_durable_and_announced_before_the_driver_hears_of_it(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        here.gpu.open.clear()
        asking = asyncio.create_task(here.preparer.prepare(a))
        await here.gpu.reached.wait()
        [held] = on_disk(here).claims
        assert (held.name, held.pod_uids, held.parts[0].state) == (
            "c",
            (a.metadata.uid,),
            NodeClaimStage.PREPARING,
        )
        assert await here.list_announced() == ["c"]
        here.gpu.open.set()
        assert await asking == ClaimsReady()
        assert on_disk(here).claims[0].state is NodeClaimStage.PREPARED
        here.gpu.open.clear()
        here.gpu.reached.clear()
        leaving = asyncio.create_task(here.preparer.release(a.metadata.uid))
        await here.gpu.reached.wait()
        assert on_disk(here).claims[0].state is NodeClaimStage.UNPREPARING
        assert await here.list_announced() == ["c"]
        here.gpu.open.set()
        assert await leaving is None
        await here.wait_until_empty()
        await here.until(lambda: _soon(on_disk(here).claims), lambda found: not found)


async def _soon(found):
    return found


async def test_claims_of_a_pod_go_to_a_driver_in_one_call_and_drivers_are_called_together(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        await here.create_claim("d", result(device="gpu-1"), result(NIC, "nic-0"))
        a = await here.create_bound_pod("a", "c", "d")
        here.nic.open.clear()
        asking = asyncio.create_task(here.preparer.prepare(a))
        await here.nic.reached.wait()
        await here.gpu.reached.wait()
        assert here.gpu.calls == [("prepare", ("c", "d"))]
        assert here.nic.calls == [("prepare", ("d",))]
        here.nic.open.set()
        assert await asking == ClaimsReady()
        await here.release_all(a)
        assert here.gpu.calls[1:] == [("unprepare", ("c", "d"))]
        await here.wait_until_empty()


async def test_two_pods_that_start_together_prepare_a_shared_claim_once(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        pods = [await here.create_bound_pod(f"p{number}", "c") for number in range(5)]
        assert await asyncio.gather(*map(here.preparer.prepare, pods)) == [ClaimsReady()] * 5
        assert here.gpu.calls == [PREPARE]
        ended = await asyncio.gather(*(here.preparer.release(each.metadata.uid) for each in pods))
        assert ended == [None] * 5
        assert here.gpu.calls == [PREPARE, UNPREPARE]


async def test_a_slow_driver_of_one_pod_does_not_keep_another_from_leaving(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        await here.create_claim("d", result(NIC, "nic-0"))
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c", "d")
        await here.prepare_all(a)
        here.nic.open.clear()
        slow = asyncio.create_task(here.preparer.prepare(b))
        await here.nic.reached.wait()
        await here.release_all(a)
        assert here.gpu.prepared == {"c"}
        here.nic.open.set()
        assert await slow == ClaimsReady()
        await here.release_all(b)
        await here.wait_until_empty()


async def test_a_pod_that_is_deleted_while_its_driver_is_asked_lets_go_after_the_answer(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        here.gpu.open.clear()
        asking = asyncio.create_task(here.preparer.prepare(a))
        await here.gpu.reached.wait()
        asking.cancel()
        await asyncio.wait((asking,))
        leaving = asyncio.create_task(here.preparer.release(a.metadata.uid))
        await run_another_pod(here)
        assert here.gpu.calls == [PREPARE]
        here.gpu.open.set()
        assert await leaving is None
        assert here.gpu.calls == [PREPARE, UNPREPARE]
        await here.wait_until_empty()


async def test_a_pod_that_waits_for_its_turn_when_it_is_deleted_never_begins(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c")
        here.gpu.open.clear()
        first = asyncio.create_task(here.preparer.prepare(a))
        await here.gpu.reached.wait()
        second = asyncio.create_task(here.preparer.prepare(b))
        await run_another_pod(here)
        second.cancel()
        await here.release_all(b)
        here.gpu.open.set()
        assert await first == ClaimsReady()
        assert here.preparer.record.claims[0].pod_uids == (a.metadata.uid,)


async def test_a_pod_without_claims_is_ready(tmp_path):
    async with site(tmp_path) as here, here.agent():
        a = await here.create_bound_pod("a")
        await here.prepare_all(a)
        await here.release_all(a)
        assert not here.preparer.is_held(a.metadata.uid)


async def test_an_entry_that_needs_no_claim_is_passed_over(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        await here.make(template("t"), pod("a", by_name("c"), by_template("none")))
        error = {"status": {"resourceClaimStatuses": [{"name": "none"}]}}
        await here.client.patch(POD, "a", MergePatch(error), "default", subresource="status")
        await here.reserve("c", "a")
        await here.bind("a", NODE)
        await here.prepare_all(await here.pod("a"))
        assert here.gpu.calls == [PREPARE]


# --- drivers that fail ---


@pytest.mark.req("K3063-135", "K3063-144", "K3063-146")
async def test_after_an_unknown_outcome_a_driver_is_called_again_or_to_unprepare(tmp_path):
    async with site(tmp_path) as here, here.agent():
        for name in ("c", "d"):
            await here.create_claim(name)
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "d")
        here.gpu.silent = True
        for each in (a, b):
            assert why(await here.preparer.prepare(each))[0] == "PrepareFailed"
        assert why(await here.preparer.release(b.metadata.uid))[0] == "UnprepareFailed"
        here.gpu.silent = False
        await here.prepare_all(a)
        await here.release_all(b)
        await here.release_all(a)
        asked = [call for call in here.gpu.calls if call[1] == ("d",)]
        assert asked == [("prepare", ("d",)), ("unprepare", ("d",)), ("unprepare", ("d",))]
        await here.wait_until_empty()


@pytest.mark.req("K3063-142")
async def test_a_claim_that_a_driver_does_not_know_is_looked_up_before_it_is_asked_again(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")

        async def unknown(claims):
            here.gpu.calls.append(("prepare", tuple(each.name for each in claims)))
            return {
                each.uid: DriverCallFailure(DriverCallFault.NOT_FOUND, "no such claim") for each in claims
            }

        here.gpu.prepare = unknown  # type: ignore[method-assign]
        for attempt in range(1, 4):
            assert why(await here.preparer.prepare(a))[0] == "PrepareFailed"
            assert len(here.gpu.calls) == attempt
            assert here.transport.count("GET", "resourceclaims/c") == attempt
        await here.reserve("c")
        await here.client.delete(ResourceClaim, "c", "default")
        await here.until(lambda: _gone(here, "c"))
        assert why(await here.preparer.prepare(a))[0] == "ClaimMissing"
        assert len(here.gpu.calls) == 3


async def _gone(here, name):
    try:
        found = await here.claim(name)
    except NotFoundError:
        return True
    if found.metadata.finalizers:
        await here.client.patch(
            ResourceClaim, name, MergePatch({"metadata": {"finalizers": None}}), "default"
        )
    return False


async def test_a_reply_without_an_entry_is_a_failure_with_that_message(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")

        async def nothing(_claims):
            return {}

        honest, here.gpu.prepare = here.gpu.prepare, nothing  # type: ignore[method-assign]
        assert "no entry for this claim" in why(await here.preparer.prepare(a))[1]
        here.gpu.prepare = honest  # type: ignore[method-assign]
        await here.prepare_all(a)


async def never(_seconds: float) -> None:
    await asyncio.Event().wait()


async def test_the_registration_of_a_driver_ends_the_waits_for_it(tmp_path):
    async with site(tmp_path) as here:
        here.time_source = TimeSource(sleep=never)
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            here.registered.drivers.clear()
            assert why(await here.preparer.prepare(a))[0] == "DriverNotRegistered"
            pausing = asyncio.create_task(here.preparer.wait_for_retry(a.metadata.uid))
            await asyncio.sleep(0.01)
            assert not pausing.done()
            here.registered.drivers.append(here.gpu)
            here.preparer.retry_now()
            await pausing
            await here.prepare_all(a)


async def test_the_release_of_a_claim_ends_the_waits_for_it(tmp_path):
    async with site(tmp_path) as here:
        here.time_source = TimeSource(sleep=never)
        async with here.agent():
            await here.create_claim("c")
            a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c")
            await here.prepare_all(a)
            here.gpu.fails["unprepare"] = "busy"
            assert why(await here.preparer.release(a.metadata.uid))[0] == "UnprepareFailed"
            assert why(await here.preparer.prepare(b))[0] == "ClaimBeingReleased"
            pausing = asyncio.create_task(here.preparer.wait_for_retry(b.metadata.uid))
            await asyncio.sleep(0.01)
            assert not pausing.done()
            here.gpu.fails.clear()
            await here.release_all(a)
            await pausing
            await here.prepare_all(b)


# --- numbers ---


async def test_claims_and_refusals_are_counted(tmp_path):
    async with site(tmp_path) as here, here.agent() as preparer:
        await here.create_claim("c")
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c", reserved=False)
        await here.prepare_all(a)
        await preparer.prepare(b)
        text = preparer._options.metrics.render().decode()
        for line in (
            f'dra_resource_claims_in_use{{driver_name="{GPU}"}} 1.0',
            'dray_node_prepared_claims{stage="prepared"} 1.0',
            'dray_node_refused_pods_total{reason="ClaimNotReserved"} 1.0',
            'dra_operations_duration_seconds_count{is_error="false",operation_name="PrepareResources"} 1.0',
        ):
            assert line in text
