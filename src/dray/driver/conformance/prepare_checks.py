"""Checks of what happens when a claim is to be made ready, and when it may not be."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from dray.driver.conformance import cdi_specs
from dray.driver.conformance.check_context import Bench, entry_of, judge
from dray.driver.conformance.claims import NAMESPACE
from dray.driver.conformance.driver_client import Ref
from dray.driver.conformance.results import NotTried, Wrong

_AT_ONCE: Final = 8


async def prepare(bench: Bench) -> None:
    """A claim that has a device gets exactly that device."""
    await bench.ready(*bench.take(1))


async def cdi(bench: Bench) -> None:
    """Every CDI device that is named is described in one valid file, and in none after the claim is back."""
    bench.directory()
    done = await bench.ready(*bench.take(1))
    if not done.answer.cdi:
        raise NotTried("the driver names no CDI devices")
    await bench.given_back(done)


async def idempotent(bench: Bench) -> None:
    """The same call again has the same answer."""
    done = await bench.ready(*bench.take(1))
    for _ in range(2):
        again = await bench.prepared(done.ref, done.spares)
        if again != done.answer:
            raise Wrong(f"the second answer differs: {again} instead of {done.answer}")


async def versions(bench: Bench) -> None:
    """What is prepared in one version is the same in the other, and is given back in either."""
    served = bench.line.introduction.versions
    if len(served) < 2:
        raise NotTried(f"the driver serves only {served[0]}")
    done = await bench.ready(*bench.take(1))
    for version in served:
        answer = await bench.prepared(done.ref, done.spares, version)
        if answer != done.answer:
            raise Wrong(f"{version} answers {answer}, {served[0]} answered {done.answer}")
    await bench.given_back(done, served[-1])


async def unknown(bench: Bench) -> None:
    """A claim that does not exist is refused by an entry of its own."""
    await bench.refused(Ref(NAMESPACE, "there-is-none", str(uuid.uuid4())), "a claim that does not exist")


async def unallocated(bench: Bench) -> None:
    """A claim without devices is refused."""
    await bench.refused(await bench.ward.bare(), "a claim without an allocation")


async def replaced(bench: Bench) -> None:
    """A claim that was deleted and made anew under the same name is not the one that is asked for."""
    (spare,) = bench.take(1)
    old = await bench.ward.bare()
    await bench.ward.remove(old)
    new = await bench.ward.bare(name=old.name)
    await bench.ward.allocate(new, (spare,))
    await bench.refused(old, "a claim whose uid is not that of the object")
    await bench.prepared(new, (spare,))


async def batch(bench: Bench) -> None:
    """One bad claim among good ones is refused alone, and every claim of a call has an entry."""
    spares = bench.take(2)
    good = [await bench.ward.claim(spare) for spare in spares]
    bad = Ref(NAMESPACE, "there-is-none", str(uuid.uuid4()))
    answers = await bench.line.prepare(good[0], bad, good[1])
    for ref, spare in zip(good, spares, strict=True):
        judge(entry_of(answers, ref), (spare,))
    if not entry_of(answers, bad).error:
        raise Wrong("a claim that does not exist was prepared among others")
    errors = await bench.line.unprepare(good[0], bad, good[1])
    for ref in (*good, bad):
        if ref.uid not in errors:
            raise Wrong("the answer to NodeUnprepareResources has no entry for one of three claims")
        if errors[ref.uid]:
            raise Wrong(f"one of three claims is not given back: {errors[ref.uid]}")


async def duplicate(bench: Bench) -> None:
    """A claim that stands twice in one call is prepared once."""
    (spare,) = bench.take(1)
    ref = await bench.ward.claim(spare)
    answers = await bench.line.prepare(ref, ref)
    judge(entry_of(answers, ref), (spare,))
    answer = await bench.prepared(ref, (spare,))
    if answer != answers[ref.uid]:
        raise Wrong(f"afterwards the answer is {answer}, it was {answers[ref.uid]}")


async def concurrent(bench: Bench) -> None:
    """Calls that come at once have one answer, and leave nothing when the claim is given back."""
    (spare,) = bench.take(1)
    ref = await bench.ward.claim(spare)
    before = frozenset() if bench.cdi_dir is None else cdi_specs.described(bench.cdi_dir)
    answers = await asyncio.gather(*(bench.prepared(ref, (spare,)) for _ in range(_AT_ONCE)))
    if len(set(answers)) > 1:
        raise Wrong(f"{_AT_ONCE} calls at once have {len(set(answers))} different answers")
    await asyncio.gather(*(bench.unprepared(ref) for _ in range(_AT_ONCE)))
    if bench.cdi_dir is not None:
        cdi_specs.none_left(bench.cdi_dir, frozenset(answers[0].cdi) - before)


async def held(bench: Bench) -> None:
    """A device that the driver prepared for one claim is not prepared for another."""
    (spare,) = bench.take(1, exclusive=True)
    first = await bench.ready(spare)
    await bench.ward.free(first.ref)
    second = await bench.ward.claim(spare)
    await bench.refused(second, "a second claim on a device that the driver still holds for another")
    await bench.unprepared(first.ref)
    await bench.prepared(second, (spare,))
