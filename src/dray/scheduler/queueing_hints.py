"""From what informers saw to what it could mean for pods that wait.

Theory of operation: a change is an old and a new object, one of them None when the object came or went. Each
kind has one rule, and a rule says only what could help somebody: a taint that came, a reservation that was
added, an allocation that takes devices help nobody and give no signal. When in doubt it gives one; a signal
too many costs an attempt, one too few costs minutes.

An informer may miss steps in between. So a rule looks at what is different and never at how it came: a claim
that is gone gives back the devices it was last seen with, whether its deallocation was seen or not.

Rules for this file: pure; what we write ourselves while we try a pod must not wake it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from dray.api.classic import (
    ClassicClaim,
    ClassicClaimStatus,
    ResourceClass,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.claims.reservation import ENDED
from dray.placement.rejections import Signal, Topic
from dray.scheduler.queued_pod import has_other_claims, is_another
from dray.values.quantity import ZERO, Quantity

T = TypeVar("T")
Signals = frozenset[Signal]
Rule = Callable[[Any, Any], Iterable[Signal]]

NODES = Signal(Topic.NODES)
ROOM = Signal(Topic.ROOM)
DEVICES = Signal(Topic.DEVICES)

_NO_OFFER, _SILENCE = SchedulerSchedulingStatus(), SchedulingStatus()


def signals_of(old: T | None, new: T | None) -> Signals:
    """What a change of one object could mean; `old` is None when it came, `new` when it went."""
    seen = new if new is not None else old
    rule = RULES.get(type(seen))
    if rule is None:
        raise TypeError(f"nobody waits for a change of a {type(seen).__name__}")
    return frozenset(rule(old, new))


def _of_node(old: Node | None, new: Node | None) -> Iterable[Signal]:
    if new is None:
        return
    if old is None or old.metadata.labels != new.metadata.labels or _lets_more_in(old, new):
        yield NODES


def _lets_more_in(old: Node, new: Node) -> bool:
    """Whether pods that could not go to a node now may."""
    return (
        (old.spec.unschedulable and not new.spec.unschedulable)
        or any(taint not in new.spec.taints for taint in old.spec.taints)
        or _grew(_gives(old), _gives(new))
    )


def _gives(node: Node) -> Mapping[str, Quantity]:
    return node.status.allocatable or node.status.capacity


def _grew(old: Mapping[str, Quantity], new: Mapping[str, Quantity]) -> bool:
    return old != new and any(amount > old.get(name, ZERO) for name, amount in new.items())


def _of_pod(old: Pod | None, new: Pod | None) -> Iterable[Signal]:
    if old is None:
        return
    if old.spec.node_name:
        if old.status.phase not in ENDED and (new is None or _takes_less(old, new)):
            yield ROOM
    elif new is None or new.spec.node_name:
        return  # it went, or takes room: both help nobody
    elif is_another(old, new) or has_other_claims(old, new):
        yield Signal(Topic.POD, _full(new.metadata))


def _takes_less(old: Pod, new: Pod) -> bool:
    """Whether a pod on a node may leave room that it did not leave before."""
    if new.status.phase in ENDED:
        return True
    return old.spec != new.spec and (
        old.spec.containers != new.spec.containers
        or old.spec.init_containers != new.spec.init_containers
        or old.spec.overhead != new.spec.overhead
    )


def _of_claim(old: ResourceClaim | None, new: ResourceClaim | None) -> Iterable[Signal]:
    if _gives_back(old, new):
        yield DEVICES
    if old is None or new is None or _serves_others(old, new):
        yield _claim(old, new)


def _gives_back(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """Whether devices that the claim had are no longer in it."""
    had = None if old is None else old.status.allocation
    if had is None:
        return False
    has = None if new is None else new.status.allocation
    if has is None:
        return True
    return has is not had and any(result not in has.devices.results for result in had.devices.results)


def _serves_others(old: ResourceClaim, new: ResourceClaim) -> bool:
    """Whether a pod that could not use the claim now may."""
    return (
        old.status.allocation != new.status.allocation
        or any(user not in new.status.reserved_for for user in old.status.reserved_for)
        or old.metadata.owner_references != new.metadata.owner_references
    )


def _of_slice(old: ResourceSlice | None, new: ResourceSlice | None) -> Iterable[Signal]:
    # One that goes may help too: what is left of its pool can be whole then.
    if old is None or new is None or old.spec != new.spec:
        yield DEVICES


def _of_rule(old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> Iterable[Signal]:
    # One that comes only adds a taint.
    if old is not None and (new is None or old.spec != new.spec):
        yield DEVICES


def _of_class(
    old: DeviceClass | ResourceClass | None, new: DeviceClass | ResourceClass | None
) -> Iterable[Signal]:
    if new is not None and (old is None or _means(old) != _means(new)):
        yield Signal(Topic.CLASS, new.metadata.name)


def _means(asked: DeviceClass | ResourceClass) -> object:
    """What a class says, without its metadata."""
    return asked.spec if isinstance(asked, DeviceClass) else (asked.driver_name, asked.parameters)


def _of_classic_claim(old: ClassicClaim | None, new: ClassicClaim | None) -> Iterable[Signal]:
    if old is None or new is None or _answered(old, new):
        yield _claim(old, new)


def _answered(old: ClassicClaim, new: ClassicClaim) -> bool:
    """Whether somebody said something that is new to schedulers."""
    return (
        _without_ours(old.status) != _without_ours(new.status)
        or (bool(_selected(old)) and not _selected(new))
        or any(user not in new.status.reserved_for for user in old.status.reserved_for)
        or old.metadata.owner_references != new.metadata.owner_references
    )


def _selected(claim: ClassicClaim) -> str:
    """The node a claim is to be allocated for; a driver that failed there unsets it."""
    return "" if claim.status.scheduling is None else claim.status.scheduling.scheduler.selected_node


def _without_ours(status: ClassicClaimStatus) -> ClassicClaimStatus:
    """The status without what schedulers propose and whom they let in."""
    scheduling = status.scheduling and replace(status.scheduling, scheduler=_NO_OFFER)
    # An empty negotiation and none are the same to everybody.
    return replace(status, scheduling=None if scheduling == _SILENCE else scheduling, reserved_for=())


def _claim(old: ResourceClaim | ClassicClaim | None, new: ResourceClaim | ClassicClaim | None) -> Signal:
    seen = old if new is None else new
    assert seen is not None
    return Signal(Topic.CLAIM, _full(seen.metadata))


def _full(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


RULES: Mapping[type, Rule] = MappingProxyType(
    {
        Node: _of_node,
        Pod: _of_pod,
        ResourceClaim: _of_claim,
        ResourceSlice: _of_slice,
        DeviceTaintRule: _of_rule,
        DeviceClass: _of_class,
        ClassicClaim: _of_classic_claim,
        ResourceClass: _of_class,
    }
)
"""What a change of each kind could mean."""
