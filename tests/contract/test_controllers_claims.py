"""The claim controller against a real server: claims from their creation to their deletion.

It runs with the rights of its own role and no others, over every transport where that is cheap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims.actions import RecordClaims
from dray.claims.claim_names import FINALIZER, POD_CLAIM_NAME_ANNOTATION
from dray.client.errors import ConflictError, NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.controllers import kube_controllers
from dray.controllers.claim_actions import ClaimActionExecutor
from dray.controllers.runner import ControllerOptions, ControllerRunner
from dray.gates import GateSet
from tests.contract.controlled import POD, World, by_name, by_template, claim, pod, template, world
from tests.contract.documents import request
from tests.contract.servers import Reach, way

__all__ = ["way"]

WAY = "inside"


def inline(entry: str = "fpga") -> dict[str, Any]:
    """An entry with a classic template inside."""
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    return {"name": entry, "template": {"metadata": metadata, "spec": {"resourceClassName": "fpga"}}}


async def classic(here: World, name: str = "p-fpga") -> ClassicResourceClaim | None:
    try:
        return await here.client.get(ClassicResourceClaim, name, "default")
    except NotFoundError:
        return None


async def free(here: World, name: str) -> bool:
    found = await here.claim(name)
    return found.status.allocation is None and not found.status.reserved_for


@pytest.mark.req("K3063-039", "K3063-105")
async def test_a_pod_gets_its_claims_and_takes_them_along(way, tmp_path):
    async with world(way, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template("gpu"), by_template("nic")))
        names = await here.until_recorded("p", 2)
        owner = await here.pod("p")
        for entry, name in names.items():
            made = await here.claim(name)
            assert made.metadata.annotations[POD_CLAIM_NAME_ANNOTATION] == entry
            assert made.metadata.finalizers == (FINALIZER,)
            assert [ref.uid for ref in made.metadata.owner_references] == [owner.metadata.uid]
            assert name.startswith(f"p-{entry}-")
        await here.allocate(names["gpu"], "p")
        await here.bind("p")
        await here.delete("p")
        await here.until(here.claims, lambda left: left == [])


async def test_a_pod_costs_few_writes(tmp_path):
    """One creation per entry and one write of the pod; at its end each is marked and loses its finalizer."""
    async with world(WAY, tmp_path) as here, here.controlled():
        before = await revision(here)
        await here.make(template("t"), pod("p", by_template("gpu"), by_template("nic")))
        names = await here.until_recorded("p", 2)
        assert await revision(here) - before == 2 + 2 + 1
        for entry, name in names.items():
            await here.allocate(name, "p", device=entry)
        await here.bind("p")
        await here.stays_when_processed(here.claims)
        before = await revision(here)
        await here.delete("p")
        await here.until(here.claims, lambda left: left == [])
        # The pod; and for each claim the mark and the finalizer.
        assert await revision(here) - before == 1 + 2 * 2


async def revision(here: World) -> int:
    return int((await here.client.list(POD, "default")).resource_version)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_claim_that_was_made_goes_when_its_pod_ends(tmp_path, phase):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template()))
        names = await here.until_recorded("p")
        await here.allocate(names["gpu"], "p")
        await here.bind("p")
        await here.end("p", phase)
        await here.until(here.claims, lambda left: left == [])


@pytest.mark.req("K3063-106")
async def test_a_shared_claim_is_free_when_its_last_pod_is_gone(way, tmp_path):
    async with world(way, tmp_path) as here, here.controlled():
        await here.make(claim("c"), pod("p", by_name("c")), pod("q", by_name("c")))
        await here.allocate("c", "p", "q")
        await here.bind("p")
        await here.bind("q")
        await here.delete("p")
        left = await here.until(lambda: here.claim("c"), lambda found: len(found.status.reserved_for) == 1)
        assert left.status.reserved_for[0].name == "q"
        assert left.status.allocation is not None
        await here.delete("q")
        await here.until(lambda: free(here, "c"))
        assert (await here.claim("c")).metadata.deletion_timestamp is None


async def test_a_pod_that_is_being_stopped_keeps_its_devices(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(claim("c"), pod("p", by_name("c")))
        await here.allocate("c", "p")
        await here.bind("p")
        await here.end("p", "Running")
        await here.delete("p", grace_seconds=30)
        await here.stays_when_processed(lambda: here.claim("c"))
        await here.delete("p")
        await here.until(lambda: free(here, "c"))


async def test_a_pod_of_the_same_name_does_not_inherit_anything(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(template("t"), claim("c"), pod("p", by_name("c"), by_template("own")))
        first = await here.until_recorded("p")
        await here.allocate("c", "p")
        await here.bind("p")
        await here.delete("p")
        await here.make(pod("p", by_name("c"), by_template("own")))
        second = await here.until_recorded("p")
        assert first["own"] != second["own"]
        await here.until(lambda: free(here, "c"))
        await here.until(here.claims, lambda left: len(left) == 2)


async def test_a_claim_that_was_deleted_under_its_pod_is_made_again(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template()))
        first = await here.until_recorded("p")
        await here.client.delete(ResourceClaim, first["gpu"], "default")
        await here.until(lambda: here.recorded("p"), lambda found: found != first)
        names = await here.recorded("p")
        assert [each.metadata.name for each in await here.claims()] == [names["gpu"]]


async def test_devices_that_were_given_to_nobody_go_back_when_nobody_wants_them(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(claim("c"), pod("p", by_name("c")))
        change = MergePatch({"metadata": {"finalizers": [FINALIZER]}})
        await here.client.patch(ResourceClaim, "c", change, "default")
        await here.allocate("c")
        await here.stays_when_processed(lambda: here.claim("c"))
        await here.delete("p")
        await here.until(lambda: free(here, "c"))


async def failures(controllers: ControllerRunner) -> float:
    (line,) = [
        each
        for each in controllers.metrics.render().decode().splitlines()
        if each.startswith("resourceclaim_controller_create_failures_total ")
    ]
    return float(line.rpartition(" ")[2])


@pytest.mark.req("K3063-170", "K4816-114", "K3063-178")
async def test_a_claim_that_cannot_be_created_is_reported_and_tried_again(tmp_path):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "0"}},
    }
    async with world(WAY, tmp_path) as here, here.controlled() as controllers:
        await here.make(quota, template("t"), pod("p", by_template()))
        told = await here.until(lambda: here.told("FailedResourceClaimCreation"))
        assert "entry gpu: the claim cannot be created: " in told[0]
        assert "exceeded quota: few" in told[0]
        # It is tried again and again under names that nobody asked for, and said once.
        await here.until(lambda: failures(controllers), lambda count: count > 3)
        assert len(await here.told("FailedResourceClaimCreation")) == 1
        assert (await here.pod("p")).spec.node_name == ""
        numbers = controllers.metrics.render().decode()
        for name in (
            "resourceclaim_controller_create_failures_total",
            "resource_controller_create_failures_total",
        ):
            (line,) = [each for each in numbers.splitlines() if each.startswith(name + " ")]
            assert float(line.rpartition(" ")[2]) >= 1
        await here.client.delete(get_kind("ResourceQuota"), "few", "default")
        await here.until_recorded("p")


@pytest.mark.req("K4816-096")
async def test_a_template_that_is_no_longer_allowed_leaves_its_pod_waiting_and_says_so(tmp_path):
    """Stored while alternatives were on; then the server starts with them off."""
    either = template("t")
    either["spec"]["spec"]["devices"]["requests"] = [
        {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": "x"}]}
    ]
    off = GateSet.from_defaults().override({"DRAPrioritizedList": False})
    options = ServerProcessOptions(tmp_path / "server", str(tmp_path / "store.db"), port=0)
    async with open_server(options) as server:
        await World(Reach(WAY, server)).make(either)
    async with open_server(replace(options, gates=off)) as server:
        here = World(Reach(WAY, server))
        async with here.controlled():
            await here.make(pod("p", by_template()))
            told = await here.until(lambda: here.told("FailedResourceClaimCreation"))
            assert "entry gpu: the claim cannot be created: " in told[0]
            assert "spec.devices.requests[0]" in told[0]
            assert await here.recorded("p") == {}


@pytest.mark.req("K4816-111", "K4816-113", "K4816-115", "K4816-116", "K3063-177")
async def test_claims_are_counted(tmp_path):
    both = [{"name": "big", "deviceClassName": "x"}, {"name": "small", "deviceClassName": "y"}]
    either = claim("either", requests=[{"name": "gpu", "firstAvailable": both}])
    async with world(WAY, tmp_path) as here, here.controlled() as controllers:
        await here.make(template("t"), either, claim("plain", requests=[request()]), pod("p", by_template()))
        names = await here.until_recorded("p")
        await here.allocate(names["gpu"], "p", device="gpu-1")
        await here.allocate("either", "p", request="gpu/big", device="gpu-2")

        async def numbers() -> str:
            return controllers.metrics.render().decode()

        wanted = (
            'resourceclaim_controller_allocated_resource_claims{prioritized_list="true"} 1.0',
            'resourceclaim_controller_allocated_resource_claims{prioritized_list="false"} 1.0',
            'resourceclaim_controller_resource_claims{admin_access="false",allocated="false",'
            'prioritized_list="false",source=""} 1.0',
            'resourceclaim_controller_resource_claims{admin_access="false",allocated="true",'
            'prioritized_list="true",source=""} 1.0',
            'resourceclaim_controller_resource_claims{admin_access="false",allocated="true",'
            'prioritized_list="false",source="resource_claim_template"} 1.0',
            "resourceclaim_controller_create_total 1.0",
            "resource_controller_create_total 1.0",
            'resourceclaim_controller_creates_total{admin_access="false",status="success"} 1.0',
        )
        text = await here.until(numbers, lambda said: wanted[0] in said and wanted[1] in said)
        assert [line for line in wanted if line not in text] == []


@pytest.mark.req("K3063-039", "K3063-101", "K3063-103", "K3063-104")
async def test_an_inline_template_makes_a_classic_claim_that_goes_with_its_pod(way, tmp_path):
    async with world(way, tmp_path) as here, here.controlled():
        await here.make(pod("p", inline()))
        made = await here.until(lambda: classic(here))
        assert made.spec.resource_class_name == "fpga"
        assert (made.metadata.labels, made.metadata.annotations) == ({"a": "b"}, {"c": "d"})
        assert made.metadata.owner_references[0].uid == (await here.pod("p")).metadata.uid
        await here.delete("p")
        await here.until(lambda: classic(here), lambda found: found is None)


async def test_a_classic_claim_of_somebody_else_blocks_the_pod_until_it_goes(tmp_path):
    stranger = {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": "p-fpga", "namespace": "default"},
        "spec": {"resourceClassName": "other"},
    }
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(stranger, pod("p", inline()))
        (told,) = await here.until(lambda: here.told("FailedResourceClaimCreation"))
        assert "claim p-fpga exists and does not belong to this pod" in told
        await here.client.delete(ClassicResourceClaim, "p-fpga", "default")
        made = await here.until(
            lambda: classic(here), lambda found: found is not None and found.metadata.owner_references
        )
        assert made.spec.resource_class_name == "fpga"


@pytest.mark.req("K3063-106")
async def test_users_of_a_classic_claim_that_are_gone_are_taken_off(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(pod("p", inline()), pod("q", by_name("p-fpga", "fpga")))
        await here.until(lambda: classic(here))
        users = [
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": (await here.pod(name)).metadata.uid}
            for name in ("p", "q")
        ]
        status = {"status": {"phase": "Allocated", "userLimit": -1, "reservedFor": users}}
        await here.client.patch(
            ClassicResourceClaim, "p-fpga", MergePatch(status), "default", subresource="status"
        )
        await here.delete("q")
        left = await here.until(lambda: classic(here), lambda found: len(found.status.reserved_for) == 1)
        assert (left.status.reserved_for[0].name, left.status.phase) == ("p", "Allocated")


async def test_what_another_controller_recorded_stays(tmp_path):
    async with world(WAY, tmp_path) as here:
        await here.make(template("t"), pod("p", by_template()))
        seen = await here.pod("p")
        first = StrategicMergePatch(
            {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a"}]}}
        )
        await here.client.patch(POD, "p", first, "default", subresource="status")
        performer = ClaimActionExecutor(here.client, *[cast(Any, None)] * 3)
        with pytest.raises(ConflictError):
            await performer.execute(RecordClaims(seen, (("gpu", "b"),)))
        assert await here.until_recorded("p") == {"gpu": "a"}


async def test_claims_are_left_to_kube_controller_manager_while_it_holds_its_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(kube_controllers, "POLL_SECONDS", 0.02)
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "host_1",
            "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }
    async with world(WAY, tmp_path) as here:
        await here.make(template("t"), lease)
        async with here.controlled(choices=ControllerOptions(stand_back=True)) as controllers:
            assert b"dray_controller_stands_back 1.0" in controllers.metrics.render()
            await here.make(pod("p", by_template(), inline()))
            # Nobody else knows classic claims.
            await here.until(lambda: classic(here))
            assert (await here.claims(), await here.recorded("p")) == ([], {})
            released = MergePatch({"spec": {"holderIdentity": ""}})
            await here.client.patch(
                get_kind("Lease.coordination.k8s.io"), "kube-controller-manager", released, "kube-system"
            )
            await here.until_recorded("p")
            assert b"dray_controller_stands_back 0.0" in controllers.metrics.render()
