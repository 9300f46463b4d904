"""The classic path through a server: scheduler and driver agree through the status of claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.client.client import Client
from dray.placement.classic_negotiation import RequestReallocation, ReserveClassic, WaitForDrivers
from dray.placement.pending_pod import PendingPod
from dray.placement.plugins.classic_resources import decide_next_step
from dray.placement.resource_requests import NO_REQUESTS
from dray.scheduler.binding import classic_claims as writing
from tests.contract.api import Api, serving
from tests.contract.classic import (
    CLAIMS,
    CLASSES,
    DRIVER,
    admit_driver,
    classic_claim,
    classic_class,
    client_of,
    driving,
    in_phase,
    read,
    until,
)
from tests.contract.documents import pod
from tests.unit.placement.plugins.test_classic_resources import refusals

req = pytest.mark.req
HELD = f"{DRIVER}/allocated"


@asynccontextmanager
async def acme(
    capacity: Mapping[str, int] | None = None, **parameters: Any
) -> AsyncIterator[tuple[Api, Client]]:
    """A server with a class and its driver; the client is a scheduler's."""
    async with serving() as api:
        await admit_driver(api)
        await api.create(classic_class(**parameters), CLASSES)
        async with driving(api, capacity or {"a": 1, "b": 1}):
            yield api, client_of(api, "system:kube-scheduler", "nobody")


async def _pod(api: Api, name: str) -> Pod:
    await api.create(pod(name))
    return await client_of(api).get(Pod, name, "default")


async def _offered(api: Api, client: Client, who: Pod, *names: str, nodes: Sequence[str]) -> WaitForDrivers:
    """One attempt of a scheduler, up to the proposals."""
    subject = PendingPod(who, NO_REQUESTS, (), tuple([await read(api, name) for name in names]))
    refused = refusals(subject, *nodes)
    feasible = [name for name in nodes if name not in refused]
    step = decide_next_step(subject, feasible, feasible[0])
    assert isinstance(step, WaitForDrivers)
    for action in step.actions:
        assert await writing.write_action(client, action)
    return step


@req("K3063-035", "K3063-068", "K3063-061", "K3063-025", "K3063-073", "K3063-033", "K3063-060")
async def test_an_immediate_claim_is_allocated_without_a_pod() -> None:
    async with acme(initCommand="boot") as (api, _):
        await api.create(classic_claim("c", "Immediate", size=2), CLAIMS)
        claim = await until(api, "c", in_phase("Allocated"))
        assert claim.metadata.finalizers == (HELD,)
        assert claim.status.attributes == {
            "node": "a",
            "classParameters": '{"initCommand":"boot"}',
            "claimParameters": '{"size":2}',
        }
        reach = claim.status.get_reachable_nodes()
        assert reach is not None
        assert [reach.matches(name, {}) for name in ("a", "b")] == [True, False]
        assert (claim.status.driver_name, claim.status.scheduling) == (DRIVER, None)


@req("K3063-035", "K3063-079", "K3063-083", "K3063-086", "K3063-040", "K3063-004", "K3063-072")
async def test_a_delayed_claim_waits_for_a_node_and_moves_on_when_it_is_declined() -> None:
    async with acme({"a": 1, "b": 1}) as (api, client):
        await api.create(classic_claim("taken", "Immediate"), CLAIMS)
        await until(api, "taken", in_phase("Allocated"))
        await api.create(classic_claim("c"), CLAIMS)
        who = await _pod(api, "p")
        await _offered(api, client, who, "c", nodes=["a", "b", "elsewhere"])
        declined = await until(api, "c", lambda claim: _declined(claim) == ("a", "elsewhere"))
        assert declined.status.phase == "Pending"
        assert HELD not in declined.metadata.finalizers
        await _offered(api, client, who, "c", nodes=["a", "b", "elsewhere"])
        claim = await until(api, "c", in_phase("Allocated"))
        assert claim.status.attributes["node"] == "b"
        assert claim.status.scheduling is None


def _declined(claim: ClassicResourceClaim) -> tuple[str, ...]:
    return () if claim.status.scheduling is None else claim.status.scheduling.driver.unsuitable_nodes


@req("K3063-088", "K3063-050")
async def test_what_was_declined_is_looked_at_again_when_something_is_free() -> None:
    async with acme({"a": 1}) as (api, client):
        await api.create(classic_claim("first", "Immediate"), CLAIMS)
        await until(api, "first", in_phase("Allocated"))
        await api.create(classic_claim("c"), CLAIMS)
        await _offered(api, client, await _pod(api, "p"), "c", nodes=["a"])
        await until(api, "c", lambda claim: _declined(claim) == ("a",))
        await api.delete(f"{CLAIMS}/first")
        await until(api, "c", in_phase("Allocated"))


@req("K3063-041", "K3063-081", "K3063-062", "K3063-116")
async def test_a_claim_that_was_given_back_is_free_and_can_be_allocated_elsewhere() -> None:
    async with acme({"a": 1, "b": 1}) as (api, client):
        await api.create(classic_claim("c"), CLAIMS)
        who = await _pod(api, "p")
        await _offered(api, client, who, "c", nodes=["a", "b"])
        claim = await until(api, "c", in_phase("Allocated"))
        assert await writing.write_action(client, RequestReallocation(claim))
        freed = await until(
            api, "c", lambda claim: in_phase("Pending")(claim) and not claim.metadata.finalizers
        )
        assert (freed.status.attributes, freed.status.available_on_nodes) == ({}, None)
        await _offered(api, client, who, "c", nodes=["b"])
        assert (await until(api, "c", in_phase("Allocated"))).status.attributes["node"] == "b"


