"""R-08 on Kubernetes: schedulers of two kinds without election, two API servers, guards, and kills of all.

Pods ask for whole devices, for shares of capacity and for partitions that draw from counters. A pod that has
a node goes after a moment, with its claim. The leading guard is also frozen for longer than its lease: it
must not decide when it continues.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.tasks import cancel_and_wait
from tests.faults.guard.claim_history import KEEP_HISTORY
from tests.faults.guard.cluster import CampaignCluster, freeze, kill_and_restart
from tests.faults.ledger.checker import Judge
from tests.faults.ledger.contested_devices import AMOUNTS, Size, claim, slices, sort_of
from tests.kubernetes.control_plane import ControlPlane

SCHEDULERS = ("default-scheduler", "default-scheduler", "dray-0", "dray-1")
"""Whose pods are created; two kube-schedulers share a name."""
LEASE_SECONDS = 8.0
SETTLE_SECONDS = 400.0


@dataclass(frozen=True)
class CrashSize:
    """How many pods altogether and at a time, and how many faults."""

    pods: int
    at_once: int
    faults: int
    pools: int = 1


@dataclass
class CrashTally:
    """What a run came to."""

    is_guarded: bool
    seconds: float = 0.0
    pods: int = 0
    left: int = 0
    denied: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    judge: Judge = field(default_factory=Judge)

    def __str__(self) -> str:
        judge = self.judge
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())) or "none"
        return (
            f"crashes {'with' if self.is_guarded else 'WITHOUT'} guard: {self.pods:,} pods, "
            f"{judge.allocations:,} allocations in {self.seconds:.0f} s, {self.denied} denied; "
            f"faults: {faults}; "
            f"double holders {judge.double}, capacity over-use {judge.overuse}, "
            f"counters overdrawn {judge.overdrawn}, claims left {self.left}"
        )

    @property
    def is_sound(self) -> bool:
        return not self.judge.violations and not self.left


async def run_crashes(folder: Path, size: CrashSize, seed: int, *, is_guarded: bool) -> CrashTally:
    with ControlPlane.open(folder, KEEP_HISTORY) as plane:
        chance = random.Random(seed)
        cluster = CampaignCluster(plane, chance)
        campaign = _CrashCampaign(cluster, size, chance, CrashTally(is_guarded))
        try:
            await campaign.run()
        finally:
            await cluster.close()
    return campaign.tally


class _CrashCampaign:
    """One run."""

    def __init__(
        self, cluster: CampaignCluster, size: CrashSize, chance: random.Random, tally: CrashTally
    ) -> None:
        self._cluster, self._size, self._chance = cluster, size, chance
        self.tally = tally

    async def run(self) -> None:
        cluster, tally = self._cluster, self.tally
        cluster.furnish(slices(Size(pools=self._size.pools, claims=0, kills=0)))
        cluster.start_claim_controller()
        await cluster.add_api_server()
        if tally.is_guarded:
            await cluster.start_guards(3)
        cluster.start_schedulers(kube=2, dray=2)
        began = time.monotonic()
        supervising = asyncio.create_task(cluster.supervise())
        breaking = asyncio.create_task(self._break_things())
        try:
            await self._place_pods(breaking)
            await breaking
            await self._settle()
        finally:
            await cancel_and_wait(supervising, breaking)
        tally.seconds = time.monotonic() - began
        tally.judge = await cluster.judge()
        tally.denied = cluster.count_denials()

    async def _place_pods(self, breaking: asyncio.Task[None]) -> None:
        """Create pods for as long as things break, and at least so many."""
        created = there = 0
        end = time.monotonic() + SETTLE_SECONDS + 30 * self._size.faults
        while created < self._size.pods or there or not breaking.done():
            assert time.monotonic() < end, f"{there} pods were not placed in time"
            is_over = created >= self._size.pods and breaking.done()
            fresh = 0 if is_over else min(self._size.at_once - there, 8)
            await asyncio.gather(*(self._create_pod(created + number) for number in range(fresh)))
            created += fresh
            listed = await self._cluster.persist(lambda: self._cluster.client.list(Pod, "default"))
            placed = [pod.metadata.name for pod in listed.items if pod.spec.node_name]
            going = [name for name in placed if self._chance.random() < 0.5]
            await asyncio.gather(*(self._cluster.delete_pod(name) for name in going))
            self.tally.pods += len(going)
            there = len(listed.items) - len(going)
            await asyncio.sleep(0.1)

    async def _create_pod(self, number: int) -> None:
        asked = claim(number)
        if sort_of(number) == "shared":
            amount = {"memory": f"{self._chance.choice(AMOUNTS)}Gi"}
            asked["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": amount}
        await self._cluster.create_pod(asked, self._chance.choice(SCHEDULERS))

    async def _settle(self) -> None:
        """Wait until all claims are gone."""
        end = time.monotonic() + SETTLE_SECONDS
        client = self._cluster.client
        while True:
            left = (await self._cluster.persist(lambda: client.list(ResourceClaim, "default"))).items
            self.tally.left = len(left)
            if not left or time.monotonic() > end:
                return
            await asyncio.sleep(0.2)

    # --- faults ---

    async def _break_things(self) -> None:
        faults: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("schedulers killed", self._kill_scheduler),
            ("API servers killed", self._kill_api_server),
        ]
        if self.tally.is_guarded:
            faults += [
                ("leading guards killed", self._kill_leading_guard),
                ("leading guards stopped", self._stop_leading_guard),
                ("leading guards frozen", self._freeze_leading_guard),
                ("following guards killed", self._kill_following_guard),
            ]
        for number in range(self._size.faults):
            await asyncio.sleep(self._chance.uniform(2, 6))
            # Each in turn first, so that none is left out of a short run.
            name, fault = faults[number] if number < len(faults) else self._chance.choice(faults)
            await fault()
            self.tally.faults[name] += 1

    async def _kill_scheduler(self) -> None:
        await kill_and_restart(self._chance.choice(self._cluster.schedulers), 0)

    async def _kill_api_server(self) -> None:
        await kill_and_restart(self._chance.choice(self._cluster.api_servers), self._chance.uniform(0, 2))

    async def _kill_leading_guard(self) -> None:
        victim = self._cluster.guards[await self._cluster.find_leading_guard()]
        # Sometimes it is back before its lease expires, sometimes another one leads before.
        await kill_and_restart(victim, self._chance.choice((0.0, LEASE_SECONDS * 1.5)))

    async def _stop_leading_guard(self) -> None:
        victim = self._cluster.guards[await self._cluster.find_leading_guard()]
        await asyncio.to_thread(victim.stop)
        victim.start()

    async def _freeze_leading_guard(self) -> None:
        victim = self._cluster.guards[await self._cluster.find_leading_guard()]
        await freeze(victim, self._chance.uniform(1, LEASE_SECONDS * 2))

    async def _kill_following_guard(self) -> None:
        leading = await self._cluster.find_leading_guard()
        others = [guard for name, guard in self._cluster.guards.items() if name != leading]
        await kill_and_restart(self._chance.choice(others), 0)
