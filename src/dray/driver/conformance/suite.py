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
from dray.client.errors import ClientError
from dray.driver.conformance import (
    classic_checks,
    free_devices,
    prepare_checks,
    registration_checks,
    restart_checks,
    unprepare_checks,
)
from dray.driver.conformance.check_context import Bench
from dray.driver.conformance.claims import Terms, Ward
from dray.driver.conformance.driver_client import open_line, registration
from dray.driver.conformance.results import NotTried, Outcome, Verdict, Wrong
from dray.errors import InputError
from dray.wire import grpc_services, unix_sockets


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
    Check(
        "registers",
        registration_checks.registers,
        "agents call GetInfo and NotifyRegistrationStatus at every start",
    ),
    Check(
        "unknown-service",
        registration_checks.unknown_service,
        "register only the services that are implemented",
    ),
    Check(
        "publishes",
        registration_checks.publishes,
        "write all slices of a generation, with `resourceSliceCount`",
    ),
    Check("health", registration_checks.health, "send the state of all devices as the first message"),
    Check(
        "prepare", prepare_checks.prepare, "answer with the results of the allocation that name this driver"
    ),
    Check(
        "cdi", prepare_checks.cdi, "write the file before answering, and remove it before answering unprepare"
    ),
    Check("idempotent", prepare_checks.idempotent, f"{_LOCAL}; agents call again whenever they are not sure"),
    Check("versions", prepare_checks.versions, "let one state serve both versions"),
    Check("prepare-unknown", prepare_checks.unknown, _ENTRY),
    Check("prepare-unallocated", prepare_checks.unallocated, _ENTRY),
    Check("prepare-replaced", prepare_checks.replaced, "compare the uid of the claim with the one asked for"),
    Check(
        "batch", prepare_checks.batch, "treat each claim by itself; one entry per claim, also for refusals"
    ),
    Check("duplicate", prepare_checks.duplicate, "treat claims by their uid, each once"),
    Check("concurrent", prepare_checks.concurrent, "take a lock per claim; agents may call at the same time"),
    Check(
        "held-device", prepare_checks.held, "refuse a device that another claim has until that one is back"
    ),
    Check(
        "unprepare",
        unprepare_checks.unprepare,
        "forget everything about the claim, last its entry in the file",
    ),
    Check("unprepare-twice", unprepare_checks.twice, "what is not there is already given back: no error"),
    Check("unprepare-unknown", unprepare_checks.unknown, "what is not there is already given back: no error"),
    Check(
        "unprepare-never", unprepare_checks.never_prepared, "what was never prepared needs nothing: no error"
    ),
    Check("force-delete", unprepare_checks.force_delete, f"{_LOCAL}; the object may be gone by then"),
    Check(
        "late-prepare",
        unprepare_checks.late,
        "remember what was given back, with the pods it was reserved for",
    ),
    Check("late-prepare-freed", unprepare_checks.late_freed, "read the claim anew for every prepare"),
    Check(
        "next-pod",
        unprepare_checks.next_pod,
        "another pod in `reservedFor` may use a claim that was given back",
    ),
    Check("restart", restart_checks.restart, f"{_LOCAL}, at least until the claim is given back"),
    Check("restart-deleted", restart_checks.deleted_meanwhile, f"{_LOCAL}; the object may be gone by then"),
    Check("restart-held", restart_checks.still_held, "read at start which devices are held"),
    Check(
        "reboot",
        restart_checks.reboot,
        "write the CDI file again when it is not there, whatever you remember",
    ),
    Check("crash", restart_checks.crash, "write the CDI file again unless it is what it should be"),
    Check(
        "in-flight",
        restart_checks.in_flight,
        "note what is being prepared before doing it, and go on at start",
    ),
)
"""Every check, in the order in which they run."""

CLASSIC_CHECKS: Final = (
    Check(
        "prepare", classic_checks.prepare, "answer with the names of CDI devices that are described by then"
    ),
    Check("idempotent", classic_checks.idempotent, f"{_LOCAL}; agents call again whenever they are not sure"),
    Check("prepare-unknown", classic_checks.unknown, "answer with the code NOT_FOUND"),
    Check("concurrent", classic_checks.concurrent, "take a lock per claim; agents may call at the same time"),
    Check("unprepare-twice", classic_checks.twice, "what is not there is already given back: no error"),
    Check("late-prepare", classic_checks.late, "read the claim anew for every prepare"),
    Check("restart", classic_checks.restart, f"{_LOCAL}, at least until the claim is given back"),
    Check(
        "reboot",
        classic_checks.reboot,
        "write the CDI file again when it is not there, whatever you remember",
    ),
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
    if told is not None and told.type == grpc_services.RESOURCE_PLUGIN:
        return await _examine_classic(client, choices, told, tracking)
    async with open_line(choices.socket, choices.driver) as line:
        driver = line.introduction.driver
        slices = (await client.list(ResourceSlice)).items
        node = free_devices.node_of(slices, driver, choices.node)
        claims = (await client.list(ResourceClaim)).items
        spares = free_devices.spares(slices, claims, driver, node)
        ward = Ward(client, _terms(driver, choices))
        bench = Bench(choices.socket, line, client, ward, node, spares, choices.cdi_dir, choices.restart)

        async def tidy() -> None:
            if ward.made:
                with contextlib.suppress(Wrong):
                    await line.unprepare(*ward.made)

        outcomes = await _outcomes(tracking(chosen(choices.only)), bench, ward, tidy)
        return Report(driver, line.introduction.versions, node, outcomes)


async def _examine_classic(client: Client, choices: Choices, told: Any, tracking: Tracking) -> Report:
    async with unix_sockets.channel(told.endpoint or choices.socket) as channel:
        line = classic_checks.ClassicLine(channel)
        ward = classic_checks.ClassicWard(client, _terms(told.name, choices), choices.class_name)
        bench = classic_checks.ClassicBench(line, ward, choices.cdi_dir, choices.restart)

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
