"""The conformance suite: the checks in their order, and the run of them against one driver.

Theory of operation: every check creates its own claims and ends with a driver that holds none of them, so
that one failure does not cause the next. After each check the suite unprepares its claims and then deletes
them from the API.
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
from dray.driver.conformance.check_context import CheckContext
from dray.driver.conformance.claims import ConformanceClaims, ConformanceClaimSettings
from dray.driver.conformance.driver_client import connect_driver, get_registration
from dray.driver.conformance.results import (
    CheckSkippedError,
    ConformanceResult,
    ConformanceVerdict,
    NotConformantError,
)
from dray.errors import InputError
from dray.wire import grpc_services, unix_sockets


@dataclass(frozen=True, slots=True)
class ConformanceCheck:
    """A property of a conformant driver, the function that checks it, and a hint for drivers that fail."""

    name: str
    run: Callable[[Any], Awaitable[None]]
    hint: str

    @property
    def title(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0].rstrip(".")


_CHECKPOINT_HINT: Final = "keep prepared claims in a checkpoint file, and answer from that file"
_CLAIM_ERROR_HINT: Final = "put the reason into the `error` of that claim's entry, and answer the call"

CHECKS: Final = (
    ConformanceCheck(
        "registers",
        registration_checks.check_registration,
        "agents call GetInfo and NotifyRegistrationStatus at every start",
    ),
    ConformanceCheck(
        "unknown-service",
        registration_checks.check_unknown_service,
        "register only the services that are implemented",
    ),
    ConformanceCheck(
        "publishes",
        registration_checks.check_published_pools,
        "write all slices of a generation, with `resourceSliceCount`",
    ),
    ConformanceCheck(
        "health", registration_checks.check_health, "send the state of all devices as the first message"
    ),
    ConformanceCheck(
        "prepare",
        prepare_checks.check_prepare,
        "answer with the results of the allocation that name this driver",
    ),
    ConformanceCheck(
        "cdi",
        prepare_checks.check_cdi_specs,
        "write the file before answering, and remove it before answering unprepare",
    ),
    ConformanceCheck(
        "idempotent",
        prepare_checks.check_idempotent,
        f"{_CHECKPOINT_HINT}; agents call again whenever they are not sure",
    ),
    ConformanceCheck("versions", prepare_checks.check_versions, "let one state serve both versions"),
    ConformanceCheck("prepare-unknown", prepare_checks.check_prepare_unknown, _CLAIM_ERROR_HINT),
    ConformanceCheck("prepare-unallocated", prepare_checks.check_prepare_unallocated, _CLAIM_ERROR_HINT),
    ConformanceCheck(
        "prepare-replaced",
        prepare_checks.check_prepare_replaced,
        "compare the uid of the claim with the one asked for",
    ),
    ConformanceCheck(
        "batch",
        prepare_checks.check_batch,
        "treat each claim by itself; one entry per claim, also for refusals",
    ),
    ConformanceCheck("duplicate", prepare_checks.check_duplicate, "treat claims by their uid, each once"),
    ConformanceCheck(
        "concurrent",
        prepare_checks.check_concurrent,
        "take a lock per claim; agents may call at the same time",
    ),
    ConformanceCheck(
        "held-device",
        prepare_checks.check_held_device,
        "refuse a device that another claim has until that claim is given back",
    ),
    ConformanceCheck(
        "unprepare",
        unprepare_checks.check_unprepare,
        "remove everything about the claim, last its entry in the checkpoint",
    ),
    ConformanceCheck(
        "unprepare-twice",
        unprepare_checks.check_unprepare_twice,
        "a claim that is not prepared is already given back: no error",
    ),
    ConformanceCheck(
        "unprepare-unknown",
        unprepare_checks.check_unprepare_unknown,
        "a claim that is not prepared is already given back: no error",
    ),
    ConformanceCheck(
        "unprepare-never",
        unprepare_checks.check_unprepare_never_prepared,
        "a claim that was never prepared needs nothing: no error",
    ),
    ConformanceCheck(
        "force-delete",
        unprepare_checks.check_force_delete,
        f"{_CHECKPOINT_HINT}; the object may be gone by then",
    ),
    ConformanceCheck(
        "late-prepare",
        unprepare_checks.check_late_prepare,
        "record claims that were given back, with the pods they were reserved for",
    ),
    ConformanceCheck(
        "late-prepare-freed",
        unprepare_checks.check_late_prepare_deallocated,
        "read the claim again for every prepare",
    ),
    ConformanceCheck(
        "next-pod",
        unprepare_checks.check_next_pod,
        "another pod in `reservedFor` may use a claim that was given back",
    ),
    ConformanceCheck(
        "restart", restart_checks.check_restart, f"{_CHECKPOINT_HINT}, at least until the claim is given back"
    ),
    ConformanceCheck(
        "restart-deleted",
        restart_checks.check_restart_deleted,
        f"{_CHECKPOINT_HINT}; the object may be gone by then",
    ),
    ConformanceCheck(
        "restart-held", restart_checks.check_restart_held, "read at start which devices are held"
    ),
    ConformanceCheck(
        "reboot",
        restart_checks.check_reboot,
        "write the CDI file again when it is missing, whatever the checkpoint says",
    ),
    ConformanceCheck(
        "crash", restart_checks.check_crash, "write the CDI file again unless its content is complete"
    ),
    ConformanceCheck(
        "in-flight",
        restart_checks.check_in_flight,
        "record what is being prepared before doing it, and continue at the next start",
    ),
)
"""Every check, in the order in which they run."""

CLASSIC_CHECKS: Final = (
    ConformanceCheck(
        "prepare",
        classic_checks.check_prepare,
        "answer with the names of CDI devices that are described by then",
    ),
    ConformanceCheck(
        "idempotent",
        classic_checks.check_idempotent,
        f"{_CHECKPOINT_HINT}; agents call again whenever they are not sure",
    ),
    ConformanceCheck(
        "prepare-unknown", classic_checks.check_prepare_unknown, "answer with the code NOT_FOUND"
    ),
    ConformanceCheck(
        "concurrent",
        classic_checks.check_concurrent,
        "take a lock per claim; agents may call at the same time",
    ),
    ConformanceCheck(
        "unprepare-twice",
        classic_checks.check_unprepare_twice,
        "a claim that is not prepared is already given back: no error",
    ),
    ConformanceCheck(
        "late-prepare", classic_checks.check_late_prepare, "read the claim again for every prepare"
    ),
    ConformanceCheck(
        "restart", classic_checks.check_restart, f"{_CHECKPOINT_HINT}, at least until the claim is given back"
    ),
    ConformanceCheck(
        "reboot",
        classic_checks.check_reboot,
        "write the CDI file again when it is missing, whatever the checkpoint says",
    ),
)
"""The checks of drivers for classic claims."""

CleanUp = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConformanceOptions:
    """The driver to examine, and how the suite may handle it."""

    socket: Path
    driver: str = ""
    """The name of the driver, when the socket serves no registration."""
    node: str = ""
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    parameters: Mapping[str, Any] | None = None
    """Opaque parameters for every claim."""
    class_name: str = ""
    """The class of classic claims."""
    only: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The results of a run."""

    driver: str
    versions: tuple[str, ...]
    node: str
    results: tuple[ConformanceResult, ...]

    def count(self, verdict: ConformanceVerdict) -> int:
        return sum(each.verdict is verdict for each in self.results)

    @property
    def is_conformant(self) -> bool:
        """Whether no check failed, and at least one succeeded."""
        return not self.count(ConformanceVerdict.NO) and bool(self.count(ConformanceVerdict.YES))

    @property
    def outcomes(self) -> tuple[ConformanceResult, ...]:
        """Older name of `results`."""
        return self.results

    @property
    def is_good(self) -> bool:
        """Older name of `is_conformant`."""
        return self.is_conformant


