"""R-03 for a store in etcd: histories through all members while those are killed, paused and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.faults.etcd.faults import cut_off, killed, paused
from tests.faults.etcd.field import Field
from tests.faults.linear import clients
from tests.faults.linear.campaign import Direct, Tally, truth_of


async def campaign(field: Field, size: tuple[int, int], seed: int) -> Tally:
    """Histories under faults of one member at a time; `size` is histories and operations."""
    tally, rng = Tally(), random.Random(seed)
    for number in range(size[0]):
        prefix = f"/linear-{seed}-{number}/".encode()
        async with contextlib.AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(await field.store(first, 10.0, prefix))
                for first in range(len(field.members))
            ]
            start = await stores[0].get_revision()
            disturbing = asyncio.create_task(_disturb(field, rng, tally))
            try:
                history = await clients.traffic([Direct(store) for store in stores], size[1], seed + number)
            finally:
                disturbing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await disturbing
            await field.all_there()
            tally.judge(history, await truth_of(stores[0], start))
    return tally


async def _disturb(field: Field, rng: random.Random, tally: Tally) -> None:
    while True:
        await asyncio.sleep(rng.uniform(0.1, 0.5))
        member = rng.choice(field.members)
        kind = rng.choice(["kill", "pause", "cut"])
        tally.kills += kind == "kill"
        tally.pauses += kind != "kill"
        faults = {"kill": killed(field, [member]), "pause": paused(member), "cut": cut_off(field, member)}
        async with faults[kind]:
            # Taken back also when the history is finished meanwhile.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(rng.uniform(0.2, 1.0))
                continue
        return
