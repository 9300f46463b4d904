"""A minimal server for binders, and a binder with claims on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from msgspec.structs import replace

from dray.api.core import Pod
from dray.api.resource import AllocationResult, ResourceClaim
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client
from dray.client.errors import ConflictError, NotFoundError
from dray.client.rest_client import ClientOptions
from dray.clock import format_timestamp
from dray.placement.scheduling_cycle import Placement
from dray.placement.snapshot import NodeState
from dray.scheduler.assume_cache import ClaimAssumeCache
from dray.scheduler.binder import Binder
from tests.support.manual_time import ManualTime
from tests.unit.placement.claim_objects import claim, having, wanting
from tests.unit.placement.pods_and_nodes import node, node_state

GIVEN = having(claim(), "a/d0", where="a").status.allocation or AllocationResult()


class Server:
    """As much of a server, and of the client of it, as a binder needs."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.options = ClientOptions(time_source=self.time.time_source)
        self.claims: dict[str, ResourceClaim] = {}
        self.bound: list[tuple[str, str]] = []
        self.writes: list[ResourceClaim] = []
        self.refusals: list[Exception] = []
        self.pod: Pod | None = None
        self.revision = 100

    def put(self, new: ResourceClaim) -> ResourceClaim:
        self.revision += 1
        stored = replace(new, metadata=replace(new.metadata, resource_version=str(self.revision)))
        self.claims[new.metadata.name] = stored
        return stored

    async def get(self, kind: type[Any], name: str, _namespace: str) -> Any:
        if kind is Pod:
            if self.pod is None:
                raise NotFoundError(404, {})
            return self.pod
        if name not in self.claims:
            raise NotFoundError(404, {})
        return self.claims[name]

    async def update_status(self, new: ResourceClaim) -> ResourceClaim:
        return await self.patch_changes(new, new)

    async def patch_changes(self, old: ResourceClaim, new: ResourceClaim, **_: str) -> ResourceClaim:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        known = self.claims.get(old.metadata.name)
        if known is None:
            raise NotFoundError(404, {})
        if known.metadata.resource_version != old.metadata.resource_version:
            raise ConflictError(409, {"message": "the object has been modified"})
        self.writes.append(new)
        return self.put(new)

    async def bind(self, pod: str, _namespace: str, node: str, *, uid: str) -> None:
        assert uid
        if self.refusals:
            raise self.refusals.pop(0)
        self.bound.append((pod, node))

    def get_unknown_fields(self, _kind: object) -> frozenset[str]:
        return frozenset()


class BinderFixture:
    """A binder, its book, and a server with some claims."""

    def __init__(self, *claims: ResourceClaim) -> None:
        self.server = Server()
        self.book = ClaimAssumeCache(lambda _before, _now: None)
        self.binder = Binder(cast(Client, self.server), self.book, max_wait=60.0)
        for each in claims:
            self.book.update(self.server.put(each))

    @property
    def given(self) -> AllocationResult:
        """What a binder writes now."""
        now = format_timestamp(self.server.options.time_source.clock.now())
        return replace(GIVEN, allocation_timestamp=now)

    def known(self, name: str = "c") -> ResourceClaim:
        found = self.book.get("ml", name)
        assert found is not None
        return found

    def placed(self, pod: str = "p", *names: str, on: str = "a") -> Placement:
        """A pod that goes to a node, with what is promised to its claims."""
        claims = [self.known(name) for name in names or ("c",)]
        for each in claims:
            if each.status.allocation is None:
                self.book.add_pending_allocation(each, GIVEN, f"uid-{pod}")
            self.book.add_pending_user(each, f"uid-{pod}")
        return Placement(wanting(*claims, name=pod), self.node_state(on))

    def node_state(self, name: str) -> NodeState:
        return node_state(node(name))

    async def bind(self, placement: Placement) -> None:
        await self.binder.bind_claims(placement)
        await self.binder.bind_pod(placement)


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(play())


PROTECTED = replace(claim(), metadata=replace(claim().metadata, finalizers=(FINALIZER,)))


def users(found: ResourceClaim) -> list[str]:
    return [each.name for each in found.status.reserved_for]
