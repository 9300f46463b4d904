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
from dray.driver.conformance.check_context import CheckContext, PreparedConformanceClaim
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

_CALL_INTERVAL_SECONDS: Final = 0.02


async def check_restart(context: CheckContext) -> None:
    """After a restart the same call has the same answer, and the claim can be given back."""
    done = await context.prepare_new_claim(*context.take_devices(1))
    await context.restart_driver()
    await _check_same_response(context, done)
    await context.unprepare_and_check(done)


async def check_restart_deleted(context: CheckContext) -> None:
    """A claim that is deleted while the driver restarts is given back all the same."""
    done = await context.prepare_new_claim(*context.take_devices(1))
    await context.claims.deallocate(done.ref)
    await context.claims.delete_claim(done.ref)
    await context.restart_driver()
    await context.unprepare_and_check(done)


async def check_restart_held(context: CheckContext) -> None:
    """After a restart the driver still knows which devices it holds."""
    (spare,) = context.take_devices(1, exclusive=True)
    first = await context.prepare_new_claim(spare)
    await context.restart_driver()
    await context.claims.deallocate(first.ref)
    second = await context.claims.create_claim(spare)
    await context.expect_refusal(second, "a second claim on a device that was held before the restart")
    await context.unprepare_claim(first.ref)


async def check_reboot(context: CheckContext) -> None:
    """When CDI files are gone after a restart, prepare writes them anew and unprepare does not miss them."""
    directory = context.require_cdi_dir()
    first, second = [await context.prepare_new_claim(spare) for spare in context.take_devices(2)]
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
    """When a CDI file is only half written, prepare after the restart makes it whole."""
    directory = context.require_cdi_dir()
    done = await context.prepare_new_claim(*context.take_devices(1))
    _require_own_cdi_devices(done)
    for path in cdi_specs.check_all_described(directory, done.own_cdi_devices):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    await context.restart_driver()
    await _check_same_response(context, done)
    await context.unprepare_and_check(done)


async def check_in_flight(context: CheckContext) -> None:
    """A driver that is restarted in the middle of a call is as good as before."""
    if context.restart is None:
        await context.restart_driver()
    (spare,) = context.take_devices(1)
    before = frozenset() if context.cdi_dir is None else cdi_specs.list_described_devices(context.cdi_dir)
    ref = await context.claims.create_claim(spare)

    async def asked() -> None:
        while True:
            with contextlib.suppress(
                NotConformantError
            ):  # calls may be cut off; what counts is what comes after
                await context.driver_client.prepare(ref)
            await asyncio.sleep(_CALL_INTERVAL_SECONDS)

    asking = asyncio.create_task(asked())
    try:
        await asyncio.sleep(_CALL_INTERVAL_SECONDS)
        await context.restart_driver()
    finally:
        asking.cancel()
        await asyncio.wait([asking])
    answer = await context.prepare_claim(ref, (spare,))
    await context.unprepare_and_check(
        PreparedConformanceClaim(ref, (spare,), answer, frozenset(answer.cdi) - before)
    )


async def _check_same_response(context: CheckContext, prepared: PreparedConformanceClaim) -> None:
    again = await context.prepare_claim(prepared.ref, prepared.devices)
    if again != prepared.response:
        raise NotConformantError(f"after the restart the answer is {again}, it was {prepared.response}")


def _require_own_cdi_devices(prepared: PreparedConformanceClaim) -> None:
    if not prepared.own_cdi_devices:
        raise CheckSkippedError("the driver writes no CDI devices for a claim")
