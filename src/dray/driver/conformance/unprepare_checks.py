"""Checks of what happens when a claim is given back, and of calls that come after that."""

from __future__ import annotations

import uuid

from dray.driver.conformance.check_context import Bench
from dray.driver.conformance.claims import NAMESPACE
from dray.driver.conformance.driver_client import Ref


async def unprepare(bench: Bench) -> None:
    """A claim is given back, and its device can be prepared for the next one."""
    spares = bench.take(1)
    await bench.given_back(await bench.ready(*spares))
    await bench.ward.clear()
    await bench.ready(*spares)


async def twice(bench: Bench) -> None:
    """A claim that was given back is given back again without complaint."""
    done = await bench.ready(*bench.take(1))
    await bench.given_back(done)
    await bench.given_back(done)


async def unknown(bench: Bench) -> None:
    """A claim that the driver never saw is given back without complaint."""
    await bench.unprepared(Ref(NAMESPACE, "there-was-none", str(uuid.uuid4())))


async def never_prepared(bench: Bench) -> None:
    """A claim that exists and was never prepared is given back without complaint."""
    await bench.unprepared(await bench.ward.claim(*bench.take(1)))


async def force_delete(bench: Bench) -> None:
    """A claim that is deleted while it is prepared is given back from what the driver itself knows."""
    done = await bench.ready(*bench.take(1))
    await bench.ward.free(done.ref)
    await bench.ward.remove(done.ref)
    await bench.given_back(done)


async def late(bench: Bench) -> None:
    """A call to prepare that arrives after the claim was given back is refused."""
    done = await bench.ready(*bench.take(1))
    await bench.given_back(done)
    await bench.refused(done.ref, "a claim that was given back, and whose pod is the same as before,")


async def late_freed(bench: Bench) -> None:
    """A call to prepare that arrives after the claim lost its devices is refused."""
    done = await bench.ready(*bench.take(1))
    await bench.given_back(done)
    await bench.ward.free(done.ref)
    await bench.refused(done.ref, "a claim that was given back and has no devices any more")


async def next_pod(bench: Bench) -> None:
    """A claim that was given back is prepared again for the next pod that uses it."""
    done = await bench.ready(*bench.take(1))
    await bench.given_back(done)
    await bench.ward.hand_over(done.ref)
    await bench.prepared(done.ref, done.spares)
