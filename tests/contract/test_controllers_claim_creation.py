"""Claims of pods in one transaction with their record, against a real server: all of it or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

import pytest

from dray.api.resource import ResourceClaimTemplate
from dray.claims.actions import ClaimWrite, EmitEvent
from dray.claims.lifecycle import LifecycleLookups, decide_for_pod
from dray.client.client import Client
from dray.client.errors import ConflictError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.controllers.claim_actions import ClaimActionExecutor
from dray.controllers.runner import ControllerRunner
from dray.values.generated_names import NAME_ALPHABET
from tests.contract.controlled import CONTROLLER, POD, World, by_template, claim, pod, template, world
from tests.contract.lagging import Lagging
from tests.contract.test_controllers_claims import classic, inline

WAY = "inside"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": "default"},
    "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "1"}},
}


class Site:
    """A server with controllers, whose requests are counted."""

    def __init__(
        self, here: World, *, transactions: bool = True, options: ClientOptions | None = None
    ) -> None:
        self.here = here
        self.transport = Lagging(here.reach._transport(CONTROLLER), transactions=transactions)
        self.client = Client(self.transport, options)

    def count(self) -> dict[str, int]:
        """How many requests created claims, recorded them, or did both."""
        writes = {"claims": "/resourceclaims", "transactions": "/transactions"}
        found = {name: self.transport.count("POST", ending) for name, ending in writes.items()}
        return found | {"records": self.transport.count("PATCH", "/status")}


@asynccontextmanager
async def controlled(directory: Path, **choices: Any) -> AsyncIterator[tuple[World, Site, ControllerRunner]]:
    async with world(WAY, directory) as here:
        site = Site(here, **choices)
        async with here.controlled(site.client) as controllers:
            yield here, site, controllers


@pytest.mark.parametrize(
    ("transactions", "expected"),
    [
        (True, {"claims": 0, "transactions": 1, "records": 0}),
        (False, {"claims": 2, "transactions": 0, "records": 1}),
    ],
    ids=["together", "one by one"],
)
async def test_the_claims_of_a_pod_and_their_record_are_one_write(tmp_path, transactions, expected):
    async with controlled(tmp_path, transactions=transactions) as (here, site, _controllers):
        await here.make(template("t"), pod("p", by_template("gpu"), by_template("nic")))
        names = await here.until_recorded("p", 2)
        made = {each.metadata.name: each.metadata for each in await here.claims()}
        assert {entry: made[name].generate_name for entry, name in names.items()} == {
            "gpu": "p-gpu-",
            "nic": "p-nic-",
        }
        await here.until_idle()
        assert site.count() == expected


async def test_a_classic_claim_is_created_with_the_others(tmp_path):
    async with controlled(tmp_path) as (here, site, _controllers):
        await here.make(template("t"), pod("p", by_template(), inline()))
        await here.until_recorded("p")
        assert await classic(here) is not None
        await here.until_idle()
        assert site.count() == {"claims": 0, "transactions": 1, "records": 0}


@pytest.mark.req("K3063-170")
async def test_a_refused_claim_leaves_nothing_of_its_pod_and_says_why(tmp_path):
    async with controlled(tmp_path) as (here, _site, controllers):
        await here.make(QUOTA, template("t"), pod("p", by_template("gpu"), by_template("nic")))
        (told,) = await here.until(lambda: here.told("FailedResourceClaimCreation"))
        assert told.startswith(
            'entry nic: the claim cannot be created: resourceclaims.resource.k8s.io "p-nic-"'
        )
        assert "exceeded quota: few" in told
        assert (await here.claims(), await here.recorded("p")) == ([], {})
        assert b"resourceclaim_controller_create_failures_total 0" not in controllers.metrics.render()
        await here.client.delete(get_kind("ResourceQuota"), "few", "default")
        await here.until_recorded("p", 2)


async def test_a_taken_name_is_not_used_and_its_claim_stays(tmp_path):
    first, other = ((NAME_ALPHABET.index(sign) + 0.5) / len(NAME_ALPHABET) for sign in "24")
    # Some numbers are drawn for waits, so that there are more than the five of one name.
    numbers = chain(repeat(first, 12), repeat(other))
    options = ClientOptions(time_source=TimeSource(random_float=lambda: next(numbers)))
    async with world(WAY, tmp_path) as here:
        await here.make(template("t"), claim("p-gpu-22222"))
        site = Site(here, options=options)
        async with here.controlled(site.client):
            await here.make(pod("p", by_template()))
            names = await here.until_recorded("p")
            assert names["gpu"].startswith("p-gpu-")
            assert names["gpu"].endswith("4")
            assert site.count()["transactions"] > 1
            stranger = await here.claim("p-gpu-22222")
            assert (stranger.metadata.owner_references, stranger.metadata.deletion_timestamp) == ((), None)


async def decide(here: World) -> list[ClaimWrite]:
    """The writes for a pod with a template, decided on its present version."""
    await here.make(template("t"), pod("p", by_template()))
    found = await here.client.get(ResourceClaimTemplate, "t", "default")
    lookups = LifecycleLookups(
        get_claim=lambda *_: None,
        list_owned_claims=lambda _pod: (),
        get_template=lambda *_: found,
        get_classic_claim=lambda *_: None,
        get_pod=lambda *_: None,
        list_naming_pods=lambda *_: (),
    )
    actions = decide_for_pod(await here.pod("p"), lookups, lambda prefix: f"{prefix}x")
    return [action for action in actions if not isinstance(action, EmitEvent)]


def build_executor(here: World) -> ClaimActionExecutor:
    return ClaimActionExecutor(here.client, *[cast(Any, None)] * 3)


async def test_nothing_is_created_for_a_pod_that_has_changed(tmp_path):
    async with world(WAY, tmp_path) as here:
        writes = await decide(here)
        await here.client.patch(POD, "p", MergePatch({"metadata": {"labels": {"a": "b"}}}), "default")
        with pytest.raises(ConflictError):
            await build_executor(here).commit(writes)
        assert (await here.claims(), await here.recorded("p")) == ([], {})


async def test_nothing_is_created_for_a_pod_that_is_gone_and_nothing_is_left_to_do(tmp_path):
    async with world(WAY, tmp_path) as here:
        writes = await decide(here)
        await here.delete("p")
        assert await build_executor(here).commit(writes)
        assert await here.claims() == []
