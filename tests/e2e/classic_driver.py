"""The controller of a classic driver (KEP-3063) as a program: units on nodes, handed out claim by claim.

    python -m tests.e2e.classic_driver --driver acme.example.com --capacity node-a=2,node-b=1

Theory of operation: what is taken where stands in the claims themselves (`status.attributes`), so a
controller that was killed goes on where the claims are. Every change of a claim or class leads to one pass
over all claims of this driver. `Plan.of` says for one claim what should be there; the rest writes it, the
finalizer before the allocation and the release before the finalizer goes. A write that was overtaken is
forgotten: the change that overtook it leads to the next pass.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from dray.api.classic import ClassicClaim, ClassicClaimStatus, ResourceClass
from dray.api.classic.resourceclaim import ALLOCATED, IMMEDIATE, PENDING, REALLOCATE
from dray.client.client import Client
from dray.client.connect import connected
from dray.client.failures import Conflict, NotFound
from dray.client.informer import Informer
from dray.values.nodeselector import for_node

NODE = "node"


@dataclass(frozen=True)
class Ways:
    """What this driver is called, what it has where, and whether its units can be reached from elsewhere."""

    driver: str
    capacity: Mapping[str, int]
    everywhere: bool = False

    @property
    def finalizer(self) -> str:
        return f"{self.driver}/allocated"


@dataclass(frozen=True)
class Plan:
    """What should be true of a claim: whether it is held, and its status."""

    held: bool
    status: ClassicClaimStatus

    @classmethod
    def of(cls, claim: ClassicClaim, made_of: ResourceClass | None, free: Counter[str], ways: Ways) -> Plan:
        """What this driver wants of a claim, given the units that are free."""
        status = claim.status
        if claim.metadata.deletion_timestamp is not None:
            return cls(bool(status.reserved_for), status)
        if status.phase == ALLOCATED:
            return cls(True, status)
        if status.phase == REALLOCATE:
            freed = ClassicClaimStatus(phase=PENDING, driver_name=ways.driver, user_limit=1)
            return cls(False, freed)
        node = _node_for(claim, free)
        if node is None or made_of is None:
            return cls(False, _declined(claim, free))
        return cls(True, _allocated(claim, made_of, node, ways))


def _node_for(claim: ClassicClaim, free: Counter[str]) -> str | None:
    """Where to allocate now: for a claim that waits for a pod the node it was given, if there is a unit."""
    if claim.spec.allocation_mode == IMMEDIATE:
        return next((name for name in sorted(free) if free[name] > 0), None)
    scheduling = claim.status.scheduling
    node = "" if scheduling is None else scheduling.scheduler.selected_node
    return node if free[node] > 0 else None


def _declined(claim: ClassicClaim, free: Counter[str]) -> ClassicClaimStatus:
    """Say which of the nodes in question have nothing left."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return claim.status
    asked = {*scheduling.scheduler.potential_nodes, scheduling.scheduler.selected_node} - {""}
    unsuitable = tuple(sorted(name for name in asked if free[name] <= 0))
    driver = replace(scheduling.driver, unsuitable_nodes=unsuitable)
    return replace(claim.status, scheduling=replace(scheduling, driver=driver))


def _allocated(claim: ClassicClaim, made_of: ResourceClass, node: str, ways: Ways) -> ClassicClaimStatus:
    """The parameters of the administrator and of the user arrive apart, and stay with the claim."""
    ours: Any = msgspec.json.decode(bytes(made_of.parameters) or b"{}")
    attributes = {
        NODE: node,
        "classParameters": bytes(made_of.parameters).decode(),
        "claimParameters": bytes(claim.spec.parameters).decode(),
    }
    return replace(
        claim.status,
        phase=ALLOCATED,
        driver_name=ways.driver,
        scheduling=None,
        attributes=attributes,
        available_on_nodes=None if ways.everywhere else for_node(node),
        user_limit=ours.get("userLimit", 1),
    )


class Controller:
    """Keeps the claims of one driver as they should be."""

    def __init__(self, client: Client, ways: Ways) -> None:
        self._client = client
        self._ways = ways
        self._claims = Informer(client, ClassicClaim)
        self._classes = Informer(client, ResourceClass)
        self._written: dict[str, ClassicClaim] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        for informer in (self._claims, self._classes):
            informer.listen(self._notice, lambda _old, new: self._notice(new), self._notice)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run())
            tasks.create_task(self._classes.run())
            await self._claims.synced()
            await self._classes.synced()
            print(f"{self._ways.driver} is ready", flush=True)
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._pass()

    def _notice(self, _: object) -> None:
        self._changed.set()

    def _ours(self) -> list[ClassicClaim]:
        """The claims of this driver, oldest first, each as new as it is known."""
        found = [self._newest(claim) for claim in self._claims.all() if self._is_ours(claim)]
        self._written = {claim.metadata.uid: claim for claim in found if claim.metadata.uid in self._written}
        return sorted(found, key=lambda claim: (claim.metadata.creation_timestamp or "", claim.metadata.uid))

    def _newest(self, claim: ClassicClaim) -> ClassicClaim:
        written = self._written.get(claim.metadata.uid, claim)
        return max(claim, written, key=lambda each: int(each.metadata.resource_version))

    def _is_ours(self, claim: ClassicClaim) -> bool:
        made_of = self._classes.get(claim.spec.resource_class_name)
        by_class = "" if made_of is None else made_of.driver_name
        return (claim.status.driver_name or by_class) == self._ways.driver

    async def _pass(self) -> None:
        for claim in self._ours():
            taken = Counter(each.status.attributes.get(NODE, "") for each in self._ours())
            free = Counter({name: units - taken[name] for name, units in self._ways.capacity.items()})
            made_of = self._classes.get(claim.spec.resource_class_name)
            try:
                await self._settle(claim, Plan.of(claim, made_of, free, self._ways))
            except (Conflict, NotFound):
                continue

    async def _settle(self, claim: ClassicClaim, plan: Plan) -> None:
        """Hold before it is allocated; let go after it is freed."""
        if plan.held:
            claim = await self._hold(claim, True)
        if plan.status != claim.status:
            wanted = replace(claim, status=plan.status)
            claim = self._remember(await self._client.amend(claim, wanted, subresource="status"))
        if not plan.held:
            await self._hold(claim, False)

    async def _hold(self, claim: ClassicClaim, held: bool) -> ClassicClaim:
        before = claim.metadata.finalizers
        others = tuple(name for name in before if name != self._ways.finalizer)
        after = (*others, self._ways.finalizer) if held else others
        if (self._ways.finalizer in before) == held:
            return claim
        wanted = replace(claim, metadata=replace(claim.metadata, finalizers=after))
        return self._remember(await self._client.amend(claim, wanted))

    def _remember(self, claim: ClassicClaim) -> ClassicClaim:
        self._written[claim.metadata.uid] = claim
        return claim


def _capacity(text: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(units) for name, _, units in pairs}


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--driver", required=True)
    parser.add_argument("--capacity", required=True, type=_capacity)
    parser.add_argument("--everywhere", action="store_true", help="units can be used from every node")
    given = parser.parse_args()
    async with connected(given.kubeconfig) as client:
        await Controller(client, Ways(given.driver, given.capacity, given.everywhere)).run()


if __name__ == "__main__":
    asyncio.run(_main())
