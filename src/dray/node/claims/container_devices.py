"""Which devices a container gets: from the claims its pod uses to names of CDI devices.

A container names entries of its pod, with a request or without. Without, it gets all devices of the claim. A
driver that names no requests for a device means all of them. Several drivers may serve one request; what they
return adds up. A request `gpu` also means whichever alternative of it was allocated, `gpu/large`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.api.core import ContainerClaim
from dray.node.claims.record import ClaimsRecord, DriverPart, NodeClaimStage, RecordedClaim
from dray.node.plugins.driver_interface import PreparedDevice


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """A device that is ready for a container, and by which of its claims."""

    entry: str
    request: str
    """As the container says it; empty when it names the whole claim."""
    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...]


def list_container_devices(
    record: ClaimsRecord, pod_uid: str, container_claims: Iterable[ContainerClaim]
) -> tuple[ContainerDevice, ...]:
    """The devices that the claims of a container stand for, in the order it names them."""
    return tuple(found for claim in container_claims for found in _find_devices(record, pod_uid, claim))


def list_cdi_names(
    record: ClaimsRecord, pod_uid: str, container_claims: Iterable[ContainerClaim]
) -> tuple[str, ...]:
    """The qualified names of the CDI devices that a container gets, each once."""
    return tuple(
        dict.fromkeys(
            name for found in list_container_devices(record, pod_uid, container_claims) for name in found.cdi
        )
    )


def find_unprepared_entries(record: ClaimsRecord, pod_uid: str, entries: Iterable[str]) -> tuple[str, ...]:
    """Entries of a pod whose claims are not prepared."""
    ready = {
        entry
        for held in record.find_used_by(pod_uid)
        if held.state is NodeClaimStage.PREPARED
        for entry in _list_entries(held, pod_uid)
    }
    return tuple(entry for entry in entries if entry not in ready)


def _list_entries(held: RecordedClaim, pod_uid: str) -> tuple[str, ...]:
    return tuple(entry for user in held.users if user.uid == pod_uid for entry in user.entries)


def _find_devices(record: ClaimsRecord, pod_uid: str, claim: ContainerClaim) -> Iterator[ContainerDevice]:
    for held in record.find_used_by(pod_uid):
        if claim.name not in _list_entries(held, pod_uid):
            continue
        for part in held.parts:
            for device in part.devices if part.state is NodeClaimStage.PREPARED else ():
                if not claim.request or _serves_request(part, device, claim.request):
                    yield ContainerDevice(
                        claim.name, claim.request, part.driver, device.pool, device.device, device.cdi
                    )


def _serves_request(part: DriverPart, device: PreparedDevice, request: str) -> bool:
    if not device.request_names:
        return True
    # A driver may say `gpu` of a device that was allocated for `gpu/large`; the allocation knows better.
    place = (device.pool, device.device)
    allocated = (key.request for key in part.wanted if (key.pool, key.device) == place)
    named = {*device.request_names, *allocated}
    return request in named or any(name.partition("/")[0] == request for name in named)
