"""Faults that claim controllers have had elsewhere, by their row in the list of regressions.

C08 speaks of claims made for extended resources, which dray does not build (they are unknown fields); what it
asks for holds for ordinary claims, and is tested with those.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.preparation import Preparation, PreparationSpec, PreparedClaim
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.claims.claim_names import FINALIZER, POD_CLAIM_NAME_ANNOTATION
from dray.client.client import Client, DeleteOptions
from dray.client.errors import ConflictError
from dray.client.patches import MergePatch
from tests.contract.controlled import (
    CONTROLLER,
    POD,
    World,
    by_name,
    by_template,
    claim,
    pod,
    template,
    world,
)
from tests.contract.documents import owner
from tests.contract.lagging import Lagging

WAY = "inside"


def lagging(here: World, resource: str = "", *, transactions: bool = True) -> tuple[Client, Lagging]:
    transport = Lagging(here.reach._transport(CONTROLLER), resource, transactions=transactions)
    return Client(transport), transport


def count_creations(transport: Lagging) -> int:
    """How many requests created claims."""
    return sum(transport.count("POST", ending) for ending in ("/resourceclaims", "/transactions"))


with_and_without_transactions = pytest.mark.parametrize(
    "transactions", [True, False], ids=["together", "one by one"]
)


async def finalized(here: World, name: str) -> None:
    """Let a claim be as a scheduler of Kubernetes leaves it: with its finalizer."""
    change = MergePatch({"metadata": {"finalizers": [FINALIZER]}})
    await here.client.patch(ResourceClaim, name, change, "default")


async def test_c01_a_controller_that_was_away_clears_what_was_left(tmp_path):
    async with world(WAY, tmp_path) as here:
        await here.make(claim("c"), pod("p", by_name("c")))
        await finalized(here, "c")
        await here.allocate("c", "p")
        await here.bind("p")
        await here.client.delete(ResourceClaim, "c", "default")
        await here.delete("p")
        left = await here.claim("c")
        assert left.metadata.deletion_timestamp is not None
        assert left.status.allocation is not None
        assert len(left.status.reserved_for) == 1
        async with here.controlled():
            await here.until(here.claims, lambda claims: claims == [])


async def test_c02_the_list_of_claims_in_a_pods_status_never_flaps(tmp_path):
    async with world(WAY, tmp_path) as here:
        seen: list[tuple[Any, ...]] = []
        async with here.controlled() as controllers:
            informers = controllers._shared_informers
            assert informers is not None

            def note(_old: Pod, new: Pod) -> None:
                if new.metadata.name == "p":
                    seen.append(new.status.resource_claim_statuses)

            informers.pods.listen(updated=note)
            entries = [by_template(f"e{number}") for number in range(4)]
            await here.make(template("t"), pod("p", *entries))
            names = await here.until_recorded("p", 4)
            for entry, name in names.items():
                await here.allocate(name, "p", device=f"gpu-{entry}")
            await here.bind("p")
            await here.end("p", "Running")
            await here.stays_when_processed(lambda: here.recorded("p"))
        lists = [statuses for statuses in seen if statuses]
        assert lists
        assert all(statuses == lists[0] for statuses in lists)
        assert {status.name for status in lists[0]} == {"e0", "e1", "e2", "e3"}


async def test_c03_a_template_that_comes_after_its_pod_is_used_at_once(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(pod("p", by_template()))
        (told,) = await here.until(lambda: here.told("FailedResourceClaimCreation"))
        assert told == "entry gpu: ResourceClaimTemplate t does not exist"
        await here.make(template("t"))
        assert await here.until_recorded("p")


@with_and_without_transactions
async def test_c04_a_pod_that_waited_long_for_its_template_is_not_forgotten(tmp_path, transactions):
    """Nothing is tried again in vain meanwhile, so there is no wait that could have grown."""
    async with world(WAY, tmp_path) as here:
        client, transport = lagging(here, transactions=transactions)
        async with here.controlled(client) as controllers:
            await here.make(pod("p", by_template()))
            await here.until(lambda: here.told("FailedResourceClaimCreation"))
            before = count_creations(transport)
            await here.until_processed()
            assert before == 0
            assert count_creations(transport) == 1, "only the claim of the marker"
            assert b'workqueue_retries_total{name="resource_claim"}' not in controllers.metrics.render()
            await here.make(template("t"))
            assert await here.until_recorded("p")


async def test_c03_a_template_that_is_only_seen_after_its_pod_is_not_reported_missing(tmp_path):
    async with world(WAY, tmp_path) as here:
        client, transport = lagging(here, "resourceclaimtemplates")
        async with here.controlled(client):
            transport.hold()
            await here.make(template("t"), pod("p", by_template()))
            assert await here.until_recorded("p")
            assert await here.told("FailedResourceClaimCreation") == []


async def test_c05_a_consumer_that_is_no_pod_is_kept_and_the_others_are_cleaned(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(claim("c"), pod("p", by_name("c")))
        await here.allocate("c", "p")
        group = {"apiGroup": "jobs.example.com", "resource": "gangs", "name": "g", "uid": "g-1"}
        ours = {"resource": "pods", "name": "p", "uid": (await here.pod("p")).metadata.uid}
        change = MergePatch({"status": {"reservedFor": [group, ours]}})
        await here.client.patch(ResourceClaim, "c", change, "default", subresource="status")
        await here.delete("p")

        async def consumers() -> list[str]:
            return [each.uid for each in (await here.claim("c")).status.reserved_for]

        await here.until(consumers, lambda left: left == ["g-1"])
        await here.stays_when_processed(consumers)
        assert (await here.claim("c")).status.allocation is not None


async def test_c06_a_template_with_annotations_stays_as_it_is(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled() as controllers:
        given = template("t")
        given["spec"]["metadata"] = {"annotations": {"a": "b"}}
        await here.make(given)
        before = await here.client.get(ResourceClaimTemplate, "t", "default")
        await here.make(*(pod(f"p-{number}", by_template()) for number in range(5)))
        for number in range(5):
            await here.until_recorded(f"p-{number}")
        assert await here.client.get(ResourceClaimTemplate, "t", "default") == before
        informers = controllers._shared_informers
        assert informers is not None
        kept = informers.templates.get("t", "default")
        assert kept is not None
        assert kept.spec.metadata.annotations == {"a": "b"}


async def test_c07_claims_of_other_owners_do_no_harm_and_are_released(tmp_path):
    owner = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PodGroup", "name": "p", "uid": "g-1"}
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(claim("c"), pod("p", by_name("c")))
        await here.allocate("c", "p")
        change = MergePatch({"metadata": {"ownerReferences": [owner]}})
        await here.client.patch(ResourceClaim, "c", change, "default")
        await here.end("p")
        released = await here.until(lambda: here.claim("c"), lambda found: not found.status.reserved_for)
        assert released.status.allocation is None
        assert released.metadata.deletion_timestamp is None


async def test_c08_a_claim_is_free_when_its_pod_completes_and_not_when_it_is_deleted(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template()))
        names = await here.until_recorded("p")
        await here.allocate(names["gpu"], "p")
        await here.bind("p")
        await here.end("p")
        await here.until(here.claims, lambda claims: claims == [])
        assert (await here.pod("p")).status.phase == "Succeeded"


async def test_c09_many_pods_deleted_at_once_leave_nothing_behind(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        count = 60
        await here.make(template("t"), *(pod(f"p-{number}", by_template()) for number in range(count)))
        for number in range(count):
            names = await here.until_recorded(f"p-{number}")
            await here.allocate(names["gpu"], f"p-{number}", device=f"gpu-{number}")
            await here.bind(f"p-{number}")
        await asyncio.gather(*(here.delete(f"p-{number}") for number in range(count)))
        await here.until(here.claims, lambda claims: claims == [])


async def test_c10_a_device_that_a_node_still_has_is_not_handed_on(tmp_path):
    """The pod is forced away and its claim goes; what the node has prepared stays in quarantine."""
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template()))
        names = await here.until_recorded("p")
        await here.allocate(names["gpu"], "p")
        await here.bind("p", "node-a")
        made = await here.claim(names["gpu"])
        await here.client.create(
            Preparation(
                metadata=ObjectMeta(name="prepared"),
                spec=PreparationSpec(
                    node_name="node-a",
                    claim=PreparedClaim(namespace="default", name=names["gpu"], uid=made.metadata.uid),
                ),
            )
        )
        await here.delete("p")
        await here.until(here.claims, lambda claims: claims == [])
        await here.make(claim("next"), pod("q", by_name("next")))
        with pytest.raises(ConflictError, match="gpu-0"):
            await here.allocate("next", "q")
        await here.client.delete(Preparation, "prepared")
        await here.allocate("next", "q")


async def test_c11_a_pod_that_something_else_placed_gets_its_reservation(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(claim("c"), pod("p", by_name("c")))
        await here.allocate("c")
        await here.bind("p")
        reserved = await here.until(lambda: here.claim("c"), lambda found: found.status.reserved_for)
        assert [each.name for each in reserved.status.reserved_for] == ["p"]


async def test_c11_a_pod_that_was_placed_without_devices_gets_an_event(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(template("t"), pod("p", by_template(), nodeName="node-a"))
        (told,) = await here.until(lambda: here.told("FailedResourceClaimReservation"))
        assert "has no devices, and the pod was put on node node-a without them" in told
        names = await here.recorded("p")
        await here.allocate(str(names["gpu"]))
        reserved = await here.until(
            lambda: here.claim(str(names["gpu"])), lambda found: found.status.reserved_for
        )
        assert [each.name for each in reserved.status.reserved_for] == ["p"]


@with_and_without_transactions
async def test_c12_claims_that_the_informer_does_not_show_yet_are_not_made_again(tmp_path, transactions):
    count = 120
    async with world(WAY, tmp_path) as here:
        client, transport = lagging(here, "resourceclaims", transactions=transactions)
        async with here.controlled(client):
            transport.hold()
            await here.make(template("t"), *(pod(f"p-{number}", by_template()) for number in range(count)))
            for number in range(count):
                await here.until_recorded(f"p-{number}")
            # Wake all of them again, while not one claim has been seen.
            for number in range(count):
                await here.end(f"p-{number}", "Running")
            await here.until_processed()
            transport.let()
            await here.until_processed()
            assert len(await here.claims()) == count


@with_and_without_transactions
async def test_c12_a_creation_whose_answer_got_lost_is_looked_for(tmp_path, transactions):
    async with world(WAY, tmp_path) as here:
        client, transport = lagging(here, "resourceclaims", transactions=transactions)
        lost = iter([True])
        creation = "/transactions" if transactions else "/resourceclaims"
        transport.lose = lambda request: (
            request.method == "POST" and request.path.endswith(creation) and next(lost, False)
        )
        async with here.controlled(client):
            transport.hold()
            await here.make(template("t"), pod("p", by_template()))
            names = await here.until_recorded("p")
            await here.until_idle()
            assert [each.metadata.name for each in await here.claims()] == [names["gpu"]]
            assert next(lost, None) is None, "the answer got lost"


async def test_c12_a_claim_that_was_recorded_and_is_not_seen_is_asked_for(tmp_path):
    """Another controller made it a moment ago; ours sees the pod's status and not the claim."""
    async with world(WAY, tmp_path) as here:
        client, transport = lagging(here, "resourceclaims")
        async with here.controlled(client):
            transport.hold()
            waiting = await here.make(pod("p", by_template()))
            await here.until(lambda: here.told("FailedResourceClaimCreation"))
            made = claim("p-gpu-x", ownerReferences=[owner(waiting, controller=True)])
            made["metadata"]["annotations"] = {POD_CLAIM_NAME_ANNOTATION: "gpu"}
            await here.make(made)
            said = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
            await here.client.patch(POD, "p", MergePatch(said), "default", subresource="status")
            await here.make(template("t"))
            await here.until(lambda: _one(transport.count("GET", "/resourceclaims/p-gpu-x")))
            await here.stays_when_processed(here.claims)
            assert [each.metadata.name for each in await here.claims()] == ["p-gpu-x"]


