"""The checks in their order, and a run of them against one driver.

Theory of operation: every check starts with claims of its own and ends with a driver that holds none of them,
so that one failure does not lead to the next. What a check leaves behind is given back to the driver and then
removed from the API.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dray.api.resource import ResourceClaim, ResourceSlice
from dray.client.client import Client
from dray.client.failures import ClientError
from dray.driver.testing import classic, givingback, meeting, preparing, restarting, stock
from dray.driver.testing.bench import Bench
from dray.driver.testing.line import open_line, registration
from dray.driver.testing.verdicts import NotTried, Outcome, Verdict, Wrong
from dray.driver.testing.ward import Terms, Ward
from dray.errors import InputError
from dray.wire import services, sockets


@dataclass(frozen=True, slots=True)
class Check:
    """Something that is true of a good driver, how it is found out, and what helps when it is not."""

    name: str
    run: Callable[[Any], Awaitable[None]]
    hint: str

    @property
    def title(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0].rstrip(".")


_LOCAL: Final = "keep what is prepared in a file, and answer from that file"
_ENTRY: Final = "put the reason into the `error` of that claim's entry, and answer the call"

CHECKS: Final = (
    Check("registers", meeting.registers, "agents call GetInfo and NotifyRegistrationStatus at every start"),
    Check("unknown-service", meeting.unknown_service, "register only the services that are implemented"),
    Check("publishes", meeting.publishes, "write all slices of a generation, with `resourceSliceCount`"),
    Check("health", meeting.health, "send the state of all devices as the first message"),
    Check("prepare", preparing.prepare, "answer with the results of the allocation that name this driver"),
    Check("cdi", preparing.cdi, "write the file before answering, and remove it before answering unprepare"),
    Check("idempotent", preparing.idempotent, f"{_LOCAL}; agents call again whenever they are not sure"),
    Check("versions", preparing.versions, "let one state serve both versions"),
    Check("prepare-unknown", preparing.unknown, _ENTRY),
    Check("prepare-unallocated", preparing.unallocated, _ENTRY),
    Check("prepare-replaced", preparing.replaced, "compare the uid of the claim with the one asked for"),
    Check("batch", preparing.batch, "treat each claim by itself; one entry per claim, also for refusals"),
    Check("duplicate", preparing.duplicate, "treat claims by their uid, each once"),
    Check("concurrent", preparing.concurrent, "take a lock per claim; agents may call at the same time"),
    Check("held-device", preparing.held, "refuse a device that another claim has until that one is back"),
    Check("unprepare", givingback.unprepare, "forget everything about the claim, last its entry in the file"),
    Check("unprepare-twice", givingback.twice, "what is not there is already given back: no error"),
    Check("unprepare-unknown", givingback.unknown, "what is not there is already given back: no error"),
    Check("unprepare-never", givingback.never_prepared, "what was never prepared needs nothing: no error"),
    Check("force-delete", givingback.force_delete, f"{_LOCAL}; the object may be gone by then"),
    Check("late-prepare", givingback.late, "remember what was given back, with the pods it was reserved for"),
    Check("late-prepare-freed", givingback.late_freed, "read the claim anew for every prepare"),
    Check(
        "next-pod", givingback.next_pod, "another pod in `reservedFor` may use a claim that was given back"
    ),
    Check("restart", restarting.restart, f"{_LOCAL}, at least until the claim is given back"),
    Check("restart-deleted", restarting.deleted_meanwhile, f"{_LOCAL}; the object may be gone by then"),
    Check("restart-held", restarting.still_held, "read at start which devices are held"),
    Check(
        "reboot", restarting.reboot, "write the CDI file again when it is not there, whatever you remember"
    ),
    Check("crash", restarting.crash, "write the CDI file again unless it is what it should be"),
    Check(
        "in-flight", restarting.in_flight, "note what is being prepared before doing it, and go on at start"
    ),
)
"""Every check, in the order in which they run."""

CLASSIC_CHECKS: Final = (
    Check("prepare", classic.prepare, "answer with the names of CDI devices that are described by then"),
    Check("idempotent", classic.idempotent, f"{_LOCAL}; agents call again whenever they are not sure"),
    Check("prepare-unknown", classic.unknown, "answer with the code NOT_FOUND"),
    Check("concurrent", classic.concurrent, "take a lock per claim; agents may call at the same time"),
    Check("unprepare-twice", classic.twice, "what is not there is already given back: no error"),
    Check("late-prepare", classic.late, "read the claim anew for every prepare"),
    Check("restart", classic.restart, f"{_LOCAL}, at least until the claim is given back"),
    Check("reboot", classic.reboot, "write the CDI file again when it is not there, whatever you remember"),
)
"""The checks of drivers for classic claims."""

Tidy = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Choices:
    """What is examined, and what may be done to it."""

    socket: Path
    driver: str = ""
    """The name of the driver, when the socket does not tell."""
    node: str = ""
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    parameters: Mapping[str, Any] | None = None
    """Opaque parameters for every claim."""
    class_name: str = ""
    """The class of classic claims."""
    only: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    driver: str
    versions: tuple[str, ...]
    node: str
    outcomes: tuple[Outcome, ...]

    def count(self, verdict: Verdict) -> int:
        return sum(each.verdict is verdict for each in self.outcomes)

    @property
    def is_good(self) -> bool:
        """Whether nothing was found wrong, and something was tried."""
        return not self.count(Verdict.NO) and bool(self.count(Verdict.YES))


Tracking = Callable[[tuple[Check, ...]], Iterable[Check]]


def chosen(names: Collection[str]) -> tuple[Check, ...]:
    """The checks of these names, or all; `InputError` for a name that is none."""
    known = {check.name for check in CHECKS}
    for name in names:
        if name not in known:
            raise InputError(f"there is no check `{name}`; there are {', '.join(sorted(known))}")
    return tuple(check for check in CHECKS if not names or check.name in names)


async def examine(client: Client, choices: Choices, tracking: Tracking = iter) -> Report:
    """Hold a driver against the checks; `tracking` sees them go by."""
    chosen(choices.only)
    told = await registration(choices.socket)
    if told is not None and told.type == services.RESOURCE_PLUGIN:
        return await _examine_classic(client, choices, told, tracking)
    async with open_line(choices.socket, choices.driver) as line:
        driver = line.introduction.driver
        slices = (await client.list(ResourceSlice)).items
        node = stock.node_of(slices, driver, choices.node)
        claims = (await client.list(ResourceClaim)).items
        spares = stock.spares(slices, claims, driver, node)
        ward = Ward(client, _terms(driver, choices))
        bench = Bench(choices.socket, line, client, ward, node, spares, choices.cdi_dir, choices.restart)

        async def tidy() -> None:
            if ward.made:
                with contextlib.suppress(Wrong):
                    await line.unprepare(*ward.made)

        outcomes = await _outcomes(tracking(chosen(choices.only)), bench, ward, tidy)
        return Report(driver, line.introduction.versions, node, outcomes)


async def _examine_classic(client: Client, choices: Choices, told: Any, tracking: Tracking) -> Report:
    async with sockets.channel(told.endpoint or choices.socket) as channel:
        line = classic.ClassicLine(channel)
        ward = classic.ClassicWard(client, _terms(told.name, choices), choices.class_name)
        bench = classic.ClassicBench(line, ward, choices.cdi_dir, choices.restart)

        async def tidy() -> None:
            for ref in ward.made:
                with contextlib.suppress(Wrong):
                    await line.unprepare(ref.uid)

        checks = tuple(each for each in CLASSIC_CHECKS if not choices.only or each.name in choices.only)
        outcomes = await _outcomes(tracking(checks), bench, ward, tidy)
        return Report(told.name, ("classic",), choices.node, outcomes)


def _terms(driver: str, choices: Choices) -> Terms:
    return Terms(driver, None if choices.parameters is None else dict(choices.parameters))


async def _outcomes(checks: Iterable[Check], bench: Any, ward: Ward, tidy: Tidy) -> tuple[Outcome, ...]:
    outcomes = []
    await ward.open()
    try:
        for check in checks:
            outcomes.append(await _outcome(check, bench))
            await tidy()
            with contextlib.suppress(ClientError):
                await ward.clear()
    finally:
        await tidy()
        await ward.close()
    return tuple(outcomes)


async def _outcome(check: Check, bench: Any) -> Outcome:
    try:
        await check.run(bench)
    except Wrong as wrong:
        return Outcome(check.name, Verdict.NO, str(wrong), check.hint, check.title)
    except NotTried as missing:
        return Outcome(check.name, Verdict.NOT_TRIED, str(missing), "", check.title)
    except ClientError as refused:
        why = f"the API server objects: {refused}"
        return Outcome(check.name, Verdict.NOT_TRIED, why, "", check.title)
    return Outcome(check.name, Verdict.YES, title=check.title)
