"""The claim preparer when the server is unreachable or of another version, or has classic claims."""

from __future__ import annotations

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
        await here.create_claim("c")
        await here.create_claim("d")
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "d")
        await here.prepare_all(a)
        here.cut_connection()
        await here.prepare_all(a)
        assert why(await here.preparer.prepare(b))[0] == "ClaimNotReadable"
        assert here.gpu.calls == [PREPARE]


async def test_nothing_is_prepared_that_the_server_does_not_know_of(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        here.cut_connection("preparations", methods="POST")
        assert why(await here.preparer.prepare(a))[0] == "PreparationNotWritten"
        assert here.gpu.calls == []
        here.restore_connection()
        await here.prepare_all(a)
        assert here.gpu.calls == [PREPARE]


async def test_pods_end_while_the_server_is_away_and_preparations_are_deleted_later(tmp_path):
    async with site(tmp_path) as here:
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            await here.prepare_all(a)
            here.cut_connection()
            await here.release_all(a)
            assert here.gpu.prepared == set()
            assert here.preparer.record.claims[0].state is NodeClaimStage.LETTING_GO
        assert await here.list_announced() == ["c"]
        here.restore_connection()
        async with here.agent():
            await here.wait_until_empty()


async def test_a_claim_that_the_server_does_not_know_to_be_free_yet_can_be_used_again(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c")
        await here.prepare_all(a)
        here.cut_connection("preparations", methods="DELETE")
        await here.release_all(a)
        await here.prepare_all(b)
        assert here.gpu.calls == [PREPARE, UNPREPARE, PREPARE]
        here.restore_connection()
        here.preparer.retry_now()
        assert await here.preparer._releaser.process_pending()
        assert await here.list_announced() == ["c"]
        await here.release_all(b)
        await here.wait_until_empty()


async def test_a_server_without_preparations_is_a_server_without_quarantine(tmp_path):
    async with site(tmp_path) as here:

        async def unknown(request):
            if "dray.dev" in request.path:
                raise NotFoundError(404, {"message": "the server could not find the requested resource"})

        here.transport.before = unknown
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            await here.prepare_all(a)
            assert await here.list_announced() == []
        here.checkpoint.unlink()
        async with here.agent(a):  # without a word in the API, the pods that are bound here count
            assert here.preparer.record.claims[0].state is NodeClaimStage.PREPARING
            await here.prepare_all(a)
            await here.release_all(a)
            assert here.preparer.record.claims == ()
        assert here.gpu.calls == [PREPARE, PREPARE, UNPREPARE]


async def test_no_driver_is_called_while_the_record_cannot_be_written(tmp_path):
    async with site(tmp_path) as here:
        here.checkpoint = tmp_path / "state" / "claims.json"
        here.checkpoint.parent.mkdir()
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            here.checkpoint.unlink()
            here.checkpoint.parent.rmdir()
            assert why(await here.preparer.prepare(a))[0] == "CheckpointNotWritten"
            assert here.gpu.calls == []
            here.checkpoint.parent.mkdir()
            await here.prepare_all(a)
            here.checkpoint.unlink()
            here.checkpoint.parent.rmdir()
            assert why(await here.preparer.release(a.metadata.uid))[0] == "CheckpointNotWritten"
            assert here.gpu.calls == [PREPARE]
            here.checkpoint.parent.mkdir()
            await here.release_all(a)
            await here.wait_until_empty()


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
        a = await here.create_bound_pod("a", "c", reserved=False)
        async with here.agent():
            assert why(await here.preparer.prepare(a))[0] == "ClaimNotReserved"
            await reserve_classic(here, "c", "a")
            await here.prepare_all(a)
            [container] = a.spec.containers
            [name] = here.preparer.list_cdi_names(a.metadata.uid, container)
        if lost:
            here.checkpoint.unlink()
        async with here.agent(a):
            await here.prepare_all(a)
            await here.release_all(a)
            assert old.refs[0].cdi == (name,)
            assert here.preparer.record.claims == ()
        assert old.prepared == set()
        assert here.gpu.calls == []
        assert await here.list_announced() == []


@pytest.mark.req("K3063-124")
async def test_a_classic_claim_that_is_not_allocated_is_refused(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.make(classic_class(driver=GPU), classic_claim("c"))
        a = await here.create_bound_pod("a", "c", reserved=False)
        reason, message = why(await here.preparer.prepare(a))
        assert reason == "ClaimNotAllocated"
        assert "`Pending`" in message