ProgressTracker = Callable[[tuple[ConformanceCheck, ...]], Iterable[ConformanceCheck]]


def select_checks(names: Collection[str]) -> tuple[ConformanceCheck, ...]:
    """Return the checks of these names, or all; raises `InputError` for an unknown name."""
    known = {check.name for check in CHECKS}
    for name in names:
        if name not in known:
            raise InputError(f"there is no check `{name}`; there are {', '.join(sorted(known))}")
    return tuple(check for check in CHECKS if not names or check.name in names)


async def run_conformance(
    client: Client, options: ConformanceOptions, track: ProgressTracker = iter
) -> ConformanceReport:
    """Run the checks against a driver; `track` iterates over them, for example with a progress bar."""
    select_checks(options.only)
    plugin = await get_registration(options.socket)
    if plugin is not None and plugin.type == grpc_services.RESOURCE_PLUGIN:
        return await _run_classic_conformance(client, options, plugin, track)
    async with connect_driver(options.socket, options.driver) as driver_client:
        driver = driver_client.identity.driver
        slices = (await client.list(ResourceSlice)).items
        node = free_devices.resolve_node(slices, driver, options.node)
        existing = (await client.list(ResourceClaim)).items
        devices = free_devices.find_free_devices(slices, existing, driver, node)
        claims = ConformanceClaims(client, _build_claim_settings(driver, options))
        context = CheckContext(
            options.socket, driver_client, client, claims, node, devices, options.cdi_dir, options.restart
        )

        async def clean_up() -> None:
            if claims.created:
                with contextlib.suppress(NotConformantError):
                    await driver_client.unprepare(*claims.created)

        results = await _run_checks(track(select_checks(options.only)), context, claims, clean_up)
        return ConformanceReport(driver, driver_client.identity.versions, node, results)


