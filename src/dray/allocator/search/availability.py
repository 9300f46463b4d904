"""Availability: which devices of a shape a claim could get now, and the first rule that refuses the others.

Theory of operation: every device is requested on its own, without selectors and tolerations, in the smallest
share that it gives. The rules of the search answer, through the candidate review; devices with the same
smallest share are reviewed together. So a device is available exactly when the search would take it for a
claim that asks for it alone.

This module must not contain a rule of its own, nor message texts.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.checks.capacity import RequestedAmounts
from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.refusals import Refusal
from dray.allocator.requests import AllocationRequest, normalize_claims
from dray.allocator.search.candidate_review import CandidateReview
from dray.allocator.search.candidates import get_candidate_set
from dray.allocator.search.trace import SearchPoint
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequirements,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dray.api.resource.claim import EXACT_COUNT
from dray.values.quantity import Quantity

_SMALLEST_NANOS = 1
_ANY_DEVICE = DeviceClass()
"""A class without selectors."""


def find_device_refusals(shape: NodeShape) -> tuple[Refusal | None, ...]:
    """For each candidate of a shape the rule that refuses it on its own; None for one that can be had."""
    by_share: dict[RequestedAmounts, list[int]] = {}
    for candidate, profile in enumerate(shape.profiles):
        by_share.setdefault(find_smallest_share(profile), []).append(candidate)
    found: list[Refusal | None] = [None] * len(shape.profiles)
    for amounts, members in by_share.items():
        refusals = _review_shape(shape, build_device_request(amounts))
        for candidate in members:
            found[candidate] = refusals[candidate]
    return tuple(found)


def find_smallest_share(profile: DeviceProfile) -> RequestedAmounts:
    """The smallest amounts that can be requested of a device; none where nothing has to be."""
    if not profile.capacity_limited:
        return ()
    return tuple(
        (name, _find_smallest_amount(capacity.request_policy))
        for name, capacity in profile.device.capacity.items()
        if profile.totals[name] > 0
    )


def _find_smallest_amount(policy: CapacityRequestPolicy | None) -> int:
    if policy is None:
        return _SMALLEST_NANOS
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        return max(limits.min.nanos, _SMALLEST_NANOS)
    return min((value.nanos for value in policy.valid_values), default=_SMALLEST_NANOS)


def build_device_request(amounts: Sequence[tuple[str, int]]) -> AllocationRequest:
    """The request of a claim for any single device, in a share of these amounts."""
    capacity = CapacityRequirements(requests={name: Quantity(nanos) for name, nanos in amounts})
    exactly = ExactDeviceRequest(
        device_class_name="any",
        allocation_mode=EXACT_COUNT,
        count=1,
        capacity=capacity if amounts else None,
    )
    requests = (DeviceRequest(name="device", exactly=exactly),)
    claim = ResourceClaim(spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))
    return normalize_claims([claim], lambda _name: _ANY_DEVICE)


def _review_shape(shape: NodeShape, request: AllocationRequest) -> dict[int, Refusal | None]:
    choice = request.choices[0]
    alternative = choice.alternatives[0]
    get_candidate_set(shape, alternative).evaluate_all()
    return CandidateReview(request, shape, ()).find_refusals(SearchPoint(choice, alternative, 0))
