"""Checks of NodeUnprepareResources, and of calls to prepare that arrive after it."""

from __future__ import annotations

import uuid

from dray.driver.conformance.check_context import CheckContext
from dray.driver.conformance.claims import NAMESPACE
from dray.driver.conformance.driver_client import ConformanceClaimRef


async def check_unprepare(context: CheckContext) -> None:
    """A claim is given back, and its device can be prepared for the next one."""
    devices = context.take_devices(1)
    prepared = await context.prepare_new_claim(*devices)
    await context.unprepare_claim(prepared.ref)
    await context.claims.delete_claims()
    await context.prepare_new_claim(*devices)


async def check_unprepare_twice(context: CheckContext) -> None:
    """A claim that was given back is given back again without an error."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.unprepare_claim(prepared.ref)
    await context.unprepare_claim(prepared.ref)


async def check_unprepare_unknown(context: CheckContext) -> None:
    """A claim that does not exist is given back without an error."""
    await context.unprepare_claim(ConformanceClaimRef(NAMESPACE, "there-was-none", str(uuid.uuid4())))


async def check_unprepare_never_prepared(context: CheckContext) -> None:
    """A claim that exists and was never prepared is given back without an error."""
    await context.unprepare_claim(await context.claims.create_claim(*context.take_devices(1)))


async def check_force_delete(context: CheckContext) -> None:
    """A claim that is deleted while it is prepared is given back from the driver's own records."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.claims.deallocate(prepared.ref)
    await context.claims.delete_claim(prepared.ref)
    await context.unprepare_claim(prepared.ref)


async def check_late_prepare(context: CheckContext) -> None:
    """A call to prepare that arrives after the claim was given back is refused."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.unprepare_claim(prepared.ref)
    await context.expect_refusal(
        prepared.ref, "a claim that was given back, and whose pod is the same as before,"
    )


async def check_late_prepare_deallocated(context: CheckContext) -> None:
    """A call to prepare that arrives after the claim lost its devices is refused."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.unprepare_claim(prepared.ref)
    await context.claims.deallocate(prepared.ref)
    await context.expect_refusal(prepared.ref, "a claim that was given back and has no devices any more")


async def check_next_pod(context: CheckContext) -> None:
    """A claim that was given back is prepared again for the next pod that uses it."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    await context.unprepare_claim(prepared.ref)
    await context.claims.replace_pod(prepared.ref)
    await context.prepare_claim(prepared.ref, prepared.devices)
