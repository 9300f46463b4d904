"""Reservations: who may use a claim now, how many, and when an entry no longer counts.

A claim is reserved for its consumers; as long as one is left it keeps its devices. Entries of pods end with
the pod; entries of other consumers are theirs to remove.
"""

from __future__ import annotations

from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.meta import OwnerRef
from dray.api.resource import ConsumerReference, ResourceClaim

MAX_CONSUMERS: Final = 256
"""Entries `status.reservedFor` can hold."""

FINISHED_PHASES: Final = ("Succeeded", "Failed")


def is_pod_finished(pod: Pod) -> bool:
    """Whether a pod will not use its claims any more: it ended, or it was deleted before it had a node."""
    never_ran = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return never_ran or pod.status.phase in FINISHED_PHASES


def build_consumer(pod: Pod) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_pod_consumer(consumer: ConsumerReference) -> bool:
    return consumer.resource == "pods" and not consumer.api_group


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether a pod may use a claim."""
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


def explain_unreservable(claim: ResourceClaim, pod: Pod) -> str:
    """What keeps a claim from being reserved for a pod; empty when nothing does."""
    if is_reserved_for(claim, pod):
        return ""
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.metadata.deletion_timestamp is not None:
        return f"claim {name} is being deleted"
    if len(claim.status.reserved_for) >= MAX_CONSUMERS:
        return f"claim {name} has {MAX_CONSUMERS} consumers already, and no room for more"
    return ""


def explain_classic_unreservable(claim: ClassicResourceClaim, pod: Pod) -> str:
    """The same for a classic claim, whose driver says how many may use it."""
    if is_classic_reserved_for(claim, pod):
        return ""
    name, limit = f"{claim.metadata.namespace}/{claim.metadata.name}", claim.status.user_limit
    if claim.metadata.deletion_timestamp is not None:
        return f"claim {name} is being deleted"
    if limit is not None and 0 <= limit <= len(claim.status.reserved_for):
        return f"claim {name} has {len(claim.status.reserved_for)} users, and its driver allows {limit}"
    return ""


def is_classic_reserved_for(claim: ClassicResourceClaim, pod: Pod) -> bool:
    return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)


def build_classic_user(pod: Pod) -> OwnerRef:
    """A pod as a user of a classic claim."""
    return OwnerRef(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
