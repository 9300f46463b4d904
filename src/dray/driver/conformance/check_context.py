"""The context of a check: the driver's client, claims, free devices, and the steps that checks share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from dray.client.client import Client
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.claims import REQUEST, ConformanceClaims
from dray.driver.conformance.driver_client import (
    REFUSAL_TIMEOUT_SECONDS,
    ConformanceClaimRef,
    ConformanceDriverClient,
    DriverPrepareResponse,
)
from dray.driver.conformance.free_devices import FreeDevice
from dray.driver.conformance.results import CheckSkippedError, NotConformantError

CANNOT_RESTART: Final = "the suite cannot restart the driver: give --restart COMMAND or --supervised"


class PreparedConformanceClaim(NamedTuple):
    """A prepared claim, and the names of the CDI devices that the driver described only for it."""

    ref: ConformanceClaimRef
    devices: tuple[FreeDevice, ...]
    response: DriverPrepareResponse
    own_cdi_devices: frozenset[str]


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
    cdi_devices_before: frozenset[str] = field(default_factory=frozenset)

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

    # --- shared steps ---

    async def prepare_new_claim(self, *devices: FreeDevice) -> PreparedConformanceClaim:
        """Create a claim with these devices, prepare it and check the response."""
        self.cdi_devices_before = (
            frozenset() if self.cdi_dir is None else cdi_specs.list_described_devices(self.cdi_dir)
        )
        ref = await self.claims.create_claim(*devices)
        response = await self.prepare_claim(ref, devices)
        own_cdi_devices = frozenset(response.cdi) - self.cdi_devices_before
        return PreparedConformanceClaim(ref, devices, response, own_cdi_devices)

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
        """Prepare a claim that must be refused, and return the driver's error."""
        responses = await self.driver_client.prepare(ref, timeout=REFUSAL_TIMEOUT_SECONDS)
        response = get_response(responses, ref)
        if not response.error:
            raise NotConformantError(f"{what} was prepared: {response}")
        if response.devices:
            names = ", ".join(each.device for each in response.devices)
            raise NotConformantError(f"{what} was refused and has devices all the same: {names}")
        await self.driver_client.prepare()  # it still answers
        return response.error

    async def unprepare_and_check(self, prepared: PreparedConformanceClaim, version: str = "") -> None:
        """Unprepare a claim, and check that its CDI devices are no longer described."""
        await self.unprepare_claim(prepared.ref, version)
        if self.cdi_dir is not None:
            cdi_specs.check_none_described(self.cdi_dir, prepared.own_cdi_devices)

    async def unprepare_claim(self, ref: ConformanceClaimRef, version: str = "") -> None:
        errors = await self.driver_client.unprepare(ref, version=version)
        if ref.uid not in errors:
            raise NotConformantError("the answer to NodeUnprepareResources has no entry for the claim")
        if errors[ref.uid]:
            raise NotConformantError(f"the driver does not give the claim back: {errors[ref.uid]}")

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
    responses: dict[str, DriverPrepareResponse], ref: ConformanceClaimRef
) -> DriverPrepareResponse:
    """Return the response for a claim."""
    response = responses.get(ref.uid)
    if response is None:
        raise NotConformantError("the answer to NodePrepareResources has no entry for the claim")
    return response


def check_response(response: DriverPrepareResponse, devices: Sequence[FreeDevice]) -> None:
    """Check that a response has exactly the devices of a claim, for its requests, with valid CDI names."""
    if response.error:
        raise NotConformantError(f"the driver refuses a claim that has its devices: {response.error}")
    expected = {(each.pool, each.name) for each in devices}
    reported = {(each.pool, each.device) for each in response.devices}
    if reported - expected:
        pool, device = min(reported - expected)
        raise NotConformantError(f"the claim has no device `{pool}/{device}`, and the driver prepared it")
    if expected - reported:
        pool, device = min(expected - reported)
        raise NotConformantError(f"device `{pool}/{device}` of the claim is missing in the answer")
    if len(response.devices) > len(expected):
        raise NotConformantError(f"a device of the claim is there more than once in the answer: {response}")
    requests = {f"{REQUEST}-{i}" for i in range(len(devices))}
    for each in response.devices:
        if set(each.requests) - requests:
            raise NotConformantError(f"the claim has no request `{min(set(each.requests) - requests)}`")
    cdi_specs.check_device_names(response.cdi)
