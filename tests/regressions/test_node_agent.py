"""Faults that node agents have had elsewhere, by their row in the list of regressions: what concerns claims.

Each test says what went wrong elsewhere. Drivers are in memory, the server is a real one, and the agent has
the rights of a node and no others.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from dray.api.resource import ResourceClaim
from dray.client.patches import MergePatch
from dray.node.claims.checkpoint import Checkpoint
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.record import NodeClaimStage
from tests.contract.controlled import by_template, pod, template
from tests.contract.documents import claim, owner, resource_slice
from tests.unit.node.claims.node_site import GPU, NIC, NODE, POD, Site, result, site, why


async def made_by_template(here: Site, name: str = "p") -> str:
    """A pod whose claim was made from a template, ready to run; the name of the claim."""
    await here.make(template("t"))
    document = await here.make(pod(name, by_template("gpu")))
    made = claim(f"{name}-gpu", ownerReferences=[owner(document, controller=True)])
    await here.make(made)
    await here.set_allocation(f"{name}-gpu", result())
    await here.reserve(f"{name}-gpu", name)
    said = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}}
    await here.client.patch(POD, name, MergePatch(said), "default", subresource="status")
    await here.bind(name, NODE)
    return f"{name}-gpu"


async def test_k01_claims_are_given_back_when_a_client_wiped_them_from_the_status(tmp_path, monkeypatch):
    """Another client wrote a pod's status without its claims; nothing was unprepared any more."""
    # The server keeps the claims of such a status; older ones did not.
    monkeypatch.setattr("dray.server.registry.pod_strategy._KEPT_STATUS", ())
    async with site(tmp_path) as here:
        await made_by_template(here)
        async with here.agent():
            seen = await here.pod("p")
            await here.prepare_all(seen)
            wiped: dict[str, dict[str, list[str]]] = {"status": {"resourceClaimStatuses": []}}
            await here.client.patch(POD, "p", MergePatch(wiped), "default", subresource="status")
            seen = await here.pod("p")
            assert seen.status.resource_claim_statuses == ()
            await here.prepare_all(seen)  # containers that start again need nobody's word
            await here.release_all(seen)
            assert here.gpu.calls == [("prepare", ("p-gpu",)), ("unprepare", ("p-gpu",))]
            await here.wait_until_empty()


async def test_k02_a_pod_that_was_refused_leaves_the_devices_of_others_alone(tmp_path):
    """A pod that shared a claim failed its checks; its deletion unprepared the claim of the running one."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        b = await here.create_bound_pod("b", "c", reserved=False)
        await here.prepare_all(a)
        assert why(await here.preparer.prepare(b))[0] == "ClaimNotReserved"
        await here.release_all(b)
        assert here.gpu.calls == [("prepare", ("c",))]
        assert here.gpu.prepared == {"c"}
        assert await here.preparer.prepare(a) == ClaimsReady()


async def test_k02_a_pod_that_joined_and_left_leaves_the_devices_of_others_alone(tmp_path):
    """The same with a pod that got as far as using the claim."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        await here.create_claim("d", result(NIC, "nic-0"))
        a, b = await here.create_bound_pod("a", "c"), await here.create_bound_pod("b", "c", "d")
        here.nic.fails["prepare"] = "no link"
        await here.prepare_all(a)
        assert why(await here.preparer.prepare(b))[0] == "PrepareFailed"
        await here.release_all(b)
        assert here.gpu.prepared == {"c"}
        assert here.gpu.calls == [("prepare", ("c",))]


async def test_k03_a_new_pod_waits_until_the_claim_is_given_back_and_prepares_anew(tmp_path):
    """A pod that came while the last user was unpreparing started on devices that were being taken down."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        await here.prepare_all(a)
        here.gpu.open.clear()
        here.gpu.reached.clear()
        leaving = asyncio.create_task(here.preparer.release(a.metadata.uid))
        await here.gpu.reached.wait()
        b = await here.create_bound_pod("b", "c")
        coming = asyncio.create_task(here.preparer.prepare(b))
        await asyncio.sleep(0.05)
        assert not coming.done()
        assert here.gpu.calls == [("prepare", ("c",)), ("unprepare", ("c",))]
        here.gpu.open.set()
        assert await leaving is None
        assert await coming == ClaimsReady()
        assert here.gpu.calls == [("prepare", ("c",)), ("unprepare", ("c",)), ("prepare", ("c",))]
        assert await here.list_announced() == ["c"]


async def test_k03_a_new_pod_waits_while_the_driver_does_not_let_go(tmp_path):
    """The same when unpreparing fails: the claim is not half given back, half in use."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        await here.prepare_all(a)
        here.gpu.fails["unprepare"] = "busy"
        assert why(await here.preparer.release(a.metadata.uid))[0] == "UnprepareFailed"
        b = await here.create_bound_pod("b", "c")
        reason, message = why(await here.preparer.prepare(b))
        assert reason == "ClaimBeingReleased"
        assert "claim default/c" in message
        here.gpu.fails.clear()
        waiting = asyncio.create_task(here.preparer.wait_for_retry(b.metadata.uid))
        await asyncio.sleep(0)
        await here.release_all(a)
        await asyncio.wait_for(waiting, 10)
        await here.prepare_all(b)


