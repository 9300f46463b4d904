"""Edits of claims: the same claims with one request or constraint changed.

Claims are frozen; an edit returns new ones and shares everything it does not change.
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
from dray.values.request_names import RequestName

ClaimTuple = tuple[ResourceClaim, ...]
T = TypeVar("T", ExactDeviceRequest, DeviceSubRequest)
RequestEdit = Callable[..., ExactDeviceRequest | DeviceSubRequest]
"""Takes a request or an alternative and returns a changed one of the same type."""


def edit_request(claims: ClaimTuple, index: int, name: RequestName, edit: RequestEdit) -> ClaimTuple:
    """Claims with one request, or one alternative of it, changed."""

    def change(request: DeviceRequest) -> DeviceRequest:
        if request.name != name.request:
            return request
        if request.exactly is not None:
            return msgspec.structs.replace(request, exactly=edit(request.exactly))
        subs = tuple(edit(sub) if sub.name == name.subrequest else sub for sub in request.first_available)
        return msgspec.structs.replace(request, first_available=subs)

    devices = claims[index].spec.devices
    return _replace_devices(
        claims, index, msgspec.structs.replace(devices, requests=tuple(map(change, devices.requests)))
    )


def drop_constraint(claims: ClaimTuple, index: int, position: int) -> ClaimTuple:
    """Claims without one constraint."""
    devices = claims[index].spec.devices
    kept = tuple(one for i, one in enumerate(devices.constraints) if i != position)
    return _replace_devices(claims, index, msgspec.structs.replace(devices, constraints=kept))


def _replace_devices(claims: ClaimTuple, index: int, devices: DeviceClaim) -> ClaimTuple:
    claim = claims[index]
    spec = msgspec.structs.replace(claim.spec, devices=devices)
    changed = msgspec.structs.replace(claim, spec=spec)
    return (*claims[:index], changed, *claims[index + 1 :])
