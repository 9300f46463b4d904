"""Everything at once: answers that get lost, refusals, deletions; afterwards all is as it should be.

Pods come and go while requests, answers and events take their time and some of them fail. When that stops,
every pod that has a node has its devices there, no device is held twice, nothing is promised any more, what
the scheduler counts is what the server has, and nobody waits who could be placed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Pod
from dray.client.errors import ConflictError, NotFoundError, ServerTimeoutError, ServerUnreachableError
from dray.client.transport import TransportRequest
from dray.placement.pending_pod import PendingPod
from dray.placement.profile import build_profile
from dray.placement.scheduling_cycle import Placement, place_pod
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.controlled import by_name, by_template, pod
from tests.contract.intercepted_transport import InterceptedTransport
from tests.contract.scheduled import Place, asks, devices_in, exactly, impatient
from tests.contract.scheduled import place as placed

__all__ = ["impatient"]

PODS = 24
WRITES = ("PUT", "POST", "PATCH")


class Mischief:
    """Delays and failures, as long as it lasts."""

    def __init__(self, transport: InterceptedTransport, seed: int) -> None:
        self._chance = random.Random(seed)
        self.lasts = True
        transport.before, transport.after, transport.event = self.before, self.after, self.dawdle

    async def dawdle(self, _request: TransportRequest) -> None:
        if self.lasts:
            await asyncio.sleep(self._chance.choice((0, 0, 0.001, 0.005)))

    async def before(self, request: TransportRequest) -> None:
        await self.dawdle(request)
        if self._strikes(request):
            raise ConflictError(409, {"message": "somebody was faster"})

    async def after(self, request: TransportRequest) -> None:
        await self.dawdle(request)
        if self._strikes(request):
            raise self._chance.choice(
                [
                    ServerUnreachableError("the answer got lost"),
                    ServerTimeoutError(504, {"message": "it took too long"}),
                ]
            )

    def _strikes(self, request: TransportRequest) -> bool:
        return self.lasts and request.method in WRITES and self._chance.random() < 0.1


async def come_and_go(here: Place, seed: int) -> None:
    """Pods with claims of their own and with shared ones; some are deleted whatever becomes of them."""
    chance = random.Random(seed)
    for number in range(PODS):
        entry = by_template() if number % 3 else by_name(f"shared-{number % 2}")
        await here.make(pod(f"p-{number}", entry))
        await asyncio.sleep(chance.choice((0, 0.005, 0.02)))
        if chance.random() < 0.3:
            with suppress(NotFoundError):
                await here.delete(f"p-{chance.randrange(number + 1)}")


@pytest.mark.parametrize("seed", range(4))
async def test_the_scheduler_recovers_from_random_failures(tmp_path, seed):
    async with placed("inside", tmp_path) as here, here.controlled():
        client, transport = here.intercept_client()
        mischief = Mischief(transport, seed)
        await here.cluster(3, devices=3)
        await here.make(asks(exactly()), *(asks(exactly(), name=f"shared-{n}", made=False) for n in range(2)))
        async with here.scheduling(client, max_in_flight=8) as scheduler:
            await come_and_go(here, seed)
            mischief.lasts = False
            await here.until(lambda: faults(here, scheduler), lambda found: found == [])


async def faults(here: Place, scheduler: Scheduler) -> list[str]:
    """What is not as it should be."""
    found: list[str] = []
    pods = list((await here.client.list(Pod, "default")).items)
    claims = {claim.metadata.name: claim for claim in await here.claims()}
    held = Counter(device for claim in claims.values() for device in devices_in(claim))
    found += [f"{device} is held by {count}" for device, count in held.items() if count > 1]
    for each in pods:
        if each.spec.node_name:
            found += [f"{each.metadata.name}: {why}" for why in without_devices(each, claims)]
    book = scheduler._cache.claims
    if book.count_pending_allocations():
        found.append(f"{book.count_pending_allocations()} promises are left")
    taken = {pool: used.devices for pool, used in scheduler._cache._usage.pools.items()}
    if taken != {pool: used.devices for pool, used in DeviceUsage.from_claims(claims.values()).pools.items()}:
        found.append(f"{taken} is counted")
    running = Counter(each.spec.node_name for each in pods if each.spec.node_name)
    for name, state in scheduler._cache.update_snapshot().node_states.items():
        if state.requests.get("pods") != running[name] * 10**9:
            found.append(f"{name} has {running[name]} pods, not {state.requests.get('pods')}")
    return found + [
        f"{each.metadata.name} could be placed" for each in pods if could_be_placed(scheduler, each)
    ]


def without_devices(each: Pod, claims: dict[str, Any]) -> list[str]:
    names = [entry.resource_claim_name for entry in each.spec.resource_claims if entry.resource_claim_name]
    names += [said.resource_claim_name or "" for said in each.status.resource_claim_statuses]
    wrong = []
    for name in names:
        claim = claims.get(name)
        if claim is None:
            wrong.append(f"{name} is gone")
        elif [device.split("/")[0] for device in devices_in(claim)] != [each.spec.node_name]:
            wrong.append(f"{name} has {devices_in(claim)}, and the pod is on {each.spec.node_name}")
        elif each.metadata.uid not in {user.uid for user in claim.status.reserved_for}:
            wrong.append(f"{name} is not reserved for it")
    return wrong


def could_be_placed(scheduler: Scheduler, each: Pod) -> bool:
    if each.spec.node_name:
        return False
    subject = scheduler._placer._resolve_pod(each)
    if not isinstance(subject, PendingPod):
        return False
    profile = build_profile(scheduler._options.placement, [scheduler._placer.devices])
    return isinstance(place_pod(scheduler._cache.update_snapshot(), subject, profile), Placement)
