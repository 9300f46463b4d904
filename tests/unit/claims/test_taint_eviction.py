"""Who must go for a taint of a device, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dray.api.core import Pod, PodSpec, PodStatus
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimStatus,
)
from dray.claims.taint_eviction import find_device_eviction

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BROKEN = DeviceTaint(
    key="gpu.example.com/broken", value="fan", effect="NoExecute", time_added="2026-01-01T12:00:00Z"
)
PLACE = ("gpu.example.com", "node-a", "gpu-0")


def pod(node: str = "node-a", phase: str = "Running", **metadata: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns", uid="u1", **metadata),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase),
    )


def claim(*tolerations: DeviceToleration, user: str = "u1", device: str = "gpu-0") -> ResourceClaim:
    result = DeviceRequestAllocationResult(
        request="gpu", driver="gpu.example.com", pool="node-a", device=device, tolerations=tolerations
    )
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ns"),
        status=ResourceClaimStatus(
            allocation=AllocationResult(devices=DeviceAllocationResult(results=(result,))),
            reserved_for=(ConsumerReference(resource="pods", name="p", uid=user),),
        ),
    )


def tolerates(seconds: int | None = None, key: str = BROKEN.key) -> DeviceToleration:
    return DeviceToleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=seconds)


def goes(subject: Pod, *claims: ResourceClaim, taint: DeviceTaint = BROKEN) -> datetime | None:
    found = find_device_eviction(subject, claims, lambda place: [taint] if place == PLACE else [])
    return None if found is None else found.at


def test_a_taint_that_is_not_tolerated_evicts_the_pod_with_a_reason():
    found = find_device_eviction(pod(), [claim()], lambda place: [BROKEN])
    assert found is not None
    assert found.at == NOON
    assert found.why == (
        "device gpu.example.com/node-a/gpu-0 of claim c has the taint gpu.example.com/broken=fan:NoExecute, "
        "and the request does not tolerate it"
    )


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([tolerates(60)], 60),
        ([tolerates(60), tolerates(30)], 30),
        ([tolerates(60), tolerates()], 60),
        ([tolerates(0)], 0),
        ([tolerates(-5)], 0),
        ([tolerates(60, key="other")], 0),
        ([tolerates()], None),
    ],
    ids=["for a while", "the shortest", "an end counts", "no time", "less than none", "another", "for ever"],
)
def test_how_long_a_taint_is_endured(tolerations, seconds):
    at = goes(pod(), claim(*tolerations))
    assert (None if at is None else (at - NOON).total_seconds()) == seconds


def test_a_taint_that_is_endured_for_ages_does_not_break_the_calendar():
    assert goes(pod(), claim(tolerates(2**62))) == datetime(9999, 1, 1, tzinfo=UTC)


def test_a_taint_without_a_time_was_there_always():
    taint = DeviceTaint(key="k", effect="NoExecute")
    at = goes(pod(), claim(), taint=taint)
    assert at is not None
    assert at < NOON


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_other_effects_evict_no_pod(effect):
    assert goes(pod(), claim(), taint=DeviceTaint(key="k", effect=effect)) is None


@pytest.mark.parametrize(
    "stays",
    [pod(node=""), pod(phase="Succeeded"), pod(deletion_timestamp="2026-01-01T00:00:00Z")],
    ids=["without a node", "over", "on its way"],
)
def test_pods_that_do_not_run_are_left_alone(stays):
    assert goes(stays, claim()) is None


def test_only_devices_the_pod_may_use_count():
    assert goes(pod(), claim(user="u2")) is None
    assert goes(pod(), claim(device="gpu-1")) is None
    assert goes(pod(), claim(device="gpu-1"), claim()) == NOON


def test_the_first_reason_counts():
    later = DeviceTaint(key="k", effect="NoExecute", time_added="2026-01-01T13:00:00Z")
    found = find_device_eviction(pod(), [claim()], lambda place: [later, BROKEN])
    assert found is not None
    assert found.taint == BROKEN
