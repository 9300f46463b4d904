"""The claim office of a node when the server is away, is another one, or has classic claims."""

from __future__ import annotations

import asyncio

import pytest

from dray.client.errors import NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.node.claims.record import NodeClaimStage
from tests.contract.classic import classic_claim, classic_class
from tests.unit.node.claims.node_site import GPU, MemoryDriver, site, why

CLASSIC = get_kind("ResourceClaim.cdi.k8s.io")
PREPARE, UNPREPARE = ("prepare", ("c",)), ("unprepare", ("c",))


# --- the server ---


@pytest.mark.req("K3063-186")
async def test_pods_that_are_ready_stay_so_while_the_server_is_away(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.claimed("c")
        await here.claimed("d")
        a, b = await here.bound("a", "c"), await here.bound("b", "d")
        await here.ready(a)
        here.cut()
        await here.ready(a)
        assert why(await here.office.prepare(b))[0] == "ClaimNotReadable"
        assert here.gpu.calls == [PREPARE]


async def test_nothing_is_prepared_that_the_server_does_not_know_of(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.claimed("c")
        a = await here.bound("a", "c")
        here.cut("preparations", methods="POST")
        assert why(await here.office.prepare(a))[0] == "PreparationNotWritten"
        assert here.gpu.calls == []
        here.mend()
        await here.ready(a)
        assert here.gpu.calls == [PREPARE]


async def test_pods_end_while_the_server_is_away_and_it_is_told_later(tmp_path):
    async with site(tmp_path) as here:
        async with here.agent():
            await here.claimed("c")
            a = await here.bound("a", "c")
            await here.ready(a)
            here.cut()
            await here.released(a)
            assert here.gpu.hands == set()
            assert here.office.record.claims[0].state is NodeClaimStage.LETTING_GO
        assert await here.standing() == ["c"]
        here.mend()
        async with here.agent():
            await here.nothing_left()


async def test_a_claim_that_the_server_does_not_know_to_be_free_yet_can_be_used_again(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.claimed("c")
        a, b = await here.bound("a", "c"), await here.bound("b", "c")
        await here.ready(a)
        here.cut("preparations", methods="DELETE")
        await here.released(a)
        await here.ready(b)
        assert here.gpu.calls == [PREPARE, UNPREPARE, PREPARE]
        here.mend()
        here.office.retry_now()
        await asyncio.sleep(0.05)
        assert await here.standing() == ["c"]
        await here.released(b)
        await here.nothing_left()


async def test_a_server_without_preparations_is_a_server_without_quarantine(tmp_path):
    async with site(tmp_path) as here:

        async def unknown(request):
            if "dray.dev" in request.path:
                raise NotFoundError(404, {"message": "the server could not find the requested resource"})

        here.transport.before = unknown
        async with here.agent():
            await here.claimed("c")
            a = await here.bound("a", "c")
            await here.ready(a)
            assert await here.standing() == []
        here.checkpoint.unlink()
        async with here.agent(a):  # without a word in the API, the pods that are bound here count
            assert here.office.record.claims[0].state is NodeClaimStage.PREPARING
            await here.ready(a)
            await here.released(a)
            assert here.office.record.claims == ()
        assert here.gpu.calls == [PREPARE, PREPARE, UNPREPARE]


async def test_a_record_that_cannot_be_written_calls_nobody(tmp_path):
    async with site(tmp_path) as here:
        here.checkpoint = tmp_path / "state" / "claims.json"
        here.checkpoint.parent.mkdir()
        async with here.agent():
            await here.claimed("c")
            a = await here.bound("a", "c")
            here.checkpoint.unlink()
            here.checkpoint.parent.rmdir()
            assert why(await here.office.prepare(a))[0] == "CheckpointNotWritten"
            assert here.gpu.calls == []
            here.checkpoint.parent.mkdir()
            await here.ready(a)
            here.checkpoint.unlink()
            here.checkpoint.parent.rmdir()
            assert why(await here.office.release(a.metadata.uid))[0] == "CheckpointNotWritten"
            assert here.gpu.calls == [PREPARE]
            here.checkpoint.parent.mkdir()
            await here.released(a)
            await here.nothing_left()


# --- classic claims ---


async def classic(here, name: str = "c") -> None:
    """A classic claim that its driver allocated."""
    await here.make(classic_class(driver=GPU), classic_claim(name))
    status = {"phase": "Allocated", "driverName": GPU}
    await here.client.patch(CLASSIC, name, MergePatch({"status": status}), "default", subresource="status")


async def reserve_classic(here, name: str, owner: str) -> None:
    uid = (await here.pod(owner)).metadata.uid
    users = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid}]
    change = MergePatch({"status": {"reservedFor": users}})
    await here.client.patch(CLASSIC, name, change, "default", subresource="status")


@pytest.mark.parametrize("lost", [False, True])
async def test_a_classic_claim_goes_to_its_driver_and_comes_back_with_what_it_returned(tmp_path, lost):
    async with site(tmp_path) as here:
        old = MemoryDriver(GPU, classic=True)
        here.registered.drivers.append(old)
        await classic(here)
        a = await here.bound("a", "c", reserved=False)
        async with here.agent():
            assert why(await here.office.prepare(a))[0] == "ClaimNotReserved"
            await reserve_classic(here, "c", "a")
            await here.ready(a)
            [container] = a.spec.containers
            [name] = here.office.list_cdi_names(a.metadata.uid, container)
        if lost:
            here.checkpoint.unlink()
        async with here.agent(a):
            await here.ready(a)
            await here.released(a)
            assert old.refs[0].cdi == (name,)
            assert here.office.record.claims == ()
        assert old.hands == set()
        assert here.gpu.calls == []
        assert await here.standing() == []


@pytest.mark.req("K3063-124")
async def test_a_classic_claim_that_is_not_allocated_is_refused(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.make(classic_class(driver=GPU), classic_claim("c"))
        a = await here.bound("a", "c", reserved=False)
        reason, message = why(await here.office.prepare(a))
        assert reason == "ClaimNotAllocated"
        assert "`Pending`" in message
