"""The end of the claims of pods against a real server: deleted and released together, or one by one."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.resource import ResourceClaim
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.errors import NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.server.background import garbage_collector
from tests.contract.controlled import CONTROLLER, POD, World, by_template, pod, template, world
from tests.contract.lagging import Lagging

WAY = "inside"
NAMESPACE = get_kind("Namespace")

with_and_without_transactions = pytest.mark.parametrize(
    "transactions", [True, False], ids=["together", "one by one"]
)


def build_transport(here: World, resource: str = "", *, transactions: bool = True) -> Lagging:
    return Lagging(here.reach._transport(CONTROLLER), resource, transactions=transactions)


async def run_pod(here: World, *entries: str) -> dict[str, str]:
    """Let a pod run on a node with a device for each entry."""
    await here.make(template("t"), pod("p", *map(by_template, entries)))
    names = await here.until_recorded("p", len(entries))
    for entry, name in names.items():
        await here.allocate(name, "p", device=f"gpu-{entry}")
    await here.bind("p")
    return names


def count_writes(transport: Lagging) -> dict[str, int]:
    """The writes of the controllers, by what they did."""
    found = [each for each in transport.asked if each.method in ("POST", "PATCH", "PUT", "DELETE")]
    counts: dict[str, int] = {}
    for each in found:
        if not each.path.endswith("/events"):
            parts = each.path.split("/")
            resource = "transactions" if "transactions" in parts else parts[6]
            key = f"{each.method} {resource}"
            counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.mark.parametrize("ends", ["deleted", "Succeeded", "Failed"])
async def test_a_claim_goes_in_one_write(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(garbage_collector, "CLAIM_SECONDS", 600.0)
    async with world(WAY, tmp_path) as here:
        transport = build_transport(here)
        async with here.controlled(Client(transport)):
            await run_pod(here, "gpu")
            await here.until_processed()
            transport.asked.clear()
            await (here.delete("p") if ends == "deleted" else here.end("p", ends))
            await here.until(here.claims, lambda left: left == [])
            await here.until_idle()
            assert count_writes(transport) == {"POST transactions": 1}


async def test_without_transactions_the_collector_marks_a_claim_and_the_controller_lets_it_go(tmp_path):
    async with world(WAY, tmp_path) as here:
        transport = build_transport(here, transactions=False)
        async with here.controlled(Client(transport)):
            await run_pod(here, "gpu")
            await here.until_processed()
            transport.asked.clear()
            await here.end("p")
            await here.until(here.claims, lambda left: left == [])
            await here.until_idle()
            assert count_writes(transport) == {"DELETE resourceclaims": 1, "PATCH resourceclaims": 1}


async def test_a_claim_that_somebody_else_keeps_loses_its_devices_and_our_finalizer(tmp_path):
    async with world(WAY, tmp_path) as here:
        transport = build_transport(here)
        async with here.controlled(Client(transport)):
            names = await run_pod(here, "gpu")
            kept = MergePatch({"metadata": {"finalizers": [FINALIZER, "example.com/keep"]}})
            await here.client.patch(ResourceClaim, names["gpu"], kept, "default")
            await here.end("p")
            left = await here.until(
                lambda: here.claim(names["gpu"]), lambda found: FINALIZER not in found.metadata.finalizers
            )
            assert left.metadata.deletion_timestamp is not None
            assert (left.status.allocation, left.status.reserved_for) == (None, ())
            await here.until_idle()
            writes = count_writes(transport)
            assert "DELETE resourceclaims" not in writes


async def test_a_pod_is_looked_at_when_it_comes_and_its_claim_when_it_goes(tmp_path):
    """Its placement is no reason: the scheduler has reserved its claims; nor is what the controller wrote."""
    async with world(WAY, tmp_path) as here, here.controlled() as controllers:
        await run_pod(here, "gpu")
        await here.delete("p")
        await here.until(here.claims, lambda left: left == [])
        await here.until_idle()
        series = 'workqueue_adds_total{name="resource_claim"} '
        (line,) = [each for each in controllers.metrics.render().decode().splitlines() if series in each]
        # Once more when the watch shows the record of a claim before the claim.
        assert 2 <= float(line.removeprefix(series)) <= 3


@with_and_without_transactions
async def test_a_claim_that_was_orphaned_stays_although_the_informer_still_shows_its_owner(
    tmp_path, transactions
):
    async with world(WAY, tmp_path) as here:
        transport = build_transport(here, "resourceclaims", transactions=transactions)
        async with here.controlled(Client(transport)):
            names = await run_pod(here, "gpu")
            await here.until_processed()
            transport.hold()
            await here.delete("p", propagation="Orphan")
            orphan = await here.until(
                lambda: here.claim(names["gpu"]), lambda found: not found.status.reserved_for
            )
            assert orphan.metadata.owner_references == ()
            assert orphan.metadata.deletion_timestamp is None
            transport.let()
            await here.stays_when_processed(lambda: here.claim(names["gpu"]))


@with_and_without_transactions
async def test_a_namespace_goes_with_its_pods_and_claims(tmp_path, transactions):
    async with world(WAY, tmp_path) as here:
        transport = build_transport(here, transactions=transactions)
        async with here.controlled(Client(transport)):
            await here.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
            given = template("t")
            given["metadata"]["namespace"] = "team"
            pods = [pod(f"p-{number}", by_template(), namespace="team") for number in range(5)]
            await here.make(given, *pods)

            async def recorded() -> int:
                found = (await here.client.list(POD, "team")).items
                return sum(1 for each in found if each.get("status", {}).get("resourceClaimStatuses"))

            await here.until(recorded, lambda count: count == len(pods))
            await here.client.delete(NAMESPACE, "team")

            async def is_gone() -> bool:
                try:
                    await here.client.get(NAMESPACE, "team")
                except NotFoundError:
                    return True
                return False

            await here.until(is_gone)
            assert (await here.client.list(ResourceClaim, "team")).items == ()


def build_webhook() -> dict[str, Any]:
    """A webhook for claims that nobody answers, and whose silence is accepted."""
    operations = ["CREATE", "UPDATE", "DELETE"]
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceclaims"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"},
        "webhooks": [
            {
                "name": "silent.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{**rule, "operations": operations}],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


async def test_claims_that_webhooks_review_are_written_one_by_one(tmp_path):
    async with world(WAY, tmp_path) as here:
        transport = build_transport(here)
        await here.make(build_webhook())
        async with here.controlled(Client(transport)):
            await run_pod(here, "gpu")
            await here.delete("p")
            await here.until(here.claims, lambda left: left == [])
            await here.until_idle()
            writes = count_writes(transport)
            assert writes["POST resourceclaims"] == 1
            assert writes["PATCH resourceclaims"] == 1
            assert writes["POST transactions"] == 2
