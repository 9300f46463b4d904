"""Checks of NodePrepareResources: what a driver prepares, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Final

from dray.driver.conformance.check_context import (
    CheckContext,
    PreparedConformanceClaim,
    check_complete_response,
    check_given_back,
    check_response,
    get_response,
)
from dray.driver.conformance.claims import NAMESPACE
from dray.driver.conformance.driver_client import CallFailedError, ConformanceClaimRef
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

_CONCURRENT_CALLS: Final = 8
_NO_CLAIM: Final = "a claim that does not exist"


def _build_unknown_ref() -> ConformanceClaimRef:
    return ConformanceClaimRef(NAMESPACE, "there-is-none", str(uuid.uuid4()))


async def check_prepare(context: CheckContext) -> None:
    """A claim that has a device is prepared, with no other device and for no other request."""
    await context.prepare_new_claim(*context.take_devices(1))


async def check_prepare_complete(context: CheckContext) -> None:
    """The answer names every device of the claim, each once."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    check_complete_response(prepared.response, prepared.devices)


async def check_cdi_specs(context: CheckContext) -> None:
    """Every CDI device that is named is described in one valid file, in JSON or YAML."""
    await _prepare_with_cdi(context)


async def check_cdi_removed(context: CheckContext) -> None:
    """CDI devices of a claim are described in no file once it is given back."""
    await context.unprepare_and_check(await _prepare_with_cdi(context))


async def _prepare_with_cdi(context: CheckContext) -> PreparedConformanceClaim:
    context.require_cdi_dir()
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    if not prepared.response.cdi:
        raise CheckSkippedError("the driver names no CDI devices")
    return prepared


async def check_idempotent(context: CheckContext) -> None:
    """The same call again has the same answer."""
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    for _ in range(2):
        again = await context.prepare_claim(prepared.ref, prepared.devices)
        if again != prepared.response:
            raise NotConformantError(f"the second answer is {again}", f"the first: {prepared.response}")


async def check_versions(context: CheckContext) -> None:
    """A claim has the same answer in both versions, and is given back in either."""
    offered = context.driver_client.identity.versions
    if len(offered) < 2:
        raise CheckSkippedError(f"the driver offers only {offered[0]}")
    prepared = await context.prepare_new_claim(*context.take_devices(1))
    for version in offered:
        response = await context.prepare_claim(prepared.ref, prepared.devices, version)
        if response != prepared.response:
            raise NotConformantError(
                f"{version} answers {response}", f"the same as {offered[0]}: {prepared.response}"
            )
    await context.unprepare_claim(prepared.ref, offered[-1])


async def check_prepare_unknown(context: CheckContext) -> None:
    """A claim that does not exist is refused, and the driver goes on."""
    await context.expect_refusal(_build_unknown_ref(), _NO_CLAIM)


async def check_error_entries(context: CheckContext) -> None:
    """A claim that is refused has an error in an entry of its own, and the call succeeds."""
    await context.expect_refusal_in_entry(_build_unknown_ref(), _NO_CLAIM)


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
    """Several claims of one call are prepared and given back, each with an entry, also after a bad call."""
    devices = context.take_devices(2)
    good = [await context.claims.create_claim(device) for device in devices]
    bad = _build_unknown_ref()
    with contextlib.suppress(CallFailedError):
        await context.driver_client.prepare(good[0], bad, good[1])
    responses = await context.driver_client.prepare(*good)
    for ref, device in zip(good, devices, strict=True):
        check_response(get_response(responses, ref), (device,))
    errors = await context.driver_client.unprepare(good[0], bad, good[1])
    for ref in (*good, bad):
        check_given_back(errors, ref)


async def check_batch_mixed(context: CheckContext) -> None:
    """One bad claim among good ones is refused alone."""
    devices = context.take_devices(2)
    good = [await context.claims.create_claim(device) for device in devices]
    bad = _build_unknown_ref()
    responses = await context.driver_client.prepare(good[0], bad, good[1])
    for ref, device in zip(good, devices, strict=True):
        check_response(get_response(responses, ref), (device,))
    response = get_response(responses, bad)
    if not response.error:
        raise NotConformantError(f"{_NO_CLAIM} was prepared among others: {response}", "an error")


async def check_duplicate(context: CheckContext) -> None:
    """A claim that is named twice in one call is prepared once."""
    (device,) = context.take_devices(1)
    ref = await context.claims.create_claim(device)
    responses = await context.driver_client.prepare(ref, ref)
    check_response(get_response(responses, ref), (device,))
    response = await context.prepare_claim(ref, (device,))
    if response != responses[ref.uid]:
        raise NotConformantError(
            f"afterwards the answer is {response}", f"the first one: {responses[ref.uid]}"
        )


async def check_concurrent(context: CheckContext) -> None:
    """Concurrent calls have one answer."""
    (device,) = context.take_devices(1)
    ref = await context.claims.create_claim(device)
    responses = await asyncio.gather(
        *(context.prepare_claim(ref, (device,)) for _ in range(_CONCURRENT_CALLS))
    )
    if len(set(responses)) > 1:
        raise NotConformantError(
            f"{_CONCURRENT_CALLS} calls at once have {len(set(responses))} different answers: "
            f"{' and '.join(sorted(str(each) for each in set(responses))[:2])}",
            "one answer for all of them",
        )
    await asyncio.gather(*(context.unprepare_claim(ref) for _ in range(_CONCURRENT_CALLS)))


async def check_held_device(context: CheckContext) -> None:
    """A device that the driver prepared for one claim is not prepared for another."""
    (device,) = context.take_devices(1, exclusive=True)
    first = await context.prepare_new_claim(device)
    await context.claims.deallocate(first.ref)
    second = await context.claims.create_claim(device)
    await context.expect_refusal(second, "a second claim on a device that the driver still holds for another")
    await context.unprepare_claim(first.ref)
    await context.prepare_claim(second, (device,))
