"""The race for the last devices: 20 pods for 20 devices, half for kube-scheduler and half for dray's.

Both look for the first device that is free, at the same time, round after round.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from tests.faults.guard.claim_history import KEEP_HISTORY
from tests.faults.guard.cluster import CampaignCluster, Document
from tests.faults.ledger.checker import Judge
from tests.faults.ledger.contested_devices import DRIVER, claim
from tests.kubernetes.control_plane import ControlPlane

PODS = 20
SCHEDULERS = ("default-scheduler", "dray-0")
LONGEST = 180.0


@dataclass
class RaceTally:
    """What a race came to."""

    is_guarded: bool
    rounds: int = 0
    placed: int = 0
    denied: int = 0
    seconds: float = 0.0
    judge: Judge = field(default_factory=Judge)

    def __str__(self) -> str:
        return (
            f"race {'with' if self.is_guarded else 'WITHOUT'} guard: {self.rounds} rounds of {PODS} pods and "
            f"{PODS} devices in {self.seconds:.0f} s, {self.placed} pods placed, "
            f"{self.judge.allocations} allocations, {self.denied} denied; given twice: {self.judge.double}"
        )

    @property
    def is_sound(self) -> bool:
        return not self.judge.violations and self.placed == self.rounds * PODS


def _build_slices() -> Iterator[Document]:
    spec = {
        "driver": DRIVER,
        "allNodes": True,
        "pool": {"name": "rack", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"dedicated-{number}"} for number in range(PODS)],
    }
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "rack"},
        "spec": spec,
    }


async def run_race(folder: Path, rounds: int, seed: int, *, is_guarded: bool) -> RaceTally:
    tally = RaceTally(is_guarded)
    with ControlPlane.open(folder, KEEP_HISTORY) as plane:
        cluster = CampaignCluster(plane, random.Random(seed))
        try:
            cluster.furnish(_build_slices())
            cluster.start_claim_controller()
            if is_guarded:
                await cluster.start_guards(2)
            cluster.start_schedulers(kube=1, dray=1)
            began = time.monotonic()
            for number in range(rounds):
                async with asyncio.timeout(LONGEST):
                    tally.placed += await _run_round(cluster, number)
                tally.rounds += 1
            tally.seconds = time.monotonic() - began
            tally.judge = await cluster.judge()
            tally.denied = cluster.count_denials()
        finally:
            await cluster.close()
    return tally


async def _run_round(cluster: CampaignCluster, number: int) -> int:
    """Place all pods at once, and remove them."""
    claims = [claim(6 * (number * PODS + place)) for place in range(PODS)]
    names = [each["metadata"]["name"] for each in claims]
    await asyncio.gather(
        *(cluster.create_pod(each, SCHEDULERS[place % 2]) for place, each in enumerate(claims))
    )
    while True:
        pods = (await cluster.client.list(Pod, "default")).items
        placed = sum(bool(each.spec.node_name) for each in pods)
        if placed == PODS:
            break
        await asyncio.sleep(0.1)
    await asyncio.gather(*(cluster.delete_pod(name) for name in names))
    while (await cluster.client.list(ResourceClaim, "default")).items:
        await asyncio.sleep(0.1)
    return placed
