"""Checks of what a driver remembers: over a restart, a reboot, and a crash in the middle of its work.

A reboot empties the directory of CDI files and keeps the driver's own; a crash leaves a file that was not
written, or only half. From outside, both can be brought about by touching only the files that the driver
wrote for claims of the suite.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from dray.driver.conformance import cdi_specs
from dray.driver.conformance.check_context import Bench, Prepared
from dray.driver.conformance.results import NotTried, Wrong

_PAUSE: Final = 0.02


async def restart(bench: Bench) -> None:
    """After a restart the same call has the same answer, and the claim can be given back."""
    done = await bench.ready(*bench.take(1))
    await bench.restarted()
    await _same_again(bench, done)
    await bench.given_back(done)


async def deleted_meanwhile(bench: Bench) -> None:
    """A claim that is deleted while the driver restarts is given back all the same."""
    done = await bench.ready(*bench.take(1))
    await bench.ward.free(done.ref)
    await bench.ward.remove(done.ref)
    await bench.restarted()
    await bench.given_back(done)


async def still_held(bench: Bench) -> None:
    """After a restart the driver still knows which devices it holds."""
    (spare,) = bench.take(1, exclusive=True)
    first = await bench.ready(spare)
    await bench.restarted()
    await bench.ward.free(first.ref)
    second = await bench.ward.claim(spare)
    await bench.refused(second, "a second claim on a device that was held before the restart")
    await bench.unprepared(first.ref)


async def reboot(bench: Bench) -> None:
    """When CDI files are gone after a restart, prepare writes them anew and unprepare does not miss them."""
    directory = bench.directory()
    first, second = [await bench.ready(spare) for spare in bench.take(2)]
    _own(first)
    for path in {*cdi_specs.all_there(directory, first.own), *cdi_specs.all_there(directory, second.own)}:
        path.unlink()
    await bench.restarted()
    await _same_again(bench, first)
    await bench.given_back(second)
    await bench.given_back(first)


async def crash(bench: Bench) -> None:
    """When a CDI file is only half written, prepare after the restart makes it whole."""
    directory = bench.directory()
    done = await bench.ready(*bench.take(1))
    _own(done)
    for path in cdi_specs.all_there(directory, done.own):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    await bench.restarted()
    await _same_again(bench, done)
    await bench.given_back(done)


async def in_flight(bench: Bench) -> None:
    """A driver that is restarted in the middle of a call is as good as before."""
    if bench.restart is None:
        await bench.restarted()
    (spare,) = bench.take(1)
    before = frozenset() if bench.cdi_dir is None else cdi_specs.described(bench.cdi_dir)
    ref = await bench.ward.claim(spare)

    async def asked() -> None:
        while True:
            with contextlib.suppress(Wrong):  # calls may be cut off; what counts is what comes after
                await bench.line.prepare(ref)
            await asyncio.sleep(_PAUSE)

    asking = asyncio.create_task(asked())
    try:
        await asyncio.sleep(_PAUSE)
        await bench.restarted()
    finally:
        asking.cancel()
        await asyncio.wait([asking])
    answer = await bench.prepared(ref, (spare,))
    await bench.given_back(Prepared(ref, (spare,), answer, frozenset(answer.cdi) - before))


async def _same_again(bench: Bench, done: Prepared) -> None:
    again = await bench.prepared(done.ref, done.spares)
    if again != done.answer:
        raise Wrong(f"after the restart the answer is {again}, it was {done.answer}")


def _own(done: Prepared) -> None:
    if not done.own:
        raise NotTried("the driver writes no CDI devices for a claim")
