"""The conformance suite: runs its checks against one driver.

Theory of operation: every check creates its own claims and ends with a driver that holds none of them, so
that one failure does not cause the next. After each check the suite unprepares its claims and then deletes
them from the API.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.api.resource import ResourceClaim, ResourceSlice
from dray.client.client import Client
from dray.client.errors import ClientError
from dray.driver.conformance import classic_checks, free_devices
from dray.driver.conformance.check_context import CheckContext
from dray.driver.conformance.check_table import CHECKS, CLASSIC_CHECKS, ConformanceCheck
from dray.driver.conformance.claims import ConformanceClaims, ConformanceClaimSettings
from dray.driver.conformance.driver_client import connect_driver, get_registration
from dray.driver.conformance.results import (
    CheckSkippedError,
    ConformanceLevel,
    ConformanceResult,
    ConformanceVerdict,
    NotConformantError,
)
from dray.errors import InputError
from dray.wire import grpc_services, unix_sockets

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

    def count(self, verdict: ConformanceVerdict, level: ConformanceLevel | None = None) -> int:
        """Count the checks with this verdict, of one level or of both."""
        return sum(each.verdict is verdict and level in (None, each.level) for each in self.results)

    @property
    def is_conformant(self) -> bool:
        """Whether no required check failed, and at least one check succeeded."""
        failed = self.count(ConformanceVerdict.NO, ConformanceLevel.REQUIRED)
        return not failed and bool(self.count(ConformanceVerdict.YES))

    @property
    def is_strictly_conformant(self) -> bool:
        """Whether no check failed, required or advised, and at least one succeeded."""
        return self.is_conformant and not self.count(ConformanceVerdict.NO)

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
    verdict, why, hint, found, expected = ConformanceVerdict.YES, "", "", "", ""
    try:
        await check.run(context)
    except NotConformantError as wrong:
        verdict, why, hint = ConformanceVerdict.NO, str(wrong), check.hint
        found, expected = wrong.found, wrong.expected
    except CheckSkippedError as missing:
        verdict, why = ConformanceVerdict.NOT_TRIED, str(missing)
    except ClientError as refused:
        verdict, why = ConformanceVerdict.NOT_TRIED, f"the API server objects: {refused}"
    return ConformanceResult(check.name, verdict, why, hint, check.title, check.level, expected, found)
