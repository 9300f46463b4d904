"""What a check works with: the line to the driver, claims, spare devices, and the judgements they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dray.client.client import Client
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.claims import REQUEST, Ward
from dray.driver.conformance.driver_client import Answer, Line, Ref
from dray.driver.conformance.free_devices import Spare
from dray.driver.conformance.results import NotTried, Wrong


class Prepared(NamedTuple):
    """A claim that the driver made ready, and the names of its CDI devices that are gone without it."""

    ref: Ref
    spares: tuple[Spare, ...]
    answer: Answer
    own: frozenset[str]


@dataclass
class Bench:
    """The place where checks are done."""

    socket: Path
    line: Line
    client: Client
    ward: Ward
    node: str
    spares: Sequence[Spare]
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    before: frozenset[str] = field(default_factory=frozenset)

    def take(self, count: int, *, exclusive: bool = False) -> tuple[Spare, ...]:
        """Devices for as many claims; a shared one serves several."""
        usable = _apart(each for each in self.spares if not (exclusive and each.shared))
        shared = [each for each in usable if each.shared]
        while shared and len(usable) < count:
            usable += shared
        if len(usable) < count:
            what = f"free {'exclusive ' if exclusive else ''}device{'' if count == 1 else 's'}"
            raise NotTried(f"it needs {count} {what} of this driver, there are {len(usable)}")
        return tuple(usable[:count])

    def directory(self) -> Path:
        if self.cdi_dir is None:
            raise NotTried("nobody said where the driver writes CDI files: give --cdi-dir")
        return self.cdi_dir

    # --- steps that many checks take ---

    async def ready(self, *spares: Spare) -> Prepared:
        """A new claim for these devices, prepared and found to be so."""
        self.before = frozenset() if self.cdi_dir is None else cdi_specs.described(self.cdi_dir)
        ref = await self.ward.claim(*spares)
        answer = await self.prepared(ref, spares)
        return Prepared(ref, spares, answer, frozenset(answer.cdi) - self.before)

    async def prepared(self, ref: Ref, spares: Sequence[Spare], version: str = "") -> Answer:
        """Prepare a claim and judge the answer."""
        answer = entry_of(await self.line.prepare(ref, version=version), ref)
        judge(answer, spares)
        if self.cdi_dir is not None:
            cdi_specs.all_there(self.cdi_dir, answer.cdi)
        return answer

    async def refused(self, ref: Ref, what: str) -> str:
        """Prepare a claim that may not be prepared; what the driver says about it."""
        answer = entry_of(await self.line.prepare(ref), ref)
        if not answer.error:
            raise Wrong(f"{what} was prepared: {answer}")
        if answer.devices:
            names = ", ".join(made.device for made in answer.devices)
            raise Wrong(f"{what} was refused and has devices all the same: {names}")
        await self.line.prepare()  # it still answers
        return answer.error

    async def given_back(self, prepared: Prepared, version: str = "") -> None:
        """Give a claim back and look whether its CDI devices are gone."""
        await self.unprepared(prepared.ref, version)
        if self.cdi_dir is not None:
            cdi_specs.none_left(self.cdi_dir, prepared.own)

    async def unprepared(self, ref: Ref, version: str = "") -> None:
        errors = await self.line.unprepare(ref, version=version)
        if ref.uid not in errors:
            raise Wrong("the answer to NodeUnprepareResources has no entry for the claim")
        if errors[ref.uid]:
            raise Wrong(f"the driver does not give the claim back: {errors[ref.uid]}")

    async def restarted(self) -> None:
        """Have the driver restarted, and wait until it answers."""
        if self.restart is None:
            raise NotTried("nobody said how to restart the driver: give --restart COMMAND or --supervised")
        await self.restart()
        await self.line.back()


def _apart(spares: Iterable[Spare]) -> list[Spare]:
    """Devices that can be had together: of those that draw from the same counters, one."""
    found: list[Spare] = []
    drawn: set[tuple[str, str]] = set()
    for each in spares:
        draws = {(each.pool, name) for name in each.draws}
        if not draws & drawn:
            found.append(each)
            drawn |= draws
    return found


def entry_of(answers: dict[str, Answer], ref: Ref) -> Answer:
    """What a reply says about a claim."""
    answer = answers.get(ref.uid)
    if answer is None:
        raise Wrong("the answer to NodePrepareResources has no entry for the claim")
    return answer


def judge(answer: Answer, spares: Sequence[Spare]) -> None:
    """`Wrong` unless an answer has exactly the devices of a claim, for its requests, with proper names."""
    if answer.error:
        raise Wrong(f"the driver refuses a claim that has its devices: {answer.error}")
    wanted = {(spare.pool, spare.name) for spare in spares}
    got = {(made.pool, made.device) for made in answer.devices}
    if got - wanted:
        pool, device = min(got - wanted)
        raise Wrong(f"the claim has no device `{pool}/{device}`, and the driver prepared it")
    if wanted - got:
        pool, device = min(wanted - got)
        raise Wrong(f"device `{pool}/{device}` of the claim is missing in the answer")
    if len(answer.devices) > len(wanted):
        raise Wrong(f"a device of the claim is there more than once in the answer: {answer}")
    requests = {f"{REQUEST}-{i}" for i in range(len(spares))}
    for made in answer.devices:
        if set(made.requests) - requests:
            raise Wrong(f"the claim has no request `{min(set(made.requests) - requests)}`")
    cdi_specs.well_named(answer.cdi)
