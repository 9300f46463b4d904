"""Queueing hints as a table: old object, new object, signals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dray.api.classic import (
    ClassicClaimStatus,
    ClassicResourceClaim,
    DriverSchedulingStatus,
    ResourceClass,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.core import Namespace, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Taint
from dray.api.core.pod import Container, PodCondition, PodResourceClaimStatus, SchedulingGate
from dray.api.meta import Condition, ObjectMeta, OwnerRef
from dray.api.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    CELDeviceSelector,
    ConsumerReference,
    Device,
    DeviceAllocationResult,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.placement.rejections import Signal, Topic
from dray.scheduler.queueing_hints import (
    CAPACITY_FREED,
    DEVICES_CHANGED,
    NODES_CHANGED,
    QUEUEING_HINTS,
    compute_signals,
)
from dray.values.quantity import Quantity

META = ObjectMeta(name="x", namespace="ns", uid="1")
LATER = replace(META, resource_version="99", annotations={"seen": "now"})
CLAIM = Signal(Topic.CLAIM, "ns/x")
CLASS = Signal(Topic.CLASS, "x")
POD = Signal(Topic.POD, "ns/x")


def node(*taints: Taint, labels: dict[str, str] | None = None, cordoned: bool = False, **has: str) -> Node:
    amounts = {name: Quantity.parse(amount) for name, amount in has.items()}
    return Node(
        metadata=replace(META, labels=labels or {}),
        spec=NodeSpec(unschedulable=cordoned, taints=taints),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


def pod(node_name: str = "", phase: str = "", **fields: Any) -> Pod:
    return Pod(metadata=META, spec=PodSpec(node_name=node_name, **fields), status=PodStatus(phase=phase))


def recorded(name: str | None) -> Pod:
    rows = (PodResourceClaimStatus(name="gpu", resource_claim_name=name),)
    return replace(pod(), status=PodStatus(resource_claim_statuses=rows))


def claim(*devices: str, users: str = "", **status: Any) -> ResourceClaim:
    results = tuple(DeviceRequestAllocationResult(request="r", device=device) for device in devices)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results)) if devices else None
    reserved = tuple(ConsumerReference(resource="pods", name=user, uid=user) for user in users)
    return ResourceClaim(
        metadata=META, status=ResourceClaimStatus(allocation=allocation, reserved_for=reserved, **status)
    )


def classic(
    phase: str = "", offer: str = "", declined: str = "", users: str = "", wanted: str = ""
) -> ClassicResourceClaim:
    scheduling = SchedulingStatus(
        scheduler=SchedulerSchedulingStatus(selected_node=wanted, potential_nodes=tuple(offer)),
        driver=DriverSchedulingStatus(unsuitable_nodes=tuple(declined)),
    )
    return ClassicResourceClaim(
        metadata=META,
        status=ClassicClaimStatus(
            phase=phase,
            scheduling=scheduling if offer or declined else None,
            reserved_for=tuple(OwnerRef(kind="Pod", name=user, uid=user) for user in users),
        ),
    )


def rule(device: str = "gpu", effect: str = "NoSchedule") -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(device=device), taint=DeviceTaint(key="sick", effect=effect)
    )
    return DeviceTaintRule(metadata=META, spec=spec)


TOLD = replace(rule(), status=DeviceTaintRuleStatus(conditions=(Condition(type="EvictionInProgress"),)))


def published(*devices: Device, generation: int = 1) -> ResourceSlice:
    pool = ResourcePool(name="p", generation=generation, resource_slice_count=1)
    return ResourceSlice(metadata=META, spec=ResourceSliceSpec(driver="d", pool=pool, devices=devices))


def device_class(expression: str) -> DeviceClass:
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return DeviceClass(metadata=META, spec=DeviceClassSpec(selectors=(selector,)))


def seen_later(old: Any) -> Any:
    return replace(old, metadata=LATER)


BUSY, TIRED = Taint(key="busy", effect="NoSchedule"), Taint(key="tired", effect="NoSchedule")
SOFT = Taint(key="busy", effect="PreferNoSchedule")
GPU, OTHER = Device(name="gpu-0"), Device(name="gpu-1")
TAINTED = Device(name="gpu-0", taints=(DeviceTaint(key="hot", effect="NoSchedule"),))
SMALL = pod("n", containers=(Container(name="c"),))
OWNED = replace(META, owner_references=(OwnerRef(kind="Pod", name="p", uid="u"),))
LEAVING = replace(META, deletion_timestamp="2026-01-01T00:00:00Z")
GATES = (SchedulingGate(name="wait"),)
SCHEDULED = PodCondition(type="PodScheduled", status="False")

ROWS = [
    ("a node came", None, node(), {NODES_CHANGED}),
    ("a node went", node(), None, set()),
    ("a node renewed its heartbeat", node(BUSY, cpu="1"), seen_later(node(BUSY, cpu="1")), set()),
    ("a node has other labels", node(), node(labels={"disk": "ssd"}), {NODES_CHANGED}),
    ("a node lost a taint", node(BUSY, TIRED), node(TIRED), {NODES_CHANGED}),
    ("a node got a taint", node(BUSY), node(BUSY, TIRED), set()),
    ("a taint of a node became softer", node(BUSY), node(SOFT), {NODES_CHANGED}),
    ("a node was opened", node(cordoned=True), node(), {NODES_CHANGED}),
    ("a node was closed", node(), node(cordoned=True), set()),
    ("a node can give more", node(cpu="1"), node(cpu="1500m"), {NODES_CHANGED}),
    ("a node can give something new", node(cpu="1"), node(cpu="1", gpus="1"), {NODES_CHANGED}),
    ("a node can give less", node(cpu="2", gpus="1"), node(cpu="1"), set()),
    ("a node says the same in other words", node(cpu="1"), node(cpu="1000m"), set()),
    ("a pod came", None, pod(), set()),
    ("a pod came on a node", None, pod("n"), set()),
    ("a pod got its node", pod(), pod("n"), set()),
    ("a pod on a node ended", pod("n", "Running"), pod("n", "Succeeded"), {CAPACITY_FREED}),
    ("a pod on a node failed", pod("n", "Running"), pod("n", "Failed"), {CAPACITY_FREED}),
    ("a pod on a node was deleted", pod("n", "Running"), None, {CAPACITY_FREED}),
    ("a pod that had ended was deleted", pod("n", "Failed"), None, set()),
    ("a pod that had ended was seen again", pod("n", "Failed"), seen_later(pod("n", "Failed")), set()),
    ("a pod without a node was deleted", pod(), None, set()),
    ("a pod on a node started", pod("n"), pod("n", "Running"), set()),
    ("a pod on a node needs something else", pod("n"), SMALL, {CAPACITY_FREED}),
    ("a claim of a pod was recorded", pod(), recorded("x-gpu"), {POD}),
    ("a pod was told it needs no claim", pod(), recorded(None), {POD}),
    ("a pod has other labels", pod(), replace(pod(), metadata=replace(META, labels={"a": "b"})), {POD}),
    ("a pod lost its gates", pod(scheduling_gates=GATES), pod(), {POD}),
    ("we told a pod why", pod(), replace(pod(), status=PodStatus(conditions=(SCHEDULED,))), set()),
    ("a claim came", None, claim(), {CLAIM}),
    ("a claim went", claim(), None, {CLAIM}),
    ("a claim with devices came", None, claim("a"), {CLAIM}),
    ("a claim got devices", claim(), claim("a"), {CLAIM}),
    ("a claim gave back its devices", claim("a"), claim(), {CLAIM, DEVICES_CHANGED}),
    ("a claim gave back one device", claim("a", "b"), claim("b"), {CLAIM, DEVICES_CHANGED}),
    ("a claim has another device", claim("a"), claim("b"), {CLAIM, DEVICES_CHANGED}),
    ("a claim with devices went", claim("a"), None, {CLAIM, DEVICES_CHANGED}),
    ("a claim got a user", claim("a", users="p"), claim("a", users="pq"), set()),
    ("a claim lost a user", claim("a", users="pq"), claim("a", users="q"), {CLAIM}),
    ("a claim got another owner", claim(), replace(claim(), metadata=OWNED), {CLAIM}),
    ("a claim is to go", claim("a"), replace(claim("a"), metadata=LEAVING), set()),
    ("a driver told of a device", claim("a"), claim("a", devices=(AllocatedDeviceStatus(),)), set()),
    ("a claim was seen again", claim("a", users="p"), seen_later(claim("a", users="p")), set()),
    ("a slice came", None, published(GPU), {DEVICES_CHANGED}),
    ("a slice went", published(GPU), None, {DEVICES_CHANGED}),
    ("a slice has another device", published(GPU), published(GPU, OTHER), {DEVICES_CHANGED}),
    ("a device lost its taint", published(TAINTED), published(GPU), {DEVICES_CHANGED}),
    ("a pool has a new generation", published(GPU), published(GPU, generation=2), {DEVICES_CHANGED}),
    ("a rule came", None, rule(), set()),
    ("a rule went", rule(), None, {DEVICES_CHANGED}),
    ("a rule selects others", rule(), rule("other"), {DEVICES_CHANGED}),
    ("a rule has another effect", rule(), rule(effect="None"), {DEVICES_CHANGED}),
    ("the status of a rule was written", rule(), TOLD, set()),
    ("a slice was seen again", published(GPU), seen_later(published(GPU)), set()),
    ("a class came", None, device_class("true"), {CLASS}),
    ("a class means something else", device_class("true"), device_class("false"), {CLASS}),
    ("a class went", device_class("true"), None, set()),
    ("a class was seen again", device_class("true"), seen_later(device_class("true")), set()),
    ("a classic claim came", None, classic(), {CLAIM}),
    ("a classic claim went", classic("Allocated"), None, {CLAIM}),
    ("a driver allocated", classic("Pending", offer="ab"), classic("Allocated"), {CLAIM}),
    ("a driver declined nodes", classic(offer="ab"), classic(offer="ab", declined="a"), {CLAIM}),
    ("we proposed nodes", classic("Pending"), classic("Pending", offer="ab"), set()),
    ("we proposed others", classic(offer="ab", declined="a"), classic(offer="bc", declined="a"), set()),
    ("we asked for a node", classic(offer="ab"), classic(offer="ab", wanted="a"), set()),
    ("we asked for another node", classic(offer="ab", wanted="a"), classic(offer="ab", wanted="b"), set()),
    ("a driver gave a node up", classic(offer="ab", wanted="a"), classic(offer="ab"), {CLAIM}),
    ("we let a pod use it", classic("Allocated"), classic("Allocated", users="p"), set()),
    ("a classic claim lost a user", classic(users="pq"), classic(users="p"), {CLAIM}),
    ("a classic claim got an owner", classic(), replace(classic(), metadata=OWNED), {CLAIM}),
    ("a classic claim was seen again", classic("Pending"), seen_later(classic("Pending")), set()),
    ("a classic class came", None, ResourceClass(metadata=META), {CLASS}),
    ("a classic class went", ResourceClass(metadata=META), None, set()),
    (
        "a classic class has another driver",
        ResourceClass(metadata=META, driver_name="a"),
        ResourceClass(metadata=META, driver_name="b"),
        {CLASS},
    ),
    (
        "a classic class has other parameters",
        ResourceClass(metadata=META, parameters=msgspec.Raw(b'{"a":1}')),
        ResourceClass(metadata=META, parameters=msgspec.Raw(b'{"a":2}')),
        {CLASS},
    ),
    (
        "a classic class was seen again",
        ResourceClass(metadata=META, parameters=msgspec.Raw(b'{"a":1}')),
        ResourceClass(metadata=LATER, parameters=msgspec.Raw(b'{"a": 1}')),
        set(),
    ),
]


@pytest.mark.parametrize(("old", "new", "signals"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_a_change_could_mean(old, new, signals):
    assert compute_signals(old, new) == signals


def test_every_kind_is_in_the_table():
    assert {type(old or new) for _, old, new, _ in ROWS} == set(QUEUEING_HINTS)


def test_nobody_waits_for_other_kinds():
    with pytest.raises(TypeError, match="Namespace"):
        compute_signals(None, Namespace())
