"""The devices of a container: from the prepared claims of its pod to names of CDI devices.

A container refers to entries of its pod, with or without a request. Without one it gets all devices of the
claim. A device that a driver reports without request names belongs to all requests. Several drivers may
contribute devices to one request. A request `gpu` also matches its allocated alternative, such as
`gpu/large`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.api.core import ContainerClaim
from dray.node.claims.record import ClaimsRecord, DriverPart, NodeClaimStage, RecordedDevice
from dray.node.plugins.driver_interface import PreparedDevice


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """A prepared device of a container, and the claim entry that provides it."""

    entry: str
    request: str
    """As in the container's spec; empty when it names the whole claim."""
    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...]

    @property
    def resource_name(self) -> str:
        """The name of the resource in `allocatedResourcesStatus`."""
        return f"claim:{self.entry}/{self.request}" if self.request else f"claim:{self.entry}"

    @property
    def resource_id(self) -> str:
        """The `resourceID` in `allocatedResourcesStatus`, as kubelets write it: the first CDI name if any."""
        return self.cdi[0] if self.cdi else f"{self.driver}/{self.pool}/{self.device}"


def list_container_devices(
    record: ClaimsRecord, pod_uid: str, container_claims: Iterable[ContainerClaim]
) -> tuple[ContainerDevice, ...]:
    """List the devices of a container's claims, in the order of its spec."""
    return tuple(found for claim in container_claims for found in _find_devices(record, pod_uid, claim))


def list_cdi_names(
    record: ClaimsRecord, pod_uid: str, container_claims: Iterable[ContainerClaim]
) -> tuple[str, ...]:
    """List the qualified names of a container's CDI devices, each once."""
    return tuple(
        dict.fromkeys(
            name for found in list_container_devices(record, pod_uid, container_claims) for name in found.cdi
        )
    )


def find_unprepared_entries(record: ClaimsRecord, pod_uid: str, entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a pod whose claims are not prepared."""
    ready = {
        entry
        for recorded in record.find_used_by(pod_uid)
        if recorded.state is NodeClaimStage.PREPARED
        for entry in recorded.list_entries(pod_uid)
    }
    return tuple(entry for entry in entries if entry not in ready)


def _find_devices(record: ClaimsRecord, pod_uid: str, claim: ContainerClaim) -> Iterator[ContainerDevice]:
    for recorded in record.find_used_by(pod_uid):
        if claim.name not in recorded.list_entries(pod_uid):
            continue
        for part in recorded.parts:
            for device in part.devices if part.state is NodeClaimStage.PREPARED else ():
                if not claim.request or _serves_request(part, device, claim.request):
                    yield ContainerDevice(
                        claim.name, claim.request, part.driver, device.pool, device.device, device.cdi
                    )


def _serves_request(part: DriverPart, device: PreparedDevice, request: str) -> bool:
    if not device.request_names:
        return True
    # A driver may report `gpu` for a device that was allocated for `gpu/large`; the allocation is exact.
    allocated = (key.request for key in part.wanted if _is_same_device(key, device))
    named = {*device.request_names, *allocated}
    return request in named or any(name.partition("/")[0] == request for name in named)


def _is_same_device(allocated: RecordedDevice, prepared: PreparedDevice) -> bool:
    """Return whether these are the same device, and the same share of it where the driver names one."""
    if (allocated.pool, allocated.device) != (prepared.pool, prepared.device):
        return False
    return not prepared.share_id or prepared.share_id == allocated.share_id
