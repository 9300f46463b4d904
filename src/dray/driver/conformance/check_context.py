"""The context of a check: the driver's client, claims, free devices, and the steps that checks share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from dray.client.client import Client
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.claims import REQUEST, ConformanceClaims
from dray.driver.conformance.driver_client import (
    REFUSAL_TIMEOUT_SECONDS,
    CallFailedError,
    ConformanceClaimRef,
    ConformanceDriverClient,
    DriverPrepareResponse,
)
from dray.driver.conformance.free_devices import FreeDevice
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

CANNOT_RESTART: Final = "the suite cannot restart the driver: give --restart COMMAND or --supervised"


_LOST_CALL_CODES: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""The codes of calls that no driver has answered, which are no refusals."""


class PreparedConformanceClaim(NamedTuple):
    """A prepared claim, and the CDI devices that were described before it."""

    ref: ConformanceClaimRef
    devices: tuple[FreeDevice, ...]
    response: DriverPrepareResponse
    described_before: cdi_specs.DescribedDevices

    @property
    def own_cdi_devices(self) -> frozenset[str]:
        """The names of the CDI devices that the driver described only for the claim."""
        return frozenset(self.response.cdi) - self.described_before.names


@dataclass
class CheckContext:
    """Everything that a check uses."""

    socket: Path
    driver_client: ConformanceDriverClient
    client: Client
    claims: ConformanceClaims
    node: str
    free_devices: Sequence[FreeDevice]
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None

    def take_devices(self, count: int, *, exclusive: bool = False) -> tuple[FreeDevice, ...]:
        """Return devices for as many claims; a shared device serves several claims."""
        usable = _exclude_overlapping(each for each in self.free_devices if not (exclusive and each.shared))
        shared = [each for each in usable if each.shared]
        while shared and len(usable) < count:
            usable += shared
        if len(usable) < count:
            what = f"free {'exclusive ' if exclusive else ''}device{'' if count == 1 else 's'}"
            raise CheckSkippedError(f"it needs {count} {what} of this driver, there are {len(usable)}")
        return tuple(usable[:count])

    def require_cdi_dir(self) -> Path:
        if self.cdi_dir is None:
            raise CheckSkippedError("the directory of CDI files is not known: give --cdi-dir")
        return self.cdi_dir

    def require_restart(self) -> None:
        if self.restart is None:
            raise CheckSkippedError(CANNOT_RESTART)

    # --- shared steps ---

    async def prepare_new_claim(self, *devices: FreeDevice) -> PreparedConformanceClaim:
        """Create a claim with these devices, prepare it and check the response."""
        before = cdi_specs.list_described_devices(self.cdi_dir)
        ref = await self.claims.create_claim(*devices)
        response = await self.prepare_claim(ref, devices)
        return PreparedConformanceClaim(ref, devices, response, before)

    async def prepare_claim(
        self, ref: ConformanceClaimRef, devices: Sequence[FreeDevice], version: str = ""
    ) -> DriverPrepareResponse:
        """Prepare a claim and check the response."""
        response = get_response(await self.driver_client.prepare(ref, version=version), ref)
        check_response(response, devices)
        if self.cdi_dir is not None:
            cdi_specs.check_all_described(self.cdi_dir, response.cdi)
        return response

    async def expect_refusal(self, ref: ConformanceClaimRef, what: str) -> str:
        """Prepare a claim that must be refused, and return the driver's error.

        The protocol allows an error for the claim, no entry for it, and a call that fails as a whole.
        """
        try:
            responses = await self.driver_client.prepare(ref, timeout=REFUSAL_TIMEOUT_SECONDS)
        except CallFailedError as refused:
            if refused.code in _LOST_CALL_CODES:
                raise
            error = str(refused)
        else:
            response = responses.get(ref.uid, DriverPrepareResponse(error="no entry"))
            if not response.error:
                raise NotConformantError(f"{what} was prepared: {response}", "an error")
            error = response.error
        await self.driver_client.prepare()  # it still answers
        return error

    async def expect_refusal_in_entry(self, ref: ConformanceClaimRef, what: str) -> None:
        """Prepare a claim that must be refused by an error of its own, without devices."""
        responses = await self.driver_client.prepare(ref, timeout=REFUSAL_TIMEOUT_SECONDS)
        response = get_response(responses, ref)
        if not response.error:
            raise NotConformantError(f"{what} was prepared: {response}", "an error")
        if response.devices:
            names = ", ".join(each.device for each in response.devices)
            raise NotConformantError(
                f"{what} was refused and has devices all the same: {names}", "an error without devices"
            )

    async def unprepare_and_check(self, prepared: PreparedConformanceClaim, version: str = "") -> None:
        """Unprepare a claim, and check that its CDI devices are no longer described."""
        await self.unprepare_claim(prepared.ref, version)
        if self.cdi_dir is not None:
            cdi_specs.check_none_described(self.cdi_dir, prepared.own_cdi_devices)

    async def unprepare_claim(self, ref: ConformanceClaimRef, version: str = "") -> None:
        errors = await self.driver_client.unprepare(ref, version=version)
        check_given_back(errors, ref)

    async def restart_driver(self) -> None:
        """Restart the driver, and wait until it answers."""
        if self.restart is None:
            raise CheckSkippedError(CANNOT_RESTART)
        await self.restart()
        await self.driver_client.wait_until_serving()


