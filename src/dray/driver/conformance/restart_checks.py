"""Checks of a driver's checkpoint: over a restart, a reboot, and a crash in the middle of a call.

A reboot empties the directory of CDI files and keeps the driver's own directory; a crash leaves a file
missing or partly written. The suite simulates both by changing only the files that the driver wrote for
claims of the suite.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from dray.driver.conformance import cdi_specs
from dray.driver.conformance.check_context import CheckContext, PreparedConformanceClaim
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

_CALL_INTERVAL_SECONDS: Final = 0.02


async def check_restart(context: CheckContext) -> None:
    """After a restart the same call has the same answer, and the claim can be given back."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.restart_driver()
    await _check_same_response(context, prepared)
    await context.unprepare_and_check(prepared)


async def check_restart_deleted(context: CheckContext) -> None:
    """A claim that is deleted while the driver restarts is given back all the same."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.claims.deallocate(prepared.ref)
    await context.claims.delete_claim(prepared.ref)
    await context.restart_driver()
    await context.unprepare_and_check(prepared)


async def check_restart_held(context: CheckContext) -> None:
    """After a restart the driver still refuses devices that it holds for another claim."""
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
    first, second = [await context.prepare_new_claim(device) for device in context.take_devices(2)]
    _require_own_cdi_devices(first)
    for path in {
        *cdi_specs.check_all_described(directory, first.own_cdi_devices),
        *cdi_specs.check_all_described(directory, second.own_cdi_devices),
    }:
        path.unlink()
    await context.restart_driver()
    await _check_same_response(context, first)
    await context.unprepare_and_check(second)
    await context.unprepare_and_check(first)


async def check_crash(context: CheckContext) -> None:
    """When a CDI file is only partly written, prepare after the restart completes it."""
    directory = context.require_cdi_dir()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    _require_own_cdi_devices(prepared)
    for path in cdi_specs.check_all_described(directory, prepared.own_cdi_devices):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    await context.restart_driver()
    await _check_same_response(context, prepared)
    await context.unprepare_and_check(prepared)


async def check_in_flight(context: CheckContext) -> None:
    """A driver that is restarted in the middle of a call works as before."""
    if context.restart is None:
        await context.restart_driver()
    (device,) = context.take_devices(1)
    before = frozenset() if context.cdi_dir is None else cdi_specs.list_described_devices(context.cdi_dir)
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
    await context.unprepare_and_check(
        PreparedConformanceClaim(ref, (device,), response, frozenset(response.cdi) - before)
    )


async def _check_same_response(context: CheckContext, prepared: PreparedConformanceClaim) -> None:
    again = await context.prepare_claim(prepared.ref, prepared.devices)
    if again != prepared.response:
        raise NotConformantError(f"after the restart the answer is {again}, it was {prepared.response}")


def _require_own_cdi_devices(prepared: PreparedConformanceClaim) -> None:
    if not prepared.own_cdi_devices:
        raise CheckSkippedError("the driver writes no CDI devices for a claim")
