"""Preparations that are written together, or with other writes: deferred, committed, refused, interrupted."""

from __future__ import annotations

import asyncio

import pytest

from dray.api.core import Pod
from dray.client.patches import MergePatch
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.node.claims.record import DriverPart, RecordedClaim
from tests.unit.node.claims.node_site import GPU, POD, Died, Document, Site, site


def note_end(pod: Pod) -> ObjectTransaction:
    """The other write of the transaction."""
    return ObjectTransaction().patch(
        Pod, pod.metadata.name, MergePatch({"status": {"message": "over"}}), "default", subresource="status"
    )


async def read_message(here: Site, name: str) -> str:
    found: Document = await here.client.get(POD, name, "default")
    return str(found["status"].get("message", ""))


async def release(here: Site, pod: Pod) -> None:
    assert await here.preparer.release(pod.metadata.uid, defer_withdrawal=True) is None


async def commit(here: Site, pod: Pod) -> bool:
    return await here.preparer.commit_withdrawal(pod.metadata.uid, note_end(pod))


async def test_a_deferred_preparation_is_deleted_with_the_other_writes(tmp_path):
    async with site(tmp_path) as here:
        here.transport.transactions = True
        for name in ("c", "d"):
            await here.create_claim(name)
        a = await here.create_bound_pod("a", "c", "d")
        async with here.agent() as preparer:
            await here.prepare_all(a)
            await release(here, a)
            assert here.gpu.prepared == set()
            assert await preparer._releaser.process_pending()
            assert await here.list_announced() == ["c", "d"]
            before = here.transport.count("DELETE")
            assert await commit(here, a)
            assert (await here.list_announced(), await read_message(here, "a")) == ([], "over")
            await here.wait_until_empty()
            assert here.transport.count("DELETE") == before


async def test_without_transactions_nothing_is_written_and_the_releaser_goes_on(tmp_path):
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(a)
            await release(here, a)
            assert not await commit(here, a)
            assert await read_message(here, "a") == ""
            await here.wait_until_empty()


async def test_a_withdrawal_that_is_not_committed_is_resumed(tmp_path):
    async with site(tmp_path) as here:
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent() as preparer:
            await here.prepare_all(a)
            await release(here, a)
            preparer.resume_withdrawal(a.metadata.uid)
            await here.wait_until_empty()


async def test_a_claim_that_the_next_pod_uses_keeps_its_preparation(tmp_path):
    async with site(tmp_path) as here:
        here.transport.transactions = True
        for name in ("c", "d"):
            await here.create_claim(name)
        a, b = await here.create_bound_pod("a", "c", "d"), await here.create_bound_pod("b", "c")
        async with here.agent():
            await here.prepare_all(a)
            await release(here, a)
            await here.prepare_all(b)
            assert await commit(here, a)
            assert (await here.list_announced(), here.gpu.prepared) == (["c"], {"c"})
            await here.release_all(b)
            await here.wait_until_empty()


async def test_a_claim_that_the_next_pod_is_just_preparing_is_not_waited_for(tmp_path):
    async with site(tmp_path) as here:
        here.transport.transactions = True
        await here.create_claim("c")
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c")
        async with here.agent():
            await here.prepare_all(a)
            await release(here, a)
            here.gpu.open.clear()
            here.gpu.reached.clear()
            preparing = asyncio.create_task(here.preparer.prepare(b))
            await here.gpu.reached.wait()
            # Only one write is left, which needs no transaction.
            assert not await commit(here, a)
            assert await here.list_announced() == ["c"]
            here.gpu.open.set()
            await preparing
            await here.release_all(b)
            await here.wait_until_empty()


@pytest.mark.parametrize("point", ["announcement withdrawn", "let go, not kept", "let go, kept"])
async def test_an_agent_that_dies_after_the_transaction_leaves_nothing(tmp_path, point):
    async with site(tmp_path) as here:
        here.transport.transactions = True
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent(running=False):
            await here.prepare_all(a)
            await release(here, a)
            here.crash_at = point
            with pytest.raises(Died):
                await commit(here, a)
        here.crash_at = ""
        assert await here.list_announced() == []
        async with here.agent():
            await here.wait_until_empty()


async def test_an_agent_that_dies_before_the_transaction_deletes_the_preparation_later(tmp_path):
    async with site(tmp_path) as here:
        here.transport.transactions = True
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        async with here.agent(running=False):
            await here.prepare_all(a)
            await release(here, a)
        assert await here.list_announced() == ["c"]
        async with here.agent():
            await here.wait_until_empty()


@pytest.mark.parametrize("transactions", [True, False])
async def test_the_claims_of_a_pod_are_announced_in_one_call(tmp_path, transactions):
    async with site(tmp_path) as here:
        here.transport.transactions = transactions
        for name in ("c", "d"):
            await here.create_claim(name)
        a = await here.create_bound_pod("a", "c", "d")
        async with here.agent():
            await here.prepare_all(a)
            assert await here.list_announced() == ["c", "d"]
            assert here.transport.count("POST", "preparations") == (0 if transactions else 2)
            assert here.transport.count("POST", "transactions") == (1 if transactions else 0)
            await here.release_all(a)
            await here.wait_until_empty()


async def test_an_announcement_that_exists_already_does_not_keep_the_others_from_being_made(tmp_path):
    """An earlier agent announced one of the two, and its record is lost."""
    async with site(tmp_path) as here:
        here.transport.transactions = True
        await here.create_claim("c")
        d = await here.create_claim("d")
        a = await here.create_bound_pod("a", "c", "d")
        async with here.agent():
            recorded = RecordedClaim(
                uid=d.metadata.uid, namespace="default", name="d", parts=(DriverPart(driver=GPU),)
            )
            assert await here.preparer._preparations.announce([recorded]) == ""
            assert await here.list_announced() == ["d"]
            await here.prepare_all(a)
            assert await here.list_announced() == ["c", "d"]
            await here.release_all(a)
            await here.wait_until_empty()
