"""The leader of the guards against a real server: terms, fences, late watches, lost leadership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dray.api.resource import ResourceClaim
from dray.claims.ledger.rows import Holder
from dray.claims.ledger.stored_claims import StoredResult
from dray.client.client import Client
from dray.client.errors import ForbiddenError
from dray.client.leases import LEASE_KIND
from dray.client.patches import MergePatch
from dray.client.transport import TransportRequest
from dray.cluster.services.certificate_renewal import ADMIN_USER
from dray.guard.deciding_leader import DecidingLeader, NotServingError
from dray.guard.fencing import FENCE_ANNOTATION
from dray.guard.hand_over import DRAINED_ANNOTATION, LeadershipTerm, begin_term, mark_drained
from dray.guard.metrics import METRIC_DEFINITIONS
from dray.guard.options import LEASE_NAME, NAMESPACE, GuardOptions
from dray.guard.reviews import AllocationReview
from dray.server.http.requests import AUTHENTICATED, MASTERS
from dray.tasks import cancel_and_wait
from dray.telemetry.metrics import MetricsRegistry
from tests.contract.documents import claim, resource_slice
from tests.contract.intercepted_transport import InterceptedTransport, RequestGate
from tests.contract.servers import reaching
from tests.support.in_process_transport import InProcessTransport

SLICES, CLAIMS = "/resourceslices", "/resourceclaims"


@dataclass
class Place:
    """A server, a client without obstacles, and one for the guard whose way tests can meddle with."""

    client: Client
    transport: InterceptedTransport
    guard_client: Client
    leads: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def leader(self, *, waits: bool = True) -> AsyncIterator[DecidingLeader]:
        """A guard that leads while the block runs, and then ends without handing over."""
        metrics = MetricsRegistry(METRIC_DEFINITIONS)
        leader = DecidingLeader(self.guard_client, GuardOptions(**self.options), metrics, lambda: self.leads)
        running = asyncio.create_task(leader.run())
        try:
            if waits:
                await until(lambda: leader.is_serving)
            yield leader
        finally:
            leader._is_open = False  # as after kill -9: nothing is drained
            await cancel_and_wait(running)

    async def create_claims(self, *names: str) -> list[ResourceClaim]:
        return [await self.client.create(claim(name)) for name in names]

    async def read_claim(self, name: str) -> ResourceClaim:
        return await self.client.get(ResourceClaim, name, "default")

    async def is_fenced(self, name: str) -> bool:
        return FENCE_ANNOTATION in (await self.read_claim(name)).metadata.annotations

    async def review(self, name: str, device: str, **more: Any) -> AllocationReview:
        """A write that gives a device to a claim as it is stored now."""
        metadata = (await self.read_claim(name)).metadata
        holder = Holder(namespace="default", name=name, uid=metadata.uid)
        result = StoredResult(driver="gpu.example.com", pool="node-a", device=device)
        return AllocationReview("r", holder, int(metadata.resource_version), (result,), **more)

    async def store(self, name: str, device: str | None) -> None:
        """Store an allocation, or none."""
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": device}
        allocation = None if device is None else {"devices": {"results": [result]}}
        patch = MergePatch({"status": {"allocation": allocation}})
        await self.client.patch(ResourceClaim, name, patch, "default", subresource="status")


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


@asynccontextmanager
async def placed(folder: Path, *, transitions: int = 5, mark: str | None = None) -> AsyncIterator[Place]:
    async with reaching("in-process", folder) as reach:
        inner = InProcessTransport(reach.server.app, ADMIN_USER, (MASTERS, AUTHENTICATED))
        transport = InterceptedTransport(inner)
        guard_client = Client(transport)
        metadata: dict[str, Any] = {"name": LEASE_NAME, "namespace": NAMESPACE}
        if mark is not None:
            metadata["annotations"] = {DRAINED_ANNOTATION: mark}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {"holderIdentity": "guard", "leaseTransitions": transitions},
        }
        client = reach.client()
        await client.create(lease)
        await client.create(resource_slice("slice-a", devices=4))
        try:
            yield Place(client, transport, guard_client)
        finally:
            await guard_client.close()


async def test_the_mark_of_the_leader_before_counts_once(tmp_path):
    async with placed(tmp_path, transitions=5, mark="4") as place:
        assert await begin_term(place.client, LEASE_NAME, NAMESPACE) == LeadershipTerm(5, is_drained=True)
        assert await begin_term(place.client, LEASE_NAME, NAMESPACE) == LeadershipTerm(5, is_drained=False)


@pytest.mark.parametrize("mark", ["3", "5", "x"])
async def test_the_mark_of_another_term_does_not_count(tmp_path, mark):
    async with placed(tmp_path, transitions=5, mark=mark) as place:
        assert not (await begin_term(place.client, LEASE_NAME, NAMESPACE)).is_drained


async def test_a_mark_that_comes_in_a_later_term_is_not_written(tmp_path):
    async with placed(tmp_path, transitions=6) as place:
        await mark_drained(place.client, LEASE_NAME, NAMESPACE, LeadershipTerm(5, is_drained=False))
        lease = await place.client.get(LEASE_KIND, LEASE_NAME, NAMESPACE)
        assert not lease["metadata"].get("annotations")
        await mark_drained(place.client, LEASE_NAME, NAMESPACE, LeadershipTerm(6, is_drained=False))
        lease = await place.client.get(LEASE_KIND, LEASE_NAME, NAMESPACE)
        assert lease["metadata"]["annotations"] == {DRAINED_ANNOTATION: "6"}


async def test_a_guard_that_leads_again_in_the_same_term_fences(tmp_path):
    """It lost its lease for a moment, and does not know what it admitted before."""
    async with placed(tmp_path, transitions=5, mark="4") as place:
        await place.create_claims("a", "b")
        async with place.leader() as leader:
            assert not await place.is_fenced("a")
            assert (await leader.decide(await place.review("a", "gpu-0"))).is_granted
        on_its_way = await place.read_claim("a")
        async with place.leader() as leader:
            assert await place.is_fenced("a")
            assert await place.is_fenced("b")
            assert (await place.read_claim("a")).metadata.resource_version != (
                on_its_way.metadata.resource_version
            )
            assert (await leader.decide(await place.review("b", "gpu-0"))).is_granted


async def test_a_guard_that_hands_over_leaves_a_mark_and_nothing_on_its_way(tmp_path):
    async with placed(tmp_path) as place:
        await place.create_claims("a")
        metrics = MetricsRegistry(METRIC_DEFINITIONS)
        leader = DecidingLeader(place.guard_client, GuardOptions(), metrics, lambda: True)
        running = asyncio.create_task(leader.run())
        await until(lambda: leader.is_serving)
        assert (await leader.decide(await place.review("a", "gpu-0"))).is_granted
        before = (await place.read_claim("a")).metadata.resource_version
        await cancel_and_wait(running)
        assert (await place.read_claim("a")).metadata.resource_version != before
        lease = await place.client.get(LEASE_KIND, LEASE_NAME, NAMESPACE)
        assert lease["metadata"]["annotations"] == {DRAINED_ANNOTATION: "5"}


async def test_a_dry_run_records_nothing(tmp_path):
    async with placed(tmp_path) as place:
        await place.create_claims("a", "b")
        async with place.leader() as leader:
            assert (await leader.decide(await place.review("a", "gpu-0", dry_run=True))).is_granted
            assert (await leader.decide(await place.review("b", "gpu-0"))).is_granted
            assert not (await leader.decide(await place.review("a", "gpu-0", dry_run=True))).is_granted
            assert len(leader.ledger.admitted) == 1


async def test_a_denial_waits_until_the_watch_shows_a_deallocation(tmp_path):
    async with placed(tmp_path) as place:
        await place.create_claims("a", "b")
        await place.store("a", "gpu-0")
        async with place.leader() as leader:
            await until(lambda: len(leader.ledger.list_rows()) == 1)
            late = RequestGate("GET", CLAIMS)
            place.transport.event = late
            await place.store("a", None)
            await late.reached.wait()
            deciding = asyncio.create_task(leader.decide(await place.review("b", "gpu-0")))
            await until(lambda: place.transport.count("GET", "/resourceclaims/a") > 0)
            assert not deciding.done()
            late.open()
            assert (await deciding).is_granted


async def test_leadership_that_is_lost_while_a_denial_is_verified_decides_nothing(tmp_path):
    async with placed(tmp_path) as place:
        await place.create_claims("a", "b")
        await place.store("a", "gpu-0")
        async with place.leader() as leader:
            reading = RequestGate("GET", "/resourceclaims/a")
            place.transport.before = reading
            deciding = asyncio.create_task(leader.decide(await place.review("b", "gpu-0")))
            await reading.reached.wait()
            await place.store("a", None)
            place.leads = False
            reading.open()
            with pytest.raises(NotServingError):
                await deciding
            assert len(leader.ledger.admitted) == 0


async def test_a_device_whose_slice_the_watch_has_not_shown_is_decided_when_it_has(tmp_path):
    """Otherwise nobody would count what it draws from counters."""
    async with placed(tmp_path) as place:
        await place.create_claims("a")
        async with place.leader() as leader:
            late = RequestGate("GET", SLICES)
            place.transport.event = late
            await place.client.create(resource_slice("slice-b", node="node-b"))
            await late.reached.wait()
            review = await place.review("a", "gpu-0")
            result = StoredResult(driver="gpu.example.com", pool="node-b", device="gpu-1")
            asked = AllocationReview("r", review.holder, review.revision, (result,))
            reads = place.transport.count("GET", SLICES)
            deciding = asyncio.create_task(leader.decide(asked))
            await until(lambda: place.transport.count("GET", SLICES) > reads)
            assert not deciding.done()
            late.open()
            assert (await deciding).is_granted
            assert not leader.ledger.list_unpublished(asked)


async def test_a_device_that_nobody_publishes_is_still_held_by_one_claim(tmp_path):
    async with placed(tmp_path) as place:
        await place.create_claims("a", "b")
        async with place.leader() as leader:
            assert (await leader.decide(await place.review("a", "gpu-99"))).is_granted
            assert not (await leader.decide(await place.review("b", "gpu-99"))).is_granted


async def test_what_was_admitted_and_is_never_stored_is_fenced_and_free_again(tmp_path):
    async with placed(tmp_path) as place:
        place.options = {"request_timeout": 0.2}
        await place.create_claims("a", "b")
        async with place.leader() as leader:
            assert (await leader.decide(await place.review("a", "gpu-0"))).is_granted
            before = await place.read_claim("a")
            assert not (await leader.decide(await place.review("b", "gpu-0"))).is_granted
            await until(lambda: len(leader.ledger.admitted) == 0)
            assert (await place.read_claim("a")).metadata.resource_version != before.metadata.resource_version
            assert (await leader.decide(await place.review("b", "gpu-0"))).is_granted


async def test_where_fences_are_refused_a_new_leader_waits_as_long_as_a_request_can_take(tmp_path):
    async with placed(tmp_path) as place:
        place.options = {"request_timeout": 0.3}
        await place.create_claims("a", "b")
        place.transport.before = refuse_patches
        async with place.leader(waits=False) as leader:
            await until(lambda: "no write is on its way" in leader._state)
            assert not leader.is_serving
            await until(lambda: leader.is_serving)
            assert not await place.is_fenced("a")
            assert (await leader.decide(await place.review("a", "gpu-0"))).is_granted
            await until(lambda: len(leader.ledger.admitted) == 0)
            assert (await leader.decide(await place.review("b", "gpu-0"))).is_granted


async def refuse_patches(request: TransportRequest) -> None:
    if request.method == "PATCH" and CLAIMS in request.path:
        raise ForbiddenError(403, {"message": "a policy forbids annotations", "reason": "Forbidden"})