async def test_a_pod_that_is_not_seen_yet_keeps_its_reservation(tmp_path):
    """The informer of pods is behind: that a consumer is absent there does not mean that it is gone."""
    async with world(WAY, tmp_path) as here:
        client, transport = lagging(here, "pods")
        async with here.controlled(client):
            transport.hold()
            await here.make(claim("c"), pod("p", by_name("c")))
            await here.allocate("c", "p")
            await here.until(lambda: _one(transport.count("GET", "/pods/p")))
            await here.until_idle()
            kept = await here.claim("c")
            assert [each.name for each in kept.status.reserved_for] == ["p"]
            await here.client.delete(ResourceClaim, "c", "default", DeleteOptions())
            transport.let()


async def _one(value: Any) -> Any:
    return value


@with_and_without_transactions
async def test_a_controller_that_is_killed_again_and_again_leaves_nothing_half_done(tmp_path, transactions):
    """Whatever it had begun is found and finished: one claim per pod, recorded, and none after its pod."""
    count = 40
    async with world(WAY, tmp_path) as here:
        await here.make(template("t"))

        async def churn() -> None:
            for number in range(count):
                await here.make(pod(f"p-{number}", by_template()))
                if number % 2:
                    await here.delete(f"p-{number - 1}")

        work = asyncio.create_task(churn())
        for length in (0.005, 0.02, 0.01, 0.04, 0.015, 0.03):
            async with here.controlled(lagging(here, transactions=transactions)[0]):
                await asyncio.sleep(length)
        await work
        async with here.controlled():
            for number in range(1, count, 2):
                await here.until_recorded(f"p-{number}")
            await here.until(here.claims, lambda claims: len(claims) == count // 2)
            names = [(await here.recorded(f"p-{number}"))["gpu"] for number in range(1, count, 2)]
            assert sorted(each.metadata.name for each in await here.claims()) == sorted(map(str, names))
