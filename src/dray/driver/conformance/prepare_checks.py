"""Checks of NodePrepareResources: what a driver prepares, and what it refuses."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from dray.driver.conformance import cdi_specs
from dray.driver.conformance.check_context import CheckContext, check_response, get_response
from dray.driver.conformance.claims import NAMESPACE
from dray.driver.conformance.driver_client import ConformanceClaimRef
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

_CONCURRENT_CALLS: Final = 8


async def check_prepare(context: CheckContext) -> None:
    """A claim that has a device gets exactly that device."""
    await context.prepare_new_claim(*context.take_devices(1))


async def check_cdi_specs(context: CheckContext) -> None:
    """Every CDI device that is named is described in one valid file, and in none after unprepare."""
    context.require_cdi_dir()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    if not prepared.response.cdi:
        raise CheckSkippedError("the driver names no CDI devices")
    await context.unprepare_and_check(prepared)


async def check_idempotent(context: CheckContext) -> None:
    """The same call again has the same answer."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    for _ in range(2):
        again = await context.prepare_claim(prepared.ref, prepared.devices)
        if again != prepared.response:
            raise NotConformantError(f"the second answer differs: {again} instead of {prepared.response}")


async def check_versions(context: CheckContext) -> None:
    """A claim has the same answer in both versions, and is given back in either."""
    served = context.driver_client.identity.versions
    if len(served) < 2:
        raise CheckSkippedError(f"the driver serves only {served[0]}")
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    for version in served:
        response = await context.prepare_claim(prepared.ref, prepared.devices, version)
        if response != prepared.response:
            raise NotConformantError(
                f"{version} answers {response}, {served[0]} answered {prepared.response}"
            )
    await context.unprepare_and_check(prepared, served[-1])


async def check_prepare_unknown(context: CheckContext) -> None:
    """A claim that does not exist is refused by an entry of its own."""
    await context.expect_refusal(
        ConformanceClaimRef(NAMESPACE, "there-is-none", str(uuid.uuid4())), "a claim that does not exist"
    )


async def check_prepare_unallocated(context: CheckContext) -> None:
    """A claim without devices is refused."""
    await context.expect_refusal(
        await context.claims.create_unallocated_claim(), "a claim without an allocation"
    )


async def check_prepare_replaced(context: CheckContext) -> None:
    """A claim that was deleted and created again under the same name is refused under its old uid."""
    (device,) = context.take_devices(1)
    old = await context.claims.create_unallocated_claim()
    await context.claims.delete_claim(old)
    new = await context.claims.create_unallocated_claim(name=old.name)
    await context.claims.allocate(new, (device,))
    await context.expect_refusal(old, "a claim whose uid is not that of the object")
    await context.prepare_claim(new, (device,))


async def check_batch(context: CheckContext) -> None:
    """One bad claim among good ones is refused alone, and every claim of a call has an entry."""
    devices = context.take_devices(2)
    good = [await context.claims.create_claim(device) for device in devices]
    bad = ConformanceClaimRef(NAMESPACE, "there-is-none", str(uuid.uuid4()))
    responses = await context.driver_client.prepare(good[0], bad, good[1])
    for ref, device in zip(good, devices, strict=True):
        check_response(get_response(responses, ref), (device,))
    if not get_response(responses, bad).error:
        raise NotConformantError("a claim that does not exist was prepared among others")
    errors = await context.driver_client.unprepare(good[0], bad, good[1])
    for ref in (*good, bad):
        if ref.uid not in errors:
            raise NotConformantError(
                "the answer to NodeUnprepareResources has no entry for one of three claims"
            )
        if errors[ref.uid]:
            raise NotConformantError(f"one of three claims is not given back: {errors[ref.uid]}")


async def check_duplicate(context: CheckContext) -> None:
    """A claim that is named twice in one call is prepared once."""
    (device,) = context.take_devices(1)
    ref = await context.claims.create_claim(device)
    responses = await context.driver_client.prepare(ref, ref)
    check_response(get_response(responses, ref), (device,))
    response = await context.prepare_claim(ref, (device,))
    if response != responses[ref.uid]:
        raise NotConformantError(f"afterwards the answer is {response}, it was {responses[ref.uid]}")


async def check_concurrent(context: CheckContext) -> None:
    """Concurrent calls have one answer, and leave nothing when the claim is given back."""
    (device,) = context.take_devices(1)
    ref = await context.claims.create_claim(device)
    before = frozenset() if context.cdi_dir is None else cdi_specs.list_described_devices(context.cdi_dir)
    responses = await asyncio.gather(
        *(context.prepare_claim(ref, (device,)) for _ in range(_CONCURRENT_CALLS))
    )
    if len(set(responses)) > 1:
        raise NotConformantError(
            f"{_CONCURRENT_CALLS} calls at once have {len(set(responses))} different answers"
        )
    await asyncio.gather(*(context.unprepare_claim(ref) for _ in range(_CONCURRENT_CALLS)))
    if context.cdi_dir is not None:
        cdi_specs.check_none_described(context.cdi_dir, frozenset(responses[0].cdi) - before)


async def check_held_device(context: CheckContext) -> None:
    """A device that the driver prepared for one claim is not prepared for another."""
    (device,) = context.take_devices(1, exclusive=True)
    first = await context.prepare_new_claim(device)
    await context.claims.deallocate(first.ref)
    second = await context.claims.create_claim(device)
    await context.expect_refusal(second, "a second claim on a device that the driver still holds for another")
    await context.unprepare_claim(first.ref)
    await context.prepare_claim(second, (device,))
