"""Pods that come and go while drivers fail, agents crash and machines reboot: the claim preparer, by seeds.

What drivers have and which containers run is kept beside the agent. No pod runs unless drivers have set up
all its claims in this boot; no claim is taken down while a pod with it runs; in the end nothing is left.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from dray.api.core import Pod
from dray.client.timing import TimeSource
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.preparer import PodClaimPreparer
from tests.unit.node.claims.node_site import NIC, MemoryDriver, Site, result, site

PODS, CLAIMS, AGENTS = 12, 5, 6


class Moody(MemoryDriver):
    """A driver that fails, hides its answers and takes its time, by chance; it never forgets what runs."""

    def __init__(self, name: str, chance: Random, running: dict[str, tuple[str, ...]]) -> None:
        super().__init__(name)
        self.chance, self.running = chance, running
        self.calm = False
        self.this_boot: set[str] = set()

    async def _receive(self, verb, claims):
        if verb == "unprepare":
            used = {name for names in self.running.values() for name in names}
            assert not used & {each.name for each in claims}, f"{claims} are taken down under {self.running}"
        await super()._receive(verb, claims)
        await asyncio.sleep(self.chance.choice((0, 0, 0.002, 0.01)))
        mood = 1.0 if self.calm else self.chance.random()
        self.silent = mood < 0.15
        self.fails = {verb: "not today"} if mood > 0.15 and mood < 0.3 else {}

    def _prepare(self, claim):
        outcome = super()._prepare(claim)
        if claim.name in self.prepared:
            self.this_boot.add(claim.name)
        return outcome

    def _unprepare(self, claim):
        outcome = super()._unprepare(claim)
        if claim.name not in self.prepared:
            self.this_boot.discard(claim.name)
        return outcome


class Churn:
    """What happens on one node, by one seed."""

    def __init__(self, here: Site, chance: Random) -> None:
        self.here, self.chance = here, chance
        self.running: dict[str, tuple[str, ...]] = {}
        self.over: set[str] = set()
        self.ending: set[str] = set()
        here.gpu, here.nic = (Moody(name, chance, self.running) for name in (here.gpu.name, NIC))
        here.registered.drivers = [here.gpu, here.nic]
        here.time_source = TimeSource(sleep=lambda seconds: asyncio.sleep(seconds / 100))
        self.pods: dict[str, tuple[Pod, tuple[str, ...]]] = {}

    @property
    def drivers(self) -> list[Moody]:
        return [self.here.gpu, self.here.nic]  # type: ignore[list-item]

    async def populate(self) -> None:
        names = [f"c{number}" for number in range(CLAIMS)]
        for number, name in enumerate(names):
            more = (result(NIC, f"nic-{number}"),) if number % 2 else ()
            await self.here.create_claim(name, result(device=f"gpu-{number}"), *more)
        for number in range(PODS):
            used = tuple(self.chance.sample(names, self.chance.choice((1, 1, 2))))
            self.pods[f"p{number}"] = await self.here.create_bound_pod(f"p{number}", *used), used

    async def live(self, preparer: PodClaimPreparer, name: str) -> None:
        """The life of a pod, taken up where an earlier agent left it."""
        pod, used = self.pods[name]
        uid = pod.metadata.uid
        if name not in self.ending:
            while not isinstance(await preparer.prepare(pod), ClaimsReady):
                await preparer.wait_for_retry(uid)
            self.start(name, used)
            await asyncio.sleep(self.chance.random() / 20)
            self.ending.add(name)
        self.running.pop(name, None)
        while await preparer.release(uid) is not None:
            await preparer.wait_for_retry(uid)
        self.over.add(name)

    def start(self, name: str, used: tuple[str, ...]) -> None:
        for claim in used:
            assert claim in self.drivers[0].this_boot, f"{name} runs without {claim} of the first driver"
            if int(claim[1:]) % 2:
                assert claim in self.drivers[1].this_boot, f"{name} runs without {claim} of the second driver"
        self.running[name] = used

    async def agent(self, *, seconds: float | None) -> None:
        """One agent, which crashes after some time, or runs until all pods are finished."""
        left = [name for name in self.pods if name not in self.over]
        async with self.here.agent(*(self.pods[name][0] for name in left)) as preparer:
            runs = asyncio.gather(*(self.live(preparer, name) for name in left))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await runs
                    assert seconds is None or self.over == set(self.pods)

    def reboot(self) -> None:
        self.here.boot += "'"
        self.running.clear()
        for driver in self.drivers:
            driver.this_boot.clear()


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_missed_whatever_happens(tmp_path, seed):
    async with site(tmp_path) as here:
        churn = Churn(here, Random(seed))
        await churn.populate()
        for _ in range(AGENTS):
            await churn.agent(seconds=churn.chance.random() / 4)
            happens = churn.chance.choice(("nothing", "reboot", "loss"))
            if happens == "reboot":
                churn.reboot()
            elif happens == "loss":
                here.checkpoint.unlink()
        for driver in churn.drivers:
            driver.calm = True
        async with asyncio.timeout(50):
            await churn.agent(seconds=None)
        assert churn.over == set(churn.pods)
        async with here.agent():
            await here.wait_until_empty()