async def _run_classic_conformance(
    client: Client, options: ConformanceOptions, plugin: Any, track: ProgressTracker
) -> ConformanceReport:
    async with unix_sockets.open_channel(plugin.endpoint or options.socket) as channel:
        driver_client = classic_checks.ConformanceClassicClient(channel)
        claims = classic_checks.ClassicConformanceClaims(
            client, _build_claim_settings(plugin.name, options), options.class_name
        )
        context = classic_checks.ClassicCheckContext(driver_client, claims, options.cdi_dir, options.restart)

        async def clean_up() -> None:
            for ref in claims.created:
                with contextlib.suppress(NotConformantError):
                    await driver_client.unprepare(ref.uid)

        checks = tuple(each for each in CLASSIC_CHECKS if not options.only or each.name in options.only)
        results = await _run_checks(track(checks), context, claims, clean_up)
        return ConformanceReport(plugin.name, ("classic",), options.node, results)


def _build_claim_settings(driver: str, options: ConformanceOptions) -> ConformanceClaimSettings:
    return ConformanceClaimSettings(driver, None if options.parameters is None else dict(options.parameters))


async def _run_checks(
    checks: Iterable[ConformanceCheck], context: Any, claims: ConformanceClaims, clean_up: CleanUp
) -> tuple[ConformanceResult, ...]:
    results = []
    await claims.create_namespace()
    try:
        for check in checks:
            results.append(await _run_check(check, context))
            await clean_up()
            with contextlib.suppress(ClientError):
                await claims.delete_claims()
    finally:
        await clean_up()
        await claims.clean_up()
    return tuple(results)


async def _run_check(check: ConformanceCheck, context: Any) -> ConformanceResult:
    try:
        await check.run(context)
    except NotConformantError as wrong:
        return ConformanceResult(check.name, ConformanceVerdict.NO, str(wrong), check.hint, check.title)
    except CheckSkippedError as missing:
        return ConformanceResult(check.name, ConformanceVerdict.NOT_TRIED, str(missing), "", check.title)
    except ClientError as refused:
        why = f"the API server objects: {refused}"
        return ConformanceResult(check.name, ConformanceVerdict.NOT_TRIED, why, "", check.title)
    return ConformanceResult(check.name, ConformanceVerdict.YES, title=check.title)
