"""Pods that must not run with the claims they name."""

from __future__ import annotations

import pytest

from dray.api.resource import ResourceClaim
from dray.client.patches import MergePatch
from tests.contract.controlled import by_template, pod, template
from tests.contract.documents import claim
from tests.unit.node.claims.node_site import GPU, NIC, NODE, POD, result, site, why

PREPARE = ("prepare", ("c",))


@pytest.mark.req("K3063-078", "K3063-124", "K3063-171")
async def test_a_pod_without_a_reservation_does_not_run_and_has_an_event_with_the_reason(tmp_path):
    async with site(tmp_path) as here:
        async with here.agent():
            await here.create_claim("c")
            a, b = (
                await here.create_bound_pod("a", "c"),
                await here.create_bound_pod("b", "c", reserved=False),
            )
            await here.prepare_all(a)
            reason, message = why(await here.preparer.prepare(b))
            assert reason == "ClaimNotReserved"
            assert message.startswith("claim default/c is not reserved for this pod, but for a;")
            assert here.gpu.calls == [PREPARE]
            await here.prepare_all(a)
        assert await here.told("FailedPrepareDynamicResources") == [message]


@pytest.mark.req("K3063-124")
async def test_a_pod_whose_claim_does_not_exist_does_not_run_and_has_an_event_with_the_reason(tmp_path):
    async with site(tmp_path) as here:
        async with here.agent():
            a = await here.create_bound_pod("a", "c", reserved=False)
            answer = why(await here.preparer.prepare(a))
            assert answer == ("ClaimMissing", "claim default/c of entry `e0` does not exist")
        assert await here.told("FailedPrepareDynamicResources") == [answer[1]]


async def test_a_claim_of_another_pod_of_that_name_is_refused(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.make(template("t"), pod("a", by_template("gpu")))
        a = await here.pod("a")
        assert why(await here.preparer.prepare(a))[0] == "ClaimNotMade"
        await here.create_claim("a-gpu")
        said = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu"}]}}
        await here.client.patch(POD, "a", MergePatch(said), "default", subresource="status")
        await here.bind("a", NODE)
        assert why(await here.preparer.prepare(await here.pod("a")))[0] == "ClaimNotOwned"
        assert here.gpu.calls == []


async def test_a_claim_on_another_node_is_refused(tmp_path):
    async with site(tmp_path) as here, here.agent():
        elsewhere = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
        nodes = {"nodeSelectorTerms": [{"matchFields": [elsewhere]}]}
        await here.create_claim("c", nodeSelector=nodes)
        assert (
            why(await here.preparer.prepare(await here.create_bound_pod("a", "c")))[0] == "ClaimOnOtherNode"
        )
        labelled = {"key": "zone", "operator": "In", "values": ["here"]}
        await here.create_claim("d", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [labelled]}]})
        await here.prepare_all(await here.create_bound_pod("b", "d"))


async def test_a_claim_that_is_being_deleted_takes_no_new_pods(tmp_path):
    async with site(tmp_path) as here, here.agent():
        await here.make(claim("c", finalizers=["example.com/keep"]))
        await here.set_allocation("c", result())
        a = await here.create_bound_pod("a", "c")
        await here.client.delete(ResourceClaim, "c", "default")
        assert why(await here.preparer.prepare(a))[0] == "ClaimBeingDeleted"


async def test_a_device_that_another_claim_has_on_this_node_is_refused_naming_it(tmp_path):
    """Our ledger allocates nothing twice; the node does not rely on that, for not every server has one."""
    async with site(tmp_path, ledger=False) as here, here.agent():
        await here.create_claim("c", result(device="gpu-0"))
        await here.create_claim("d", result(device="gpu-0"))
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "d")
        await here.prepare_all(a)
        reason, message = why(await here.preparer.prepare(b))
        assert reason == "DeviceHeld"
        assert message == (
            f"device {GPU}/{NODE}/gpu-0 of claim default/d is held by claim default/c "
            "on this node (used by default/a)"
        )
        assert here.gpu.calls == [PREPARE]
        here.gpu.fails["unprepare"] = "busy"
        assert why(await here.preparer.release(a.metadata.uid))[0] == "UnprepareFailed"
        assert why(await here.preparer.prepare(b))[0] == "ClaimBeingReleased"
        here.gpu.fails.clear()
        await here.release_all(a)
        await here.prepare_all(b)


async def test_shares_of_one_device_go_together_and_the_whole_device_does_not(tmp_path):
    async with site(tmp_path, ledger=False) as here, here.agent():
        shares = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2)]
        await here.create_claim("c", result(device="gpu-0", shareID=shares[0]))
        await here.create_claim("d", result(device="gpu-0", shareID=shares[1]))
        await here.create_claim("e", result(device="gpu-0"))
        for name, owner in (("c", "a"), ("d", "b")):
            await here.prepare_all(await here.create_bound_pod(owner, name))
        assert why(await here.preparer.prepare(await here.create_bound_pod("x", "e")))[0] == "DeviceHeld"


async def test_a_reallocated_claim_is_refused_while_the_old_devices_are_prepared(tmp_path):
    async with site(tmp_path, ledger=False) as here, here.agent():
        await here.create_claim("c", result(device="gpu-0"), result(NIC, "nic-0"))
        a = await here.create_bound_pod("a", "c")
        here.nic.fails["prepare"] = "no link"
        assert why(await here.preparer.prepare(a))[0] == "PrepareFailed"
        uid = (await here.claim("c")).metadata.uid
        await here.reserve("c")
        await here.client.patch(
            ResourceClaim, "c", MergePatch({"status": {"allocation": None}}), "default", subresource="status"
        )
        await here.set_allocation("c", result(device="gpu-1"))
        await here.reserve("c", "a")
        assert (await here.claim("c")).metadata.uid == uid
        assert why(await here.preparer.prepare(a))[0] == "ClaimAllocatedAnew"
        assert here.gpu.calls == [PREPARE]
