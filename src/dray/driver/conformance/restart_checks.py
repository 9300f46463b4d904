"""Checks of a driver's checkpoint: over a restart, a reboot, and a crash in the middle of a call.

A reboot empties the directory of CDI files and keeps the driver's own directory; a crash leaves a file
missing or partly written. The suite simulates both by changing only files that the driver wrote for claims of
the suite, and only when everything else that the check needs is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from dray.driver.conformance import cdi_specs
from dray.driver.conformance.check_context import CheckContext, PreparedConformanceClaim
from dray.driver.conformance.driver_client import DriverPrepareResponse
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

_CALL_INTERVAL_SECONDS: Final = 0.02


async def check_restart(context: CheckContext) -> None:
    """After a restart the same call has the same answer, and the claim can be given back."""
    context.require_restart()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.restart_driver()
    await _check_same_response(context, prepared)
    await context.unprepare_claim(prepared.ref)


async def check_restart_deleted(context: CheckContext) -> None:
    """A claim that is deleted while the driver restarts is given back all the same."""
    context.require_restart()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.claims.deallocate(prepared.ref)
    await context.claims.delete_claim(prepared.ref)
    await context.restart_driver()
    await context.unprepare_claim(prepared.ref)


async def check_restart_removed(context: CheckContext) -> None:
    """CDI devices of a claim are described in no file once it is given back after a restart."""
    context.require_cdi_dir()
    context.require_restart()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    _require_own_cdi_devices(prepared)
    await context.restart_driver()
    await context.unprepare_and_check(prepared)


async def check_restart_held(context: CheckContext) -> None:
    """After a restart the driver still refuses devices that it holds for another claim."""
    context.require_restart()
    (device,) = context.take_devices(1, exclusive=True)
    first = await context.prepare_new_claim(device)
    await context.restart_driver()
    await context.claims.deallocate(first.ref)
    second = await context.claims.create_claim(device)
    await context.expect_refusal(second, "a second claim on a device that was held before the restart")
    await context.unprepare_claim(first.ref)


async def check_reboot(context: CheckContext) -> None:
    """When CDI files are gone after a restart, prepare writes them again and unprepare works without them."""
    directory = context.require_cdi_dir()
    context.require_restart()
    first, second = [await context.prepare_new_claim(device) for device in context.take_devices(2)]
    for path in [path for each in (first, second) for path in _find_own_files(directory, each)]:
        path.unlink()
    await context.restart_driver()
    await _check_same_response(context, first)
    await context.unprepare_and_check(second)
    await context.unprepare_and_check(first)


async def check_crash(context: CheckContext) -> None:
    """When a CDI file is only partly written, prepare after the restart completes it."""
    directory = context.require_cdi_dir()
    context.require_restart()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    for path in _find_own_files(directory, prepared):
        _cut_file(path)
    await context.restart_driver()
    await _check_same_response(context, prepared)
    await context.unprepare_and_check(prepared)


async def check_in_flight(context: CheckContext) -> None:
    """A driver that is restarted in the middle of a call prepares the claim as it would have before."""
    context.require_restart()
    (device,) = context.take_devices(1)
    whole = await context.prepare_new_claim(device)
    await context.unprepare_claim(whole.ref)
    await context.claims.delete_claims()
    ref = await context.claims.create_claim(device)

    async def call_repeatedly() -> None:
        while True:
            # The restart may cut calls off; only the state after it counts.
            with contextlib.suppress(NotConformantError):
                await context.driver_client.prepare(ref)
            await asyncio.sleep(_CALL_INTERVAL_SECONDS)

    calling = asyncio.create_task(call_repeatedly())
    try:
        await asyncio.sleep(_CALL_INTERVAL_SECONDS)
        await context.restart_driver()
    finally:
        calling.cancel()
        await asyncio.wait([calling])
    response = await context.prepare_claim(ref, (device,))
    if _count_cdi_devices(response) != _count_cdi_devices(whole.response):
        raise NotConformantError(
            f"after the restart the answer is {response}",
            f"as much as for a claim before it: {whole.response}",
        )
    await context.unprepare_claim(ref)


def _cut_file(path: Path) -> None:
    """Leave only the beginning of a file, as a crash would, so little that it describes no device."""
    content = path.read_bytes()
    while content and cdi_specs.list_described_devices(path.parent).by_file.get(path):
        content = content[: len(content) // 2]
        path.write_bytes(content)


def _count_cdi_devices(response: DriverPrepareResponse) -> dict[tuple[str, str], int]:
    return {(each.pool, each.device): len(each.cdi) for each in response.devices}


async def _check_same_response(context: CheckContext, prepared: PreparedConformanceClaim) -> None:
    again = await context.prepare_claim(prepared.ref, prepared.devices)
    if again != prepared.response:
        raise NotConformantError(
            f"after the restart the answer is {again}", f"the same as before: {prepared.response}"
        )


def _require_own_cdi_devices(prepared: PreparedConformanceClaim) -> None:
    if not prepared.own_cdi_devices:
        raise CheckSkippedError("the driver writes no CDI devices for a claim")


def _find_own_files(directory: Path, prepared: PreparedConformanceClaim) -> list[Path]:
    """Return the files that the driver wrote for the claim alone; skips the check when there is none."""
    _require_own_cdi_devices(prepared)
    return cdi_specs.find_own_files(directory, prepared.described_before, prepared.own_cdi_devices)
