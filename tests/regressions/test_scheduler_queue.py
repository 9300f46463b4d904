"""Faults of waking pods in schedulers, from what an informer saw to whose turn it is: rows S11 to S14."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import (
    AllocationResult,
    CELDeviceSelector,
    Device,
    DeviceAllocationResult,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequestAllocationResult,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.claims.pod_claims import PodClaimLookup
from dray.placement.pending_pod import resolve_pending_pod
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.scheduler.queued_pod import QueuedPodState
from dray.scheduler.queueing_hints import compute_signals
from tests.unit.scheduler.queue_fixture import QueueFixture, pod, recorded

META = ObjectMeta(name="gpu", namespace="ns", uid="1")
NO_DEVICES = frozenset(
    {Signal(Topic.DEVICES), Signal(Topic.NODES), Signal(Topic.CLASS, "gpu"), Signal(Topic.CLAIM, "ns/mine")}
)
"""What a pod waits for that found no devices for its claim."""


def saw(fixture: QueueFixture, old, new) -> None:
    """An informer saw a change."""
    for signal in compute_signals(old, new):
        fixture.queue.notify(signal)


def held(*devices: str) -> ResourceClaim:
    """A claim of somebody else, with these devices."""
    results = tuple(DeviceRequestAllocationResult(request="r", device=device) for device in devices)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results)) if devices else None
    return ResourceClaim(metadata=META, status=ResourceClaimStatus(allocation=allocation))


def published(*devices: str, generation: int = 1, count: int = 1) -> ResourceSlice:
    pool = ResourcePool(name="p", generation=generation, resource_slice_count=count)
    listed = tuple(Device(name=device) for device in devices)
    return ResourceSlice(metadata=META, spec=ResourceSliceSpec(driver="d", pool=pool, devices=listed))


def device_class(expression: str) -> DeviceClass:
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return DeviceClass(metadata=META, spec=DeviceClassSpec(selectors=(selector,)))


@pytest.mark.parametrize("while_tried", [False, True])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, published("gpu-0")),
        (published(), published("gpu-0", generation=2)),
        (published("gpu-0", count=2), published("gpu-0", count=1)),
    ],
    ids=["the slice appears", "its devices appear", "its pool becomes whole"],
)
def test_s11_a_pod_that_was_there_before_its_driver_is_tried_when_the_slice_appears(old, new, while_tried):
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    if while_tried:
        saw(fixture, old, new)
        fixture.queue.requeue(entry, NO_DEVICES)
    else:
        fixture.queue.requeue(entry, NO_DEVICES)
        saw(fixture, old, new)
    assert fixture.places() == {"backoff": 1}
    fixture.clock.advance(1)
    assert fixture.take() is entry


def test_s11_a_pod_that_waited_for_long_is_tried_at_once():
    fixture = QueueFixture()
    entry = fixture.waiting("a", *NO_DEVICES)
    fixture.clock.advance(60)
    saw(fixture, None, published("gpu-0"))
    assert fixture.take() is entry


def made_from_template() -> Pod:
    return pod(resource_claims=(PodResourceClaim(name="gpu", resource_claim_template_name="t"),))


@pytest.mark.parametrize("first", ["claim", "status"])
def test_s12_a_pod_is_tried_when_the_name_of_its_claim_is_recorded(first):
    claims: dict[str, ResourceClaim] = {}
    seen = PodClaimLookup(lambda _namespace, name: claims.get(name))

    def judge(asked: Pod) -> PluginRejection | None:
        found = resolve_pending_pod(asked, seen)
        return found if isinstance(found, PluginRejection) else None

    fixture, before = QueueFixture(judge=judge), made_from_template()
    owner = OwnerRef(api_version="v1", kind="Pod", name="a", uid="uid-a", controller=True)
    metadata = ObjectMeta(name="a-gpu-x7", namespace="ns", uid="2", owner_references=(owner,))
    claim, after = ResourceClaim(metadata=metadata), recorded(before, gpu="a-gpu-x7")

    def claim_comes() -> None:
        claims["a-gpu-x7"] = claim
        saw(fixture, None, claim)

    def name_is_recorded() -> None:
        fixture.queue.update(before, after)
        saw(fixture, before, after)

    fixture.queue.add(before)
    assert fixture.places() == {"gated": 1}
    steps = [claim_comes, name_is_recorded]
    for step in steps if first == "claim" else reversed(steps):
        assert fixture.places() == {"gated": 1}
        step()
    assert fixture.places() == {"active": 1}
    assert fixture.take().pod is after


def test_s12_a_name_recorded_while_the_pod_is_tried_is_not_lost():
    fixture, before = QueueFixture(), made_from_template()
    fixture.queue.add(before)
    entry = fixture.take()
    fixture.queue.update(before, recorded(before, gpu="a-gpu-x7"))
    assert fixture.queue.requeue(entry, frozenset({Signal(Topic.POD, "ns/a")})) is QueuedPodState.BACKOFF


@pytest.mark.parametrize("while_tried", [False, True])
def test_s13_a_claim_that_is_gone_gives_back_what_it_was_last_seen_with(while_tried):
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    if while_tried:
        saw(fixture, held("gpu-0"), None)
        fixture.queue.requeue(entry, NO_DEVICES)
    else:
        fixture.queue.requeue(entry, NO_DEVICES)
        saw(fixture, held("gpu-0"), None)
    assert fixture.places() == {"backoff": 1}


def test_s13_a_claim_made_anew_under_its_name_gives_back_the_devices_of_the_old_one():
    fixture = QueueFixture()
    fixture.waiting("a", *NO_DEVICES)
    # To an informer that missed the deletion, another uid is another object: one went, one came.
    saw(fixture, held("gpu-0"), None)
    saw(fixture, None, replace(held(), metadata=replace(META, uid="2")))
    assert fixture.places() == {"backoff": 1}


def test_s13_a_claim_that_gave_its_devices_back_before_helps_nobody_by_its_end():
    fixture = QueueFixture()
    fixture.waiting("a", *NO_DEVICES)
    saw(fixture, held(), None)
    assert fixture.places() == {"unschedulable": 1}


@pytest.mark.parametrize("signals", [NO_DEVICES, frozenset({Signal(Topic.CLASS, "gpu")})])
def test_s14_a_class_that_changes_while_a_pod_is_tried_has_the_pod_tried_again(signals):
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    saw(fixture, device_class("false"), device_class("true"))
    assert fixture.queue.requeue(entry, signals) is QueuedPodState.BACKOFF
    fixture.clock.advance(1)
    again = fixture.take()
    assert again is entry
    assert fixture.queue.requeue(again, signals) is QueuedPodState.WAITING


def test_s14_a_class_that_others_use_wakes_nobody():
    fixture = QueueFixture()
    fixture.queue.add(pod())
    entry = fixture.take()
    other = replace(META, name="nic")
    saw(fixture, None, replace(device_class("true"), metadata=other))
    assert fixture.queue.requeue(entry, NO_DEVICES) is QueuedPodState.WAITING
