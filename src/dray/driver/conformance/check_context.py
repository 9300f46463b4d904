"""What a check works with: the line to the driver, claims, spare devices, and the judgements they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dray.client.client import Client
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.claims import REQUEST, ConformanceClaims
from dray.driver.conformance.driver_client import (
    ConformanceClaimRef,
    ConformanceDriverClient,
    DriverPrepareResponse,
)
from dray.driver.conformance.free_devices import FreeDevice
from dray.driver.conformance.results import CheckSkippedError, NotConformantError


class PreparedConformanceClaim(NamedTuple):
    """A claim that the driver made ready, and the names of its CDI devices that are gone without it."""

    ref: ConformanceClaimRef
    devices: tuple[FreeDevice, ...]
    response: DriverPrepareResponse
    own_cdi_devices: frozenset[str]


@dataclass
class CheckContext:
    """The place where checks are done."""

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
        """Devices for as many claims; a shared one serves several."""
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
            raise CheckSkippedError("nobody said where the driver writes CDI files: give --cdi-dir")
        return self.cdi_dir

    # --- steps that many checks take ---

    async def prepare_new_claim(self, *devices: FreeDevice) -> PreparedConformanceClaim:
        """A new claim for these devices, prepared and found to be so."""
        self.cdi_devices_before = (
            frozenset() if self.cdi_dir is None else cdi_specs.list_described_devices(self.cdi_dir)
        )
        ref = await self.claims.create_claim(*devices)
        answer = await self.prepare_claim(ref, devices)
        return PreparedConformanceClaim(ref, devices, answer, frozenset(answer.cdi) - self.cdi_devices_before)

    async def prepare_claim(
        self, ref: ConformanceClaimRef, devices: Sequence[FreeDevice], version: str = ""
    ) -> DriverPrepareResponse:
        """Prepare a claim and judge the answer."""
        answer = get_response(await self.driver_client.prepare(ref, version=version), ref)
        check_response(answer, devices)
        if self.cdi_dir is not None:
            cdi_specs.check_all_described(self.cdi_dir, answer.cdi)
        return answer

    async def expect_refusal(self, ref: ConformanceClaimRef, what: str) -> str:
        """Prepare a claim that may not be prepared; what the driver says about it."""
        answer = get_response(await self.driver_client.prepare(ref), ref)
        if not answer.error:
            raise NotConformantError(f"{what} was prepared: {answer}")
        if answer.devices:
            names = ", ".join(made.device for made in answer.devices)
            raise NotConformantError(f"{what} was refused and has devices all the same: {names}")
        await self.driver_client.prepare()  # it still answers
        return answer.error

    async def unprepare_and_check(self, prepared: PreparedConformanceClaim, version: str = "") -> None:
        """Give a claim back and look whether its CDI devices are gone."""
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
        """Have the driver restarted, and wait until it answers."""
        if self.restart is None:
            raise CheckSkippedError(
                "nobody said how to restart the driver: give --restart COMMAND or --supervised"
            )
        await self.restart()
        await self.driver_client.wait_until_serving()


def _exclude_overlapping(devices: Iterable[FreeDevice]) -> list[FreeDevice]:
    """Devices that can be had together: of those that draw from the same counters, one."""
    found: list[FreeDevice] = []
    drawn: set[tuple[str, str]] = set()
    for each in devices:
        draws = {(each.pool, name) for name in each.draws}
        if not draws & drawn:
            found.append(each)
            drawn |= draws
    return found


def get_response(
    responses: dict[str, DriverPrepareResponse], ref: ConformanceClaimRef
) -> DriverPrepareResponse:
    """What a reply says about a claim."""
    answer = responses.get(ref.uid)
    if answer is None:
        raise NotConformantError("the answer to NodePrepareResources has no entry for the claim")
    return answer


def check_response(response: DriverPrepareResponse, devices: Sequence[FreeDevice]) -> None:
    """`NotConformantError` unless an answer has exactly the devices of a claim, for its requests, with proper
    names.
    """
    if response.error:
        raise NotConformantError(f"the driver refuses a claim that has its devices: {response.error}")
    wanted = {(spare.pool, spare.name) for spare in devices}
    got = {(made.pool, made.device) for made in response.devices}
    if got - wanted:
        pool, device = min(got - wanted)
        raise NotConformantError(f"the claim has no device `{pool}/{device}`, and the driver prepared it")
    if wanted - got:
        pool, device = min(wanted - got)
        raise NotConformantError(f"device `{pool}/{device}` of the claim is missing in the answer")
    if len(response.devices) > len(wanted):
        raise NotConformantError(f"a device of the claim is there more than once in the answer: {response}")
    requests = {f"{REQUEST}-{i}" for i in range(len(devices))}
    for made in response.devices:
        if set(made.requests) - requests:
            raise NotConformantError(f"the claim has no request `{min(set(made.requests) - requests)}`")
    cdi_specs.check_device_names(response.cdi)
