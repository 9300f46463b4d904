"""What the claims of a question ask for, one alternative at a time; what no node could answer aborts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dray.api.resource import DeviceClass, DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dray.simulation.vectors.answers import Kind
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import Abort, Case
from dray.values.quantity import Quantity

LIMIT = 32
"""Devices one claim can hold."""

ALL, EXACT = "All", "ExactCount"


@dataclass(frozen=True, eq=False, slots=True)
class Want:
    """One alternative of a request of a claim."""

    claim: int
    request: str
    name: str
    said: ExactDeviceRequest | DeviceSubRequest
    device_class: DeviceClass
    admin: bool

    @property
    def every(self) -> bool:
        return self.said.allocation_mode == ALL

    @property
    def amounts(self) -> Mapping[str, Quantity]:
        return self.said.capacity.requests if self.said.capacity is not None else {}

    @property
    def expressions(self) -> Iterator[str]:
        for selector in (*self.device_class.spec.selectors, *self.said.selectors):
            if selector.cel is None:
                raise Abort("CEL")
            yield selector.cel.expression


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """A request as its alternatives in order."""

    claim: int
    wants: tuple[Want, ...]


def read_choices(case: Case, number: int, claim: ResourceClaim) -> list[Choice]:
    """The requests of a claim."""
    _check_constraints(case, claim)
    return [Choice(number, tuple(_wants(case, number, r))) for r in claim.spec.devices.requests]


def _check_constraints(case: Case, claim: ResourceClaim) -> None:
    for constraint in claim.spec.devices.constraints:
        both = constraint.match_attribute is not None and constraint.distinct_attribute is not None
        neither = constraint.match_attribute is None and constraint.distinct_attribute is None
        if neither or (both and case.departs(Departure.BOTH_CONSTRAINTS)):
            raise Abort("constraint")
        gated = constraint.distinct_attribute is not None and not case.enabled("DRAConsumableCapacity")
        if gated and case.departs(Departure.DISTINCT_OFF):
            raise Abort("distinctAttribute")


def _wants(case: Case, number: int, request: DeviceRequest) -> Iterator[Want]:
    if request.exactly is not None:
        said = request.exactly
        if said.admin_access is not None and not case.enabled("DRAAdminAccess"):
            raise Abort("admin access")
        yield _want(case, number, request.name, request.name, said)
        return
    if not request.first_available:
        crash = not case.departs(Departure.NO_TYPE)
        raise Abort(*(("nil pointer",) if crash else ()), kind=Kind.CRASH if crash else Kind.FAULT)
    if not case.enabled("DRAPrioritizedList"):
        raise Abort("subrequests")
    for sub in request.first_available:
        yield _want(case, number, request.name, f"{request.name}/{sub.name}", sub)


def _want(
    case: Case, number: int, request: str, name: str, said: ExactDeviceRequest | DeviceSubRequest
) -> Want:
    if said.capacity is not None and said.capacity.requests and not case.enabled("DRAConsumableCapacity"):
        raise Abort("capacity")
    classes = [item for item in case.vector.classes if item.metadata.name == said.device_class_name]
    if not classes:
        raise Abort("class")
    if said.allocation_mode not in (ALL, EXACT):
        raise Abort("mode")
    if said.count < 0 and case.departs(Departure.NEGATIVE_COUNT):
        raise Abort("count")
    amounts = said.capacity.requests.values() if said.capacity is not None else ()
    if any(amount.nanos < 0 for amount in amounts) and case.departs(Departure.NEGATIVE_AMOUNT):
        raise Abort("amount")
    admin = isinstance(said, ExactDeviceRequest) and bool(said.admin_access)
    return Want(number, request, name, said, classes[-1], admin)