async def test_k04_devices_are_replaced_and_not_appended_when_a_driver_is_asked_again(tmp_path):
    """With one driver failing, each retry appended the devices of the other; the checkpoint grew."""
    async with site(tmp_path) as here:
        await here.create_claim("c", result(), result(NIC, "nic-0"))
        async with here.agent():
            a = await here.create_bound_pod("a", "c")
            here.nic.fails["prepare"] = "no link"
            for _ in range(5):
                assert why(await here.preparer.prepare(a)) == (
                    "PrepareFailed",
                    f"driver {NIC} did not prepare claim default/c: no link",
                )
            record = Checkpoint(here.checkpoint).load()
            for _ in range(5):
                await here.preparer.prepare(a)
            assert Checkpoint(here.checkpoint).load() == record == here.preparer.record
        async with here.agent(a):
            here.nic.fails.clear()
            await here.prepare_all(a)
            held = here.preparer.record.claims[0]
            assert [(part.driver, len(part.devices)) for part in held.parts] == [(GPU, 1), (NIC, 1)]
            assert here.gpu.calls == [("prepare", ("c",))]  # who said yes is not asked again
            assert len(here.nic.calls) == 11


async def test_k05_a_pod_with_one_prepared_and_one_new_claim_gets_both(tmp_path):
    """The new claim of a pod was skipped because another of its claims was prepared already."""
    async with site(tmp_path) as here, here.agent():
        for name in ("old", "new"):
            await here.create_claim(name)
        a, b = await here.create_bound_pod("a", "old"), await here.create_bound_pod("b", "old", "new")
        await here.prepare_all(a, b)
        assert here.gpu.calls == [("prepare", ("old",)), ("prepare", ("new",))]
        await here.release_all(a)
        await here.release_all(b)
        assert sorted(here.gpu.calls[-1][1]) == ["new", "old"]
        await here.wait_until_empty()


async def test_k06_a_pod_is_deleted_though_its_driver_never_came(tmp_path):
    """A pod whose driver had never registered could not be deleted: the agent waited for the driver."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        here.registered.drivers.clear()
        a = await here.create_bound_pod("a", "c")
        reason, message = why(await here.preparer.prepare(a))
        assert (reason, GPU in message) == ("DriverNotRegistered", True)
        await here.release_all(a)
        assert here.preparer.record.claims == ()
        assert await here.list_announced() == []


async def test_k06_a_driver_that_may_have_been_asked_is_waited_for(tmp_path):
    """The other side of the row: a call that may have gone out is a claim that may be prepared."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        here.gpu.silent = True
        assert why(await here.preparer.prepare(a))[0] == "PrepareFailed"
        here.registered.drivers.clear()
        assert why(await here.preparer.release(a.metadata.uid))[0] == "DriverNotRegistered"
        here.registered.drivers.append(here.gpu)
        here.gpu.silent = False
        await here.release_all(a)
        await here.wait_until_empty()


async def test_k07_a_driver_that_is_gone_blocks_visibly_until_somebody_gives_up(tmp_path):
    """A pod hung in deletion for ever, without a word, because the driver of its claim was uninstalled."""
    async with site(tmp_path) as here:
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            await here.prepare_all(a)
            here.registered.drivers.clear()
            for _ in range(3):
                reason, message = why(await here.preparer.release(a.metadata.uid))
                assert reason == "DriverNotRegistered"
                assert all(word in message for word in (GPU, "default/c", "dray.dev/abandon-devices=true"))
            assert await here.preparer.release(a.metadata.uid, abandon=True) is None
            await here.until(here.list_announced, lambda found: not found)
        assert len(await here.told("FailedUnprepareDynamicResources")) == 1
        [note] = await here.told("DevicesAbandoned")
        assert GPU in note
        assert "default/c" in note


