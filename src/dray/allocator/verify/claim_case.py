"""One claim with its allocation, as the rules look at it."""

from __future__ import annotations

from dataclasses import dataclass

from dray.allocator.verify.available_devices import Lending, Lent, Place
from dray.allocator.verify.findings import Finding, Given, Rule
from dray.api.resource import (
    AllocationResult,
    DeviceClaim,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.values.quantity import Quantity


def place_of(result: DeviceRequestAllocationResult) -> Place:
    """Which device a result names."""
    return (result.driver, result.pool, result.device)


@dataclass(frozen=True, slots=True)
class Part:
    """One result, with the request it is for and what that asks; nothing is asked by what does not exist."""

    result: DeviceRequestAllocationResult
    request: str
    ask: ExactDeviceRequest | DeviceSubRequest | None

    @property
    def asked(self) -> dict[str, Quantity]:
        """The amounts asked for."""
        return self.ask.capacity.requests if self.ask is not None and self.ask.capacity is not None else {}

    @property
    def is_admin(self) -> bool:
        """Whether the request asks for admin access."""
        return isinstance(self.ask, ExactDeviceRequest) and bool(self.ask.admin_access)

    def __str__(self) -> str:
        return "/".join(place_of(self.result))


@dataclass(frozen=True, slots=True)
class Case:
    """One claim, its allocation, and the world around them."""

    given: Given
    lending: Lending
    claim: ResourceClaim
    allocation: AllocationResult

    @property
    def name(self) -> str:
        """The claim as people call it."""
        meta = self.claim.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def parts(self) -> tuple[Part, ...]:
        """The results, each with its request."""
        known = _asks(self.claim.spec.devices)
        return tuple(
            Part(result, *known.get(result.request, ("", None))) for result in self.allocation.devices.results
        )

    def lent(self, part: Part) -> Lent | None:
        """The device of a part as the node sees it."""
        return self.lending.devices.get(place_of(part.result))

    def finding(self, rule: Rule, text: str) -> Finding:
        """What is wrong with this claim."""
        return Finding(rule, self.name, text)


def _asks(claim: DeviceClaim) -> dict[str, tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    """By the name a result uses: the request, and what is asked there."""
    known: dict[str, tuple[str, ExactDeviceRequest | DeviceSubRequest]] = {}
    for request in claim.requests:
        if request.exactly is not None:
            known[request.name] = (request.name, request.exactly)
        for sub in request.first_available:
            known[f"{request.name}/{sub.name}"] = (request.name, sub)
    return known
