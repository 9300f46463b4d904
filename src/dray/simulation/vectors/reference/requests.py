"""Requests of the claims of a vector, as alternatives; a claim that no node could satisfy aborts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dray.api.resource import DeviceClass, DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import ModelAbortError, ModelCase
from dray.values.quantity import Quantity

MAX_RESULTS = 32
"""Devices one claim can hold."""

ALL, EXACT = "All", "ExactCount"


@dataclass(frozen=True, eq=False, slots=True)
class ModelAlternative:
    """One alternative of a request of a claim."""

    claim_index: int
    request: str
    name: str
    spec: ExactDeviceRequest | DeviceSubRequest
    device_class: DeviceClass
    admin: bool

    @property
    def takes_all(self) -> bool:
        return self.spec.allocation_mode == ALL

    @property
    def amounts(self) -> Mapping[str, Quantity]:
        return self.spec.capacity.requests if self.spec.capacity is not None else {}

    @property
    def expressions(self) -> Iterator[str]:
        for selector in (*self.device_class.spec.selectors, *self.spec.selectors):
            if selector.cel is None:
                raise ModelAbortError("CEL")
            yield selector.cel.expression


@dataclass(frozen=True, eq=False, slots=True)
class ModelChoice:
    """A request as its alternatives in order."""

    claim_index: int
    alternatives: tuple[ModelAlternative, ...]


def read_choices(case: ModelCase, number: int, claim: ResourceClaim) -> list[ModelChoice]:
    """The requests of a claim."""
    _check_constraints(case, claim)
    return [
        ModelChoice(number, tuple(_read_alternatives(case, number, r))) for r in claim.spec.devices.requests
    ]


def _check_constraints(case: ModelCase, claim: ResourceClaim) -> None:
    for constraint in claim.spec.devices.constraints:
        both = constraint.match_attribute is not None and constraint.distinct_attribute is not None
        neither = constraint.match_attribute is None and constraint.distinct_attribute is None
        if neither or (both and case.departs(Departure.BOTH_CONSTRAINTS)):
            raise ModelAbortError("constraint")
        gated = constraint.distinct_attribute is not None and not case.is_gate_enabled(
            "DRAConsumableCapacity"
        )
        if gated and case.departs(Departure.DISTINCT_OFF):
            raise ModelAbortError("distinctAttribute")


def _read_alternatives(case: ModelCase, number: int, request: DeviceRequest) -> Iterator[ModelAlternative]:
    if request.exactly is not None:
        exactly = request.exactly
        if exactly.admin_access is not None and not case.is_gate_enabled("DRAAdminAccess"):
            raise ModelAbortError("admin access")
        yield _read_alternative(case, number, request.name, request.name, exactly)
        return
    if not request.first_available:
        crash = not case.departs(Departure.NO_TYPE)
        raise ModelAbortError(
            *(("nil pointer",) if crash else ()), kind=AnswerKind.CRASH if crash else AnswerKind.FAULT
        )
    if not case.is_gate_enabled("DRAPrioritizedList"):
        raise ModelAbortError("subrequests")
    for sub in request.first_available:
        yield _read_alternative(case, number, request.name, f"{request.name}/{sub.name}", sub)


def _read_alternative(
    case: ModelCase, number: int, request: str, name: str, spec: ExactDeviceRequest | DeviceSubRequest
) -> ModelAlternative:
    if (
        spec.capacity is not None
        and spec.capacity.requests
        and not case.is_gate_enabled("DRAConsumableCapacity")
    ):
        raise ModelAbortError("capacity")
    classes = [item for item in case.vector.classes if item.metadata.name == spec.device_class_name]
    if not classes:
        raise ModelAbortError("class")
    if spec.allocation_mode not in (ALL, EXACT):
        raise ModelAbortError("mode")
    if spec.count < 0 and case.departs(Departure.NEGATIVE_COUNT):
        raise ModelAbortError("count")
    amounts = spec.capacity.requests.values() if spec.capacity is not None else ()
    if any(amount.nanos < 0 for amount in amounts) and case.departs(Departure.NEGATIVE_AMOUNT):
        raise ModelAbortError("amount")
    admin = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
    return ModelAlternative(number, request, name, spec, classes[-1], admin)
