"""Small edits of claims: the same claims with one thing asked differently.

Claims are frozen; an edit returns new ones and shares everything it does not touch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from dray.api.resource import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)

ClaimTuple = tuple[ResourceClaim, ...]
T = TypeVar("T", ExactDeviceRequest, DeviceSubRequest)
RequestEdit = Callable[..., ExactDeviceRequest | DeviceSubRequest]
"""Takes a request or an alternative and returns it changed; of the same type."""


def edit_request(claims: ClaimTuple, index: int, name: str, edit: RequestEdit) -> ClaimTuple:
    """Claims with one request, or one alternative (`request/alternative`), changed."""
    request, _, alternative = name.partition("/")

    def changed(asked: DeviceRequest) -> DeviceRequest:
        if asked.name != request:
            return asked
        if asked.exactly is not None:
            return msgspec.structs.replace(asked, exactly=edit(asked.exactly))
        subs = tuple(edit(sub) if sub.name == alternative else sub for sub in asked.first_available)
        return msgspec.structs.replace(asked, first_available=subs)

    devices = claims[index].spec.devices
    return _replace_devices(
        claims, index, msgspec.structs.replace(devices, requests=tuple(map(changed, devices.requests)))
    )


def drop_constraint(claims: ClaimTuple, index: int, position: int) -> ClaimTuple:
    """Claims without one constraint."""
    devices = claims[index].spec.devices
    kept = tuple(said for i, said in enumerate(devices.constraints) if i != position)
    return _replace_devices(claims, index, msgspec.structs.replace(devices, constraints=kept))


def _replace_devices(claims: ClaimTuple, index: int, devices: DeviceClaim) -> ClaimTuple:
    claim = claims[index]
    spec = msgspec.structs.replace(claim.spec, devices=devices)
    changed = msgspec.structs.replace(claim, spec=spec)
    return (*claims[:index], changed, *claims[index + 1 :])