def _exclude_overlapping(devices: Iterable[FreeDevice]) -> list[FreeDevice]:
    """Return devices that can be allocated together: one of those that consume the same counters."""
    chosen: list[FreeDevice] = []
    consumed: set[tuple[str, str]] = set()
    for each in devices:
        counters = {(each.pool, name) for name in each.draws}
        if not counters & consumed:
            chosen.append(each)
            consumed |= counters
    return chosen


def get_response(
    responses: Mapping[str, DriverPrepareResponse], ref: ConformanceClaimRef
) -> DriverPrepareResponse:
    """Return the response for a claim."""
    response = responses.get(ref.uid)
    if response is None:
        raise NotConformantError(
            f"the answer to NodePrepareResources has {_count_entries(responses)} and none for the claim",
            f"an entry `{ref.uid}`, the uid of the claim",
        )
    return response


def check_given_back(errors: Mapping[str, str], ref: ConformanceClaimRef) -> None:
    """Check that an answer to NodeUnprepareResources has an entry for a claim, without an error."""
    if ref.uid not in errors:
        raise NotConformantError(
            f"the answer to NodeUnprepareResources has {_count_entries(errors)} and none for the claim",
            f"an entry `{ref.uid}`, the uid of the claim, even an empty one",
        )
    if errors[ref.uid]:
        raise NotConformantError(
            f"the driver does not give the claim back: {errors[ref.uid]}", "an entry without an error"
        )


def _count_entries(entries: Mapping[str, object]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries)} entries"


def check_response(response: DriverPrepareResponse, devices: Sequence[FreeDevice]) -> None:
    """Check that a response has only devices of a claim, for its requests, with valid CDI names."""
    if response.error:
        raise NotConformantError(
            f"the driver refuses a claim that has its devices: {response.error}", "devices and no error"
        )
    allocated = {(each.pool, each.name) for each in devices}
    for each in response.devices:
        if (each.pool, each.device) not in allocated:
            raise NotConformantError(
                f"the driver prepared `{each.pool}/{each.device}`, which the claim does not have",
                f"only {_format_devices(devices)}",
            )
    requests = {f"{REQUEST}-{i}" for i in range(len(devices))}
    for each in response.devices:
        if set(each.requests) - requests:
            raise NotConformantError(
                f"the claim has no request `{min(set(each.requests) - requests)}`",
                f"{' or '.join(f'`{name}`' for name in sorted(requests))}, or none for all requests",
            )
    cdi_specs.check_device_names(response.cdi)


def check_complete_response(response: DriverPrepareResponse, devices: Sequence[FreeDevice]) -> None:
    """Check that a response has every device of a claim, each once."""
    named = [(each.pool, each.device) for each in response.devices]
    for each in devices:
        count = named.count((each.pool, each.name))
        if count != 1:
            raise NotConformantError(
                f"the answer names `{each.pool}/{each.name}` {count} times",
                f"every device of the claim once: {_format_devices(devices)}",
            )


def _format_devices(devices: Iterable[FreeDevice]) -> str:
    return ", ".join(sorted({f"`{each.pool}/{each.name}`" for each in devices}))