@req("K3063-061", "K3063-062", "K3063-071", "K3063-074", "K3063-128")
async def test_a_claim_goes_when_nobody_uses_it_and_its_driver_has_freed_it() -> None:
    """Also when the class is gone: what the claim says is enough to free it."""
    async with acme({"a": 1}, userLimit=2) as (api, client):
        await api.create(classic_claim("c", "Immediate"), CLAIMS)
        claim = await until(api, "c", in_phase("Allocated"))
        users = [await _pod(api, name) for name in ("p", "q")]
        for user in users:
            assert await writing.write_action(client, ReserveClassic(await read(api, "c"), user))
        await api.delete(f"{CLASSES}/acme")
        await api.delete(f"{CLAIMS}/c")
        await writing.unreserve(client, [ReserveClassic(claim, users[0])])
        going = await read(api, "c")
        assert going.metadata.deletion_timestamp is not None
        assert (going.metadata.finalizers, len(going.status.reserved_for)) == ((HELD,), 1)
        await writing.unreserve(client, [ReserveClassic(claim, users[1])])
        await api.gone(f"{CLAIMS}/c")


@req("K3063-062")
async def test_a_driver_that_was_killed_goes_on() -> None:
    async with serving() as api:
        await admit_driver(api)
        await api.create(classic_class(), CLASSES)
        for name in ("x", "y", "z"):
            await api.create(classic_claim(name, "Immediate"), CLAIMS)
        for _ in range(6):
            async with driving(api, {"a": 2}):
                await asyncio.sleep(0.02)
        async with driving(api, {"a": 2}):
            for left in (("x", "y", "z"), ("y", "z"), ("z",)):
                held = await _allocated(api, left, min(2, len(left)))
                assert len(held) == min(2, len(left))
                await api.delete(f"{CLAIMS}/{left[0]}")
                await api.gone(f"{CLAIMS}/{left[0]}")


async def _allocated(api: Api, names: Sequence[str], count: int) -> list[str]:
    """Wait until so many of these claims are allocated; which ones."""
    while True:
        held = [name for name in names if (await read(api, name)).status.phase == "Allocated"]
        if len(held) >= count:
            return held
        await asyncio.sleep(0.005)


# --- reservations ---


@req("K3063-043", "K3063-077", "K3063-120")
async def test_as_many_pods_as_the_driver_allows_get_a_shared_claim() -> None:
    async with acme(userLimit=2) as (api, client):
        await api.create(classic_claim("c", "Immediate"), CLAIMS)
        await until(api, "c", in_phase("Allocated"))
        pods = [await _pod(api, f"p{number}") for number in range(3)]
        done = [await writing.reserve(client, [ReserveClassic(await read(api, "c"), who)]) for who in pods]
        assert done == [True, True, False]
        assert [user.name for user in (await read(api, "c")).status.reserved_for] == ["p0", "p1"]


@req("K3063-077", "K3063-121", "K3063-122")
async def test_reservations_are_made_all_or_not_at_all() -> None:
    async with acme() as (api, client):
        for name in ("x", "y"):
            await api.create(classic_claim(name, "Immediate"), CLAIMS)
            await until(api, name, in_phase("Allocated"))
        first, second = await _pod(api, "first"), await _pod(api, "second")
        seen = [await read(api, name) for name in ("x", "y")]
        assert await writing.reserve(client, [ReserveClassic(seen[1], first)])
        assert not await writing.reserve(client, [ReserveClassic(claim, second) for claim in seen])
        assert (await read(api, "x")).status.reserved_for == ()
        assert [user.name for user in (await read(api, "y")).status.reserved_for] == ["first"]


async def test_what_was_overtaken_is_not_written() -> None:
    async with acme() as (api, client):
        await api.create(classic_claim("c", "Immediate"), CLAIMS)
        claim = await until(api, "c", in_phase("Allocated"))
        who = await _pod(api, "p")
        assert await writing.write_action(client, RequestReallocation(claim))
        assert not await writing.write_action(client, ReserveClassic(claim, who))
        await api.delete(f"{CLAIMS}/c")
        await api.gone(f"{CLAIMS}/c")
        assert not await writing.write_action(client, ReserveClassic(claim, who))
        await writing.unreserve(client, [ReserveClassic(claim, who)])


# --- who may write what ---


@req("K3063-030", "K3063-082", "K3063-084")
async def test_a_driver_writes_its_own_part_and_no_more() -> None:
    async with serving() as api:
        await admit_driver(api)
        await api.create(classic_class(), CLASSES)
        await api.create(classic_claim("c"), CLAIMS)
        offer = {"scheduler": {"selectedNode": "a", "potentialNodes": ["a", "b"]}}
        await api.patch(f"{CLAIMS}/c/status", {"status": {"scheduling": offer}})
        driver = api.as_user("acme", f"dray:driver:{DRIVER}", "classic-drivers")

        async def says(**status: Any) -> int:
            merge = {"content-type": "application/merge-patch+json"}
            said = await driver.ask("PATCH", f"{CLAIMS}/c/status", {"status": status}, headers=merge)
            return said.code

        assert await says(scheduling={"scheduler": {"selectedNode": "b"}}) == 403
        assert await says(scheduling={"scheduler": {"potentialNodes": ["b"]}}) == 403
        assert await says(driverName="other.example.com") == 403
        assert await says(scheduling={"driver": {"unsuitableNodes": ["b"]}}, driverName=DRIVER) == 200
        assert await says(phase="Allocated", scheduling=None) == 200
        entry = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
        assert await says(reservedFor=[entry]) == 403
        assert await says(phase="Reallocate") == 403
        assert await says(phase="Pending") == 422
