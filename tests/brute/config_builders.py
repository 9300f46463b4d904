"""Random small problems: what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dray.api.resource import (
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)
from tests.brute import builders as make

if TYPE_CHECKING:
    from tests.brute.generators import Chance

WORDS = (
    "any",
    "shared",
    "single",
    "driver:nic.example",
    "attr?:dra.example/numa=1",
    "attr?:dra.example/numa=0",
    "attr?:dra.example/root=a",
)
TOLERATIONS = (
    DeviceToleration(key="hot", operator="Exists"),
    DeviceToleration(operator="Exists", effect="NoExecute"),
    DeviceToleration(key="old", operator="Equal", value="yes", effect="NoSchedule"),
    DeviceToleration(key="old", value="no"),
)
ATTRIBUTES = (*["dra.example/numa", "dra.example/root"] * 2, "gpu.example/numa")
CLASSES = (*["any"] * 5, "gpu", "gpu", "odd")


def opaque(text: str) -> OpaqueDeviceConfiguration:
    return OpaqueDeviceConfiguration(driver="gpu.example", parameters=msgspec.Raw(f'"{text}"'.encode()))


def class_config(text: str) -> DeviceClassConfiguration:
    return DeviceClassConfiguration(opaque=opaque(text))


def claim_config(text: str, *requests: str) -> DeviceClaimConfiguration:
    return DeviceClaimConfiguration(requests=requests, opaque=opaque(text))


def ask_for(chance: Chance) -> tuple[ResourceClaim, ...]:
    """One to three claims; how many requests they have together is a matter of size."""
    claims = []
    left = chance.size.requests
    for c in range(chance.one([1, 1, 1, 2] if chance.is_tight else [1, 1, 1, 2, 2, 3])):
        if not left:
            break
        count = min(left, chance.one([2, 2, 3] if chance.is_tight else [1, 1, 1, 2, 2, 3]))
        left -= count
        claims.append(_claim(chance, f"c{c}", count))
    return tuple(claims)


def _claim(chance: Chance, name: str, count: int) -> ResourceClaim:
    requests = [_request(chance, f"r{i}", i) for i in range(count)]
    names = [item.name for item in requests]
    names += [f"{item.name}/{sub.name}" for item in requests for sub in item.first_available]
    constraints = []
    if chance.uses("attributes", 0.6):
        constraints = [_constraint(chance, names) for _ in range(chance.one([1, 1, 1, 2]))]
    config = [
        claim_config(f"{name}-{i}", *_some(chance, names))
        for i in range(chance.up_to(2) if chance.uses("config") else 0)
    ]
    return make.claim(*requests, *constraints, name=name, config=config)


def _some(chance: Chance, names: list[str]) -> list[str]:
    """Some of these, in order; none half of the time, which stands for all."""
    return [] if chance.happens(0.5) else [name for name in names if chance.happens(0.5)]


def _constraint(chance: Chance, names: list[str]) -> DeviceConstraint:
    kind = make.match if chance.happens(0.6) else make.distinct
    return kind(chance.one(ATTRIBUTES), *_some(chance, names))


def _request(chance: Chance, name: str, place: int) -> DeviceRequest:
    if chance.uses("alternatives", 0.6):
        ways = [(f"s{i}", _asking(chance, place)) for i in range(chance.up_to(3, 1))]
        return make.first_of(name, *ways)
    admin = True if chance.uses("admin", 0.4) else None
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**_asking(chance, place, admin_access=admin)))


def _asking(chance: Chance, place: int, **more: Any) -> dict[str, Any]:
    # Where it is tight the later ones are choosy: what the first took may be just what they need.
    choosy = 0.45 * place if chance.is_tight else 0.2
    words = [chance.one(WORDS)] if chance.happens(choosy) else []
    if chance.uses("faults", 0.4):
        words.append(chance.one(["attr:dra.example/numa=1", "fails"]))
    count: int | str = chance.one([1] * 7 + [2] if chance.is_tight else [1] * 8 + [2, 2, 3, 0])
    if chance.uses("all", 0.4):
        count = "All"
    fields: dict[str, Any] = {"device_class": "any" if chance.is_tight else chance.one(CLASSES)}
    if chance.uses("taints", 0.5):
        fields["tolerations"] = tuple(chance.one(TOLERATIONS) for _ in range(chance.up_to(2, 1)))
    if chance.uses("shares", 0.5):
        fields["capacity"] = {"mem": chance.one([1, 2, 3, 5, "1500m", "250m", 0])}
        if chance.happens(0.1):
            fields["capacity"]["bw"] = 1
    return make.asking(count, *words, **fields, **more)
