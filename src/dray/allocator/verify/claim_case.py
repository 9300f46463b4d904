"""One claim with its allocation, as the rules read it."""

from __future__ import annotations

from dataclasses import dataclass

from dray.allocator.verify.available_devices import AvailableDevice, AvailableDevices, DevicePath
from dray.allocator.verify.findings import AllocationFinding, AllocationRule, VerificationInput
from dray.api.resource import (
    AllocationResult,
    DeviceClaim,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.values.quantity import Quantity


def get_device_path(result: DeviceRequestAllocationResult) -> DevicePath:
    """Which device a result names."""
    return (result.driver, result.pool, result.device)


@dataclass(frozen=True, slots=True)
class ResultPart:
    """One result, with the request it is for and what that asks; nothing if the request does not exist."""

    result: DeviceRequestAllocationResult
    request: str
    spec: ExactDeviceRequest | DeviceSubRequest | None

    @property
    def requested_amounts(self) -> dict[str, Quantity]:
        """The amounts asked for."""
        return self.spec.capacity.requests if self.spec is not None and self.spec.capacity is not None else {}

    @property
    def is_admin(self) -> bool:
        """Whether the request asks for admin access."""
        return isinstance(self.spec, ExactDeviceRequest) and bool(self.spec.admin_access)

    def __str__(self) -> str:
        return "/".join(get_device_path(self.result))


@dataclass(frozen=True, slots=True)
class ClaimCase:
    """One claim, its allocation, and the verification input."""

    inputs: VerificationInput
    available: AvailableDevices
    claim: ResourceClaim
    allocation: AllocationResult

    @property
    def name(self) -> str:
        """Namespace and name of the claim."""
        meta = self.claim.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def parts(self) -> tuple[ResultPart, ...]:
        """The results, each with its request."""
        known = _index_requests(self.claim.spec.devices)
        return tuple(
            ResultPart(result, *known.get(result.request, ("", None)))
            for result in self.allocation.devices.results
        )

    def find_device(self, part: ResultPart) -> AvailableDevice | None:
        """The device of a part as the node sees it."""
        return self.available.devices.get(get_device_path(part.result))

    def build_finding(self, rule: AllocationRule, text: str) -> AllocationFinding:
        """Build a finding about this claim."""
        return AllocationFinding(rule, self.name, text)


def _index_requests(claim: DeviceClaim) -> dict[str, tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    """By the name a result uses: the request, and what is asked there."""
    known: dict[str, tuple[str, ExactDeviceRequest | DeviceSubRequest]] = {}
    for request in claim.requests:
        if request.exactly is not None:
            known[request.name] = (request.name, request.exactly)
        for sub in request.first_available:
            known[f"{request.name}/{sub.name}"] = (request.name, sub)
    return known
