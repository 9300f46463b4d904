"""A binder on a real server, whose placements tests choose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dray.api.core import Node, Pod
from dray.api.resource import AllocationResult, ResourceClaim
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.placement.pending_pod import PendingPod
from dray.placement.resource_requests import compute_requests
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.assume_cache import ClaimAssumeCache
from dray.scheduler.binding.binder import Binder
from tests.contract.controlled import by_name, pod
from tests.contract.documents import allocation
from tests.contract.intercepted_transport import InterceptedTransport, RequestGate
from tests.contract.scheduled import Place, asks, exactly, place
from tests.unit.placement.pods_and_nodes import node_state

TRANSACTION = "POST v1alpha1/transactions"
POD = get_kind("Pod")


@dataclass
class BindingPlace:
    """A server with one node and its devices, and a binder whose requests tests intercept."""

    here: Place
    client: Client
    transport: InterceptedTransport
    book: ClaimAssumeCache
    binder: Binder

    async def make(self, *claims: str, pods: Sequence[str] = ("p",)) -> None:
        """Make claims for a device each, and pods that use all of them."""
        await self.here.make(*(asks(exactly(), name=name, made=False) for name in claims))
        for name in pods:
            await self.here.make(pod(name, *(by_name(claim, entry=claim) for claim in claims)))
        await self.see(*claims)

    async def see(self, *claims: str) -> None:
        """Let the binder know claims as the server has them."""
        for name in claims:
            self.book.update(await self.here.claim(name))

    async def place(self, name: str, given: dict[str, str], **more: Any) -> Placement:
        """Place a pod on the node, and give its claims devices unless they have some."""
        found = await self.client.get(Pod, name, "default")
        claims = []
        for claim_name, device in given.items():
            known = self.book.get("default", claim_name)
            assert known is not None
            claims.append(known)
            if known.status.allocation is None:
                promised = msgspec.convert(allocation(device, **more), AllocationResult)
                self.book.add_pending_allocation(known, promised, found.metadata.uid)
            self.book.add_pending_user(known, found.metadata.uid)
        pending_pod = PendingPod(found, compute_requests(found), tuple(claims))
        return Placement(pending_pod, node_state(await self.client.get(Node, "node-a")))

    async def bind(self, placement: Placement) -> None:
        """Write a placement as the scheduler does."""
        if not await self.binder.try_bind_together(placement):
            await self.binder.bind_claims(placement)
            await self.binder.bind_pod(placement)

    async def bind_together(self, placements: Sequence[Placement], claim: str) -> list[BaseException | None]:
        """Write placements at once: the first write is not sent before all the others wait for its claim."""
        path = f"/resourceclaims/{claim}/status"
        gate = RequestGate("POST", "/transactions", body=path.encode(), most=1)
        single = RequestGate("PUT", path, most=1)
        self.transport.before = gate if self.transport.transactions else single
        uid = (await self.here.claim(claim)).metadata.uid

        async def count_waiting() -> int:
            found = self.binder.reservations.locks._by_uid.get(uid)
            return 0 if found is None else len(found.waiting_consumers)

        binding = asyncio.gather(*map(self.bind, placements), return_exceptions=True)
        await self.here.until(count_waiting, lambda count: count == len(placements))
        gate.open()
        single.open()
        return await binding

    def list_writes(self) -> list[str]:
        """The requests that were sent to change something, as method and the end of the path."""
        return [
            f"{each.method} {'/'.join(each.path.split('/')[-2:])}"
            for each in self.transport.asked
            if each.method != "GET"
        ]

    def count_claim_writes(self) -> int:
        """How many of these requests change claims; several bindings may go together, without claims."""
        claims = b"/resourceclaims/"
        return sum(
            each.method != "GET" and (claims in each.path.encode() or claims in each.body)
            for each in self.transport.asked
        )

    async def change_claim(self, name: str, change: dict[str, Any], subresource: str = "") -> None:
        """Let another writer change a claim."""
        patch = MergePatch(change)
        await self.here.client.patch(ResourceClaim, name, patch, "default", subresource=subresource)

    async def protect(self, *claims: str) -> None:
        """Give claims the finalizer that those from templates have."""
        for name in claims:
            await self.change_claim(name, {"metadata": {"finalizers": [FINALIZER]}})
        await self.see(*claims)

    async def hold(self, name: str) -> None:
        """Keep a pod on the server when it is deleted."""
        change = MergePatch({"metadata": {"finalizers": ["example.com/hold"]}})
        await self.here.client.patch(POD, name, change, "default")

    async def users(self, claim: str) -> list[str]:
        return sorted(user.name for user in (await self.here.claim(claim)).status.reserved_for)

    async def node_of(self, name: str) -> str:
        return (await self.here.pod(name)).spec.node_name


@asynccontextmanager
async def binding_place(
    directory: Path, *, way: str = "inside", transactions: bool = True, devices: int = 4
) -> AsyncIterator[BindingPlace]:
    async with place(way, directory) as here:
        await here.cluster(1, devices=devices)
        client, transport = here.intercept_client(transactions=transactions)
        book = ClaimAssumeCache(lambda _before, _now: None)
        yield BindingPlace(here, client, transport, book, Binder(client, book))
