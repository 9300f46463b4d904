"""R-16: what happens to three members, and what must be true meanwhile and afterwards.

Each fault is held for some seconds and then taken back. With a majority left, writes must go on during the
fault after a moment; without, they must stop, and go on afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.contract.etcd_server import Member
from tests.faults.etcd.field import Field
from tests.faults.etcd.writers import Writers, judge

CALM = 1.0
"""How many seconds everything runs undisturbed before a fault, and again after it."""
LONGEST_RECOVERY = 20.0

Fault = Callable[[Field], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Outcome:
    """What one fault did."""

    name: str
    acknowledged: int
    during: int
    unknown: int
    silence: float
    """The longest pause between two acknowledged writes, in seconds."""
    recovery: float
    """How long after the fault was taken back until the next write was acknowledged."""
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.name:24} {self.acknowledged:6} acknowledged, {self.during:5} in its later half,"
            f" {self.unknown:3} unknown, longest silence {self.silence:5.2f} s,"
            f" first write after it {self.recovery:5.2f} s, wrong {len(self.wrong)}"
        )


async def run(field: Field, name: str, hold: float) -> Outcome:
    """Let writers run through one fault, and judge."""
    fault, quorum = FAULTS[name]
    value = b"x" * (16_000 if fault is full_disk else 200)
    prefix = b"/" + name.replace(" ", "-").encode() + b"/"
    async with await field.store(patience=20, prefix=prefix) as store:
        start = await store.get_revision()
        writers = Writers(field, prefix, value)
        async with writers.running() as record:
            await asyncio.sleep(CALM)
            begun = time.monotonic()
            async with fault(field):
                hit = time.monotonic()
                await asyncio.sleep(hold)
                healing = time.monotonic()
            recovered = await _next_write(record.moments, time.monotonic())
            await asyncio.sleep(CALM)
        await field.all_there()
        during = record.count(hit + hold / 2, healing)
        wrong = await judge(store, start, record)
        if quorum and not during:
            wrong.append("writes stopped although a majority was there")
        if not quorum and during:
            wrong.append("writes went on without a majority")
        silence = record.silence(begun, healing if quorum else recovered)
    return Outcome(
        name, len(record.acknowledged), during, record.unknown, silence, recovered - healing, tuple(wrong)
    )


async def _next_write(moments: list[float], after: float) -> float:
    async with asyncio.timeout(LONGEST_RECOVERY):
        while not moments or moments[-1] <= after:
            await asyncio.sleep(0.01)
    return next(moment for moment in moments if moment > after)


@contextlib.asynccontextmanager
async def killed(field: Field, members: list[Member]) -> AsyncIterator[None]:
    for member in members:
        member.kill()
    yield
    for member in members:
        field.cluster.restart(member)


@contextlib.asynccontextmanager
async def paused(member: Member) -> AsyncIterator[None]:
    member.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def cut_off(field: Field, member: Member) -> AsyncIterator[None]:
    field.network.isolate(member, field.members)
    yield
    field.network.heal()


@contextlib.asynccontextmanager
async def kill_leader(field: Field) -> AsyncIterator[None]:
    async with killed(field, [await field.leader()]):
        yield


@contextlib.asynccontextmanager
async def kill_follower(field: Field) -> AsyncIterator[None]:
    async with killed(field, [(await field.followers())[0]]):
        yield


@contextlib.asynccontextmanager
async def kill_two(field: Field) -> AsyncIterator[None]:
    async with killed(field, [await field.leader(), (await field.followers())[0]]):
        yield


@contextlib.asynccontextmanager
async def pause_leader(field: Field) -> AsyncIterator[None]:
    async with paused(await field.leader()):
        yield


@contextlib.asynccontextmanager
async def pause_follower(field: Field) -> AsyncIterator[None]:
    async with paused((await field.followers())[0]):
        yield


@contextlib.asynccontextmanager
async def cut_leader(field: Field) -> AsyncIterator[None]:
    async with cut_off(field, await field.leader()):
        yield


@contextlib.asynccontextmanager
async def cut_follower(field: Field) -> AsyncIterator[None]:
    async with cut_off(field, (await field.followers())[0]):
        yield


@contextlib.asynccontextmanager
async def cut_everybody(field: Field) -> AsyncIterator[None]:
    for member in field.members:
        field.network.isolate(member, field.members)
    yield
    field.network.heal()


@contextlib.asynccontextmanager
async def full_disk(field: Field) -> AsyncIterator[None]:
    """Fill the disk of one member; when there is space again it is started anew if it gave up."""
    member = field.small_disk
    assert member is not None
    ballast = member.folder / "ballast"
    _fill(ballast)
    yield
    ballast.unlink()
    if not member.running:
        member.kill()
        field.cluster.restart(member)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


FAULTS: dict[str, tuple[Fault, bool]] = {
    "kill -9 the leader": (kill_leader, True),
    "kill -9 a follower": (kill_follower, True),
    "kill -9 two members": (kill_two, False),
    "pause the leader": (pause_leader, True),
    "pause a follower": (pause_follower, True),
    "cut the leader off": (cut_leader, True),
    "cut a follower off": (cut_follower, True),
    "cut all lines": (cut_everybody, False),
    "disk full on one member": (full_disk, True),
}
"""Each fault, and whether a majority is left."""
