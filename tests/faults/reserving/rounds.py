"""R-09: rounds in which more pods want a claim than may have it, and schedulers that do not know each other.

Theory of operation: a round makes one claim and some pods at once. There are three sorts: a claim without
devices and without a limit that matters; one that has all but a few of its 256 consumers; and a classic one
whose driver allows a few users. Every scheduler tries every pod. When as many pods have a node as there are
places, and the others were told why not, one of the lucky ones goes: exactly one more may come in. A judge on
the event log looks at every revision of every claim in between.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dray.api.classic import ClassicResourceClaim
from dray.api.resource import ResourceClaim
from dray.client.client import Client, DeleteOptions
from dray.client.errors import NotFoundError
from dray.client.informers.watch_stream import WatchRequest, watch_in_batches
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.response_decoding import WatchEvent
from dray.cluster.services.components import ComponentOptions, build_controllers, build_scheduler
from dray.cluster.services.supervisor import RunnableService
from tests.contract.classic import classic_claim, classic_class
from tests.contract.documents import allocation, claim, device_class, resource_slice
from tests.contract.intercepted_transport import InterceptedTransport
from tests.contract.servers import Reach, reaching
from tests.e2e.use_case_cluster import named, node, pod

MOST = 256
LONGEST = 60.0
DRIVER = "acme.example.com"
POD = get_kind("Pod")
CLAIM = get_kind("ResourceClaim.resource.k8s.io")
CLASSIC = get_kind("ResourceClaim.cdi.k8s.io")
AT_ONCE = 24
"""Rounds that are played at the same time."""
DEVICES = 100
"""Devices per pool; a pool per hundred rounds."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """One round."""

    number: int
    sort: str
    allowed: int
    """Places that are free."""
    pods: int

    @property
    def name(self) -> str:
        return f"r{self.number}"

    @property
    def winners(self) -> int:
        return min(self.allowed, self.pods)

    @classmethod
    def drawn(cls, number: int, chance: random.Random) -> Plan:
        sort = ("fresh", "full", "classic")[number % 3]
        allowed = MOST if sort == "fresh" else chance.randint(1, 3)
        pods = chance.randint(2, 5) if sort == "fresh" else allowed + chance.randint(1, 3)
        return cls(number, sort, allowed, pods)


@dataclass
class Judge:
    """Looks at every revision of every claim."""

    revisions: int = 0
    wrong: list[str] = field(default_factory=list)

    def look(self, found: ResourceClaim | ClassicResourceClaim) -> None:
        self.revisions += 1
        users = [user.uid for user in found.status.reserved_for]
        limit = found.status.user_limit if isinstance(found, ClassicResourceClaim) else MOST
        name = found.metadata.name
        if limit is not None and len(users) > limit >= 0:
            self.wrong.append(f"{name}: {len(users)} users at once, {limit} allowed")
        if len(set(users)) < len(users):
            self.wrong.append(f"{name}: somebody is there twice")


@dataclass
class Tally:
    """What the rounds came to."""

    schedulers: int
    rounds: int = 0
    pods: int = 0
    reserved: int = 0
    judge: Judge = field(default_factory=Judge)

    @property
    def wrong(self) -> list[str]:
        return self.judge.wrong

    def sound(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        return (
            f"{self.rounds:,} rounds, {self.schedulers} schedulers: {self.pods:,} pods, "
            f"{self.reserved:,} reservations, {self.judge.revisions:,} revisions of claims looked at; "
            f"wrong: {len(self.wrong)}" + "".join(f"\n  {each}" for each in self.wrong[:10])
        )


class Rounds:
    """A server with schedulers, and rounds on it."""

    def __init__(self, reach: Reach, tally: Tally) -> None:
        self._client = reach.client()
        self.tally = tally

    async def furnish(self, rounds: int) -> None:
        await self._client.create(
            node("n") | {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "100000"}}}
        )
        await self._client.create(device_class())
        await self._client.create(classic_class())
        for pool in range(rounds // DEVICES + 1):
            published = resource_slice(f"pool-{pool}", "n", DEVICES)
            published["spec"]["pool"]["name"] = f"pool-{pool}"
            await self._client.create(published)

    async def judge(self, kind: type[Any]) -> None:
        """Look at every revision of every claim, for ever."""
        async for batch in watch_in_batches(
            self._client,
            WatchRequest(kind, resource_version="", send_initial_events=True, timeout_seconds=3600),
        ):
            for event in batch:
                if isinstance(event, WatchEvent):
                    self.tally.judge.look(event.object)

    # --- one round ---

    async def play(self, plan: Plan) -> None:
        """One round from beginning to end."""
        names = [f"{plan.name}-{number}" for number in range(plan.pods)]
        others = await self._prepared(plan)
        try:
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(*(self._client.create(_pod(name, plan)) for name in names))
                bound = await self._settled(plan, names, others)
                if plan.winners < plan.pods:
                    await self._gone(bound[0])
                    names.remove(bound[0])
                    await self._settled(plan, names, others)
                await self._tidied(plan, names, others)
        except TimeoutError:
            self.tally.wrong.append(f"{plan}: not over after {LONGEST:g} seconds")
        self.tally.rounds += 1
        self.tally.pods += plan.pods

    async def _prepared(self, plan: Plan) -> list[str]:
        """The claim of a round; the uids of those who use it already."""
        if plan.sort == "classic":
            await self._client.create(classic_claim(plan.name))
            status: Document = {"phase": "Allocated", "driverName": DRIVER, "userLimit": plan.allowed}
            await self._patched(CLASSIC, plan.name, status)
            return []
        await self._client.create(claim(plan.name, "default"))
        if plan.sort == "fresh":
            return []
        others = [str(uuid.uuid4()) for _ in range(MOST - plan.allowed)]
        pool = f"pool-{plan.number // DEVICES}"
        given = allocation(f"gpu-{plan.number % DEVICES}", node="n")
        given["devices"]["results"][0]["pool"] = pool
        consumers = [
            {"apiGroup": "example.com", "resource": "jobs", "name": uid, "uid": uid} for uid in others
        ]
        await self._patched(CLAIM, plan.name, {"allocation": given, "reservedFor": consumers})
        return others

    async def _settled(self, plan: Plan, names: list[str], others: list[str]) -> list[str]:
        """The pods that have a node, when nobody is undecided; all is counted then."""
        pods = await self._decided(plan, names)
        bound = [found for found in pods if "nodeName" in found["spec"]]
        kind = CLASSIC if plan.sort == "classic" else CLAIM
        status = (await self._client.get(kind, plan.name, "default")).status
        there = sorted(user.uid for user in status.reserved_for)
        wanted = sorted([*others, *(found["metadata"]["uid"] for found in bound)])
        if len(bound) != min(plan.allowed, len(names)) or there != wanted:
            self.tally.wrong.append(
                f"{plan}: {len(bound)} pods have a node, {len(there) - len(others)} are reserved"
            )
        self.tally.reserved += len(bound)
        return [str(found["metadata"]["name"]) for found in bound]

    async def _decided(self, plan: Plan, names: list[str]) -> list[Document]:
        """The pods, when as many as can have their node and the others know why not."""
        while True:
            pods = [await self._client.get(POD, name, "default") for name in names]
            waiting = [found for found in pods if "nodeName" not in found["spec"]]
            if len(pods) - len(waiting) >= min(plan.allowed, len(pods)) and all(map(_told, waiting)):
                return pods
            await asyncio.sleep(0.05)

    async def _tidied(self, plan: Plan, names: list[str], others: list[str]) -> None:
        """Everybody goes; nothing may be left of the claim then but what its owner wanted."""
        await asyncio.gather(*map(self._gone, names))
        kind = CLASSIC if plan.sort == "classic" else CLAIM
        if others:
            await self._until_users(kind, plan, len(others))
            await self._patched(kind, plan.name, {"reservedFor": None})
        await self._until_users(kind, plan, 0)
        await self._client.delete(kind, plan.name, "default")
        while True:
            try:
                await self._client.get(kind, plan.name, "default")
            except NotFoundError:
                return
            await asyncio.sleep(0.02)

    async def _until_users(self, kind: Any, plan: Plan, count: int) -> None:
        while True:
            found = await self._client.get(kind, plan.name, "default")
            held = isinstance(found, ResourceClaim) and found.status.allocation is not None
            if len(found.status.reserved_for) == count and (count or not held):
                return
            await asyncio.sleep(0.02)

    async def _gone(self, name: str) -> None:
        await self._client.delete(POD, name, "default", DeleteOptions(grace_seconds=0))

    async def _patched(self, kind: Any, name: str, status: Document) -> None:
        change = MergePatch({"status": status})
        await self._client.patch(kind, name, change, "default", subresource="status")


def _told(found: Document) -> bool:
    """Whether a pod reports that no node has enough resources for it."""
    conditions = found["status"].get("conditions", [])
    text = "".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return "the most a claim can have" in text or "its driver allows" in text


def _pod(name: str, plan: Plan) -> Document:
    made = pod(name, named(plan.name))
    made["metadata"]["namespace"] = "default"
    return made


@asynccontextmanager
async def _served(make: Callable[[], RunnableService]) -> AsyncIterator[None]:
    """A service while the block lasts; a fault in it fails the run."""
    service = make()
    task = asyncio.create_task(service.run())
    ready = asyncio.create_task(service.ready.wait())
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield
        assert not task.done(), task
    finally:
        for each in (task, ready):
            each.cancel()
        await asyncio.wait((task, ready))


async def campaign(
    folder: Path, rounds: int, seed: int, *, schedulers: int = 3, transactions: bool = True
) -> Tally:
    """Play rounds, some at a time; without `transactions` the schedulers write one by one."""
    chance = random.Random(seed)
    plans = iter([Plan.drawn(number, chance) for number in range(rounds)])
    async with AsyncExitStack() as stack:
        reach = await stack.enter_async_context(reaching("inside", folder))
        played = Rounds(reach, Tally(schedulers))
        await played.furnish(rounds)
        parts = [
            partial(
                build_scheduler,
                Client(InterceptedTransport(reach._transport(""), transactions=transactions)),
                ComponentOptions(leader_elect=False),
            )
            for _ in range(schedulers)
        ]
        for part in (
            *parts,
            partial(build_controllers, reach.client(), ComponentOptions(leader_elect=False)),
        ):
            await stack.enter_async_context(_served(part))
        judges = [asyncio.create_task(played.judge(kind)) for kind in (ResourceClaim, ClassicResourceClaim)]

        async def some() -> None:
            for plan in plans:
                await played.play(plan)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(some())
        await _stopped(judges)
    return played.tally


async def _stopped(judges: list[asyncio.Task[None]]) -> None:
    for task in judges:
        assert not task.done(), task
        task.cancel()
    await asyncio.wait(judges)
