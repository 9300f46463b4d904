"""Queueing hints: translate a change of an object into the signals that wake waiting pods.

Theory of operation: a change is an old and a new object, one of them None when the object was added or
deleted. Each kind has one hint, which signals only what could help a pod: a new taint, a new reservation or a
new allocation helps none and gives no signal. When in doubt the hint gives one; a signal too many costs an
attempt, one too few costs minutes.

An informer may miss steps in between. So a hint compares the two objects and does not assume a single step: a
deleted claim frees the devices it was last seen with, whether its deallocation was seen or not.

Rules for this file: pure functions; what the scheduler itself writes while it tries a pod must not wake that
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from dray.api.classic import (
    ClassicClaimStatus,
    ClassicResourceClaim,
    ResourceClass,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.unknown_fields import list_unknown_fields
from dray.claims.reservation import FINISHED_PHASES
from dray.placement.rejections import Signal, Topic
from dray.scheduler.queued_pod import has_claim_status_changes, has_scheduling_changes
from dray.values.quantity import ZERO, Quantity

T = TypeVar("T")
SignalSet = frozenset[Signal]
QueueingHint = Callable[[Any, Any], Iterable[Signal]]

NODES_CHANGED = Signal(Topic.NODES)
CAPACITY_FREED = Signal(Topic.RESOURCES)
DEVICES_CHANGED = Signal(Topic.DEVICES)

_NO_PROPOSAL, _NO_SCHEDULING = SchedulerSchedulingStatus(), SchedulingStatus()


def compute_signals(old: T | None, new: T | None) -> SignalSet:
    """Compute the signals of a change; `old` is None for an added object, `new` for a deleted one."""
    seen = new if new is not None else old
    hint = QUEUEING_HINTS.get(type(seen))
    if hint is None:
        raise TypeError(f"there is no queueing hint for objects of type {type(seen).__name__}")
    return frozenset(hint(old, new))


def _hint_node(old: Node | None, new: Node | None) -> Iterable[Signal]:
    if new is None:
        return
    if old is None or old.metadata.labels != new.metadata.labels or _admits_more_pods(old, new):
        yield NODES_CHANGED


def _admits_more_pods(old: Node, new: Node) -> bool:
    """Whether a node may now take pods that it did not take before."""
    return (
        (old.spec.unschedulable and not new.spec.unschedulable)
        or any(taint not in new.spec.taints for taint in old.spec.taints)
        or _has_grown(_get_allocatable(old), _get_allocatable(new))
    )


def _get_allocatable(node: Node) -> Mapping[str, Quantity]:
    return node.status.allocatable or node.status.capacity


def _has_grown(old: Mapping[str, Quantity], new: Mapping[str, Quantity]) -> bool:
    return old != new and any(amount > old.get(name, ZERO) for name, amount in new.items())


def _hint_pod(old: Pod | None, new: Pod | None) -> Iterable[Signal]:
    if old is None:
        return
    if old.spec.node_name:
        if old.status.phase not in FINISHED_PHASES and (new is None or _may_free_resources(old, new)):
            yield CAPACITY_FREED
    elif new is None or new.spec.node_name:
        return  # a deleted or bound pod frees nothing
    elif has_scheduling_changes(old, new) or has_claim_status_changes(old, new):
        yield Signal(Topic.POD, _format_name(new.metadata))


def _may_free_resources(old: Pod, new: Pod) -> bool:
    """Whether a pod on a node may use less than before."""
    if new.status.phase in FINISHED_PHASES:
        return True
    return old.spec != new.spec and (
        old.spec.containers != new.spec.containers
        or old.spec.init_containers != new.spec.init_containers
        or old.spec.overhead != new.spec.overhead
    )


def _hint_claim(old: ResourceClaim | None, new: ResourceClaim | None) -> Iterable[Signal]:
    if _has_freed_devices(old, new):
        yield DEVICES_CHANGED
    if old is None or new is None or _is_more_usable(old, new):
        yield _build_claim_signal(old, new)


def _has_freed_devices(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """Whether devices that the claim had are no longer allocated to it."""
    had = None if old is None else old.status.allocation
    if had is None:
        return False
    has = None if new is None else new.status.allocation
    if has is None:
        return True
    return has is not had and any(result not in has.devices.results for result in had.devices.results)


def _is_more_usable(old: ResourceClaim, new: ResourceClaim) -> bool:
    """Whether a pod that could not use the claim may use it now."""
    return (
        old.status.allocation != new.status.allocation
        or any(user not in new.status.reserved_for for user in old.status.reserved_for)
        or old.metadata.owner_references != new.metadata.owner_references
    )


def _hint_slice(old: ResourceSlice | None, new: ResourceSlice | None) -> Iterable[Signal]:
    # A deletion may help too: what is left of the pool can be complete then.
    if (
        old is None
        or new is None
        or old.spec != new.spec
        or list_unknown_fields(old) != list_unknown_fields(new)
    ):
        yield DEVICES_CHANGED


def _hint_taint_rule(old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> Iterable[Signal]:
    # A new rule only adds a taint.
    if old is not None and (new is None or old.spec != new.spec):
        yield DEVICES_CHANGED


def _hint_class(
    old: DeviceClass | ResourceClass | None, new: DeviceClass | ResourceClass | None
) -> Iterable[Signal]:
    if new is not None and (old is None or _get_class_content(old) != _get_class_content(new)):
        yield Signal(Topic.CLASS, new.metadata.name)


def _get_class_content(device_class: DeviceClass | ResourceClass) -> object:
    """Return the content of a class without its metadata."""
    return (
        (device_class.spec, list_unknown_fields(device_class))
        if isinstance(device_class, DeviceClass)
        else (device_class.driver_name, device_class.parameters)
    )


def _hint_classic_claim(
    old: ClassicResourceClaim | None, new: ClassicResourceClaim | None
) -> Iterable[Signal]:
    if old is None or new is None or _has_driver_answered(old, new):
        yield _build_claim_signal(old, new)


def _has_driver_answered(old: ClassicResourceClaim, new: ClassicResourceClaim) -> bool:
    """Whether a driver or another user changed something that schedulers look at."""
    return (
        _strip_scheduler_fields(old.status) != _strip_scheduler_fields(new.status)
        or (bool(_get_selected_node(old)) and not _get_selected_node(new))
        or any(user not in new.status.reserved_for for user in old.status.reserved_for)
        or old.metadata.owner_references != new.metadata.owner_references
    )


def _get_selected_node(claim: ClassicResourceClaim) -> str:
    """Return the node a claim is to be allocated for; a driver that failed there unsets it."""
    return "" if claim.status.scheduling is None else claim.status.scheduling.scheduler.selected_node


def _strip_scheduler_fields(status: ClassicClaimStatus) -> ClassicClaimStatus:
    """Return the status without the scheduler's proposals and the reservations."""
    scheduling = status.scheduling and replace(status.scheduling, scheduler=_NO_PROPOSAL)
    # An empty negotiation and none are equivalent.
    return replace(status, scheduling=None if scheduling == _NO_SCHEDULING else scheduling, reserved_for=())


def _build_claim_signal(
    old: ResourceClaim | ClassicResourceClaim | None, new: ResourceClaim | ClassicResourceClaim | None
) -> Signal:
    seen = old if new is None else new
    assert seen is not None
    return Signal(Topic.CLAIM, _format_name(seen.metadata))


def _format_name(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


QUEUEING_HINTS: Mapping[type, QueueingHint] = MappingProxyType(
    {
        Node: _hint_node,
        Pod: _hint_pod,
        ResourceClaim: _hint_claim,
        ResourceSlice: _hint_slice,
        DeviceTaintRule: _hint_taint_rule,
        DeviceClass: _hint_class,
        ClassicResourceClaim: _hint_classic_claim,
        ResourceClass: _hint_class,
    }
)
"""The hint of each kind."""