async def test_k07_the_node_may_say_that_devices_are_given_up(tmp_path):
    """One annotation for a whole node whose drivers do not come back."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        a = await here.create_bound_pod("a", "c")
        await here.prepare_all(a)
        here.registered.drivers.clear()
        assert why(await here.preparer.release(a.metadata.uid))[0] == "DriverNotRegistered"
        here.notes["dray.dev/abandon-devices"] = "true"
        await here.release_all(a)
        await here.until(here.list_announced, lambda found: not found)


async def test_k08_claims_of_a_pod_that_was_deleted_by_force_are_given_back(tmp_path):
    """With a grace period of 0 the pod object was gone at once, and its claims stayed prepared."""
    async with site(tmp_path) as here:
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            await here.prepare_all(a)
            await here.delete("a")
        # The agent was away when it happened: it still knows whom to release, and which claim it was.
        async with here.agent():
            assert list(here.preparer.list_users()) == [a.metadata.uid]
            await here.client.delete(ResourceClaim, "c", "default")
            await here.release_all(a)
            assert here.gpu.calls[-1] == ("unprepare", ("c",))
            await here.wait_until_empty()
            await here.create_claim("d", result(device="gpu-0"))
            b = await here.create_bound_pod("b", "d")
            await here.prepare_all(b)


async def test_k11_everything_is_prepared_again_after_a_reboot(tmp_path):
    """After a reboot the checkpoint said prepared, but what drivers had written to memory was gone."""
    async with site(tmp_path) as here:
        await here.create_claim("c", result(), result(NIC, "nic-0"))
        a = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(a)
        async with here.agent(a):
            await here.prepare_all(a)
            assert len(here.gpu.calls) == 1  # the agent alone started again: nothing to do
        here.boot = "boot-2"
        async with here.agent(a):
            assert here.preparer.record.claims[0].state is NodeClaimStage.PREPARING
            await here.prepare_all(a)
            assert here.gpu.calls == here.nic.calls == [("prepare", ("c",))] * 2


async def test_k13_a_failure_is_reported_once_with_driver_and_cause(tmp_path):
    """A failing driver brought an event for each retry, or none at all, or pages of text."""
    async with site(tmp_path) as here:
        async with here.agent():
            await here.create_claim("c")
            a = await here.create_bound_pod("a", "c")
            for attempt in range(5):
                here.gpu.fails["prepare"] = f"no power after {attempt}.5s\n" + "x" * 5000
                await here.preparer.prepare(a)
        [note] = await here.told("FailedPrepareDynamicResources")
        assert note.startswith(f"driver {GPU} did not prepare claim default/c: no power after")
        assert "\n" not in note
        assert len(note.encode()) <= 400


async def test_k16_two_drivers_serve_one_request(tmp_path):
    """What one driver returned for a request overwrote what the other had returned."""
    async with site(tmp_path) as here, here.agent():
        made = await here.create_claim("c", result(), result(NIC, "gpu-0"))
        a = await here.create_bound_pod("a", "c")
        await here.prepare_all(a)
        [container] = a.spec.containers
        assert here.preparer.list_cdi_names(a.metadata.uid, container) == (
            f"{GPU}/claim={made.metadata.uid}",
            f"{NIC}/claim={made.metadata.uid}",
        )


async def test_k17_a_pod_that_the_node_runs_by_itself_has_no_claims(tmp_path):
    """A static pod with claims was started, with devices that nobody had reserved for it."""
    async with site(tmp_path) as here, here.agent():
        await here.create_claim("c")
        # No server accepts such a pod; the agent does not depend on it.
        bound = await here.create_bound_pod("a", "c")
        notes = {"kubernetes.io/config.mirror": "x"}
        mirror = replace(bound, metadata=replace(bound.metadata, annotations=notes))
        answer = await here.preparer.prepare(mirror)
        assert why(answer)[0] == "StaticPodWithClaims"
        assert getattr(answer, "is_final", False)
        assert here.gpu.calls == []


@pytest.mark.parametrize("says", ["unknown device", "Device gone: fell off the bus"])
async def test_k20_a_device_that_vanished_is_reported_as_gone(tmp_path, says):
    """A device that was allocated and then unplugged brought an error that nobody understood."""
    async with site(tmp_path) as here:
        async with here.agent():
            await here.make(resource_slice("s", NODE, devices=1))
            await here.create_claim("c", result(device="gpu-7"))
            a = await here.create_bound_pod("a", "c")
            here.gpu.fails["prepare"] = says
            reason, message = why(await here.preparer.prepare(a))
            assert reason == "DeviceGone"
            assert says in message
            assert "fell off" in message or f"{NODE}/gpu-7" in message
        assert len(await here.told("FailedPrepareDynamicResources")) == 1


async def test_k20_a_device_that_is_published_is_not_gone(tmp_path):
    """The other side of the row: any other error stays what it is."""
    async with site(tmp_path) as here, here.agent():
        await here.make(resource_slice("s", NODE, devices=1))
        await here.create_claim("c", result(device="gpu-0"))
        a = await here.create_bound_pod("a", "c")
        here.gpu.fails["prepare"] = "no power"
        assert why(await here.preparer.prepare(a))[0] == "PrepareFailed"
