"""Reservations of claims: which consumers may use a claim, how many, and when a pod no longer counts.

A claim keeps its devices as long as it is reserved for a consumer. The claim controller removes the entries
of finished pods; other consumers remove their entries themselves.
"""

from __future__ import annotations

from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.meta import OwnerRef
from dray.api.resource import ConsumerReference, ResourceClaim
from dray.claims.claim_names import is_reference_to

MAX_CONSUMERS: Final = 256
"""Entries that `status.reservedFor` can have."""

FINISHED_PHASES: Final = ("Succeeded", "Failed")


def is_pod_finished(pod: Pod) -> bool:
    """Whether a pod no longer uses its claims: it ended, or it was deleted before it had a node."""
    never_ran = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return never_ran or pod.status.phase in FINISHED_PHASES


def build_consumer(pod: Pod) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_pod_consumer(consumer: ConsumerReference) -> bool:
    return consumer.resource == "pods" and not consumer.api_group


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether a pod may use a claim."""
    return any(
        is_pod_consumer(consumer) and is_reference_to(consumer.name, consumer.uid, pod)
        for consumer in claim.status.reserved_for
    )


def explain_unreservable(claim: ResourceClaim, pod: Pod) -> str:
    """Why a claim cannot be reserved for a pod; empty when it can."""
    if is_reserved_for(claim, pod):
        return ""
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.metadata.deletion_timestamp is not None:
        return f"claim {name} is being deleted"
    if len(claim.status.reserved_for) >= MAX_CONSUMERS:
        return f"claim {name} has {MAX_CONSUMERS} consumers already, the most a claim can have"
    return ""


def explain_classic_unreservable(claim: ClassicResourceClaim, pod: Pod) -> str:
    """Why a classic claim cannot be reserved for a pod: its driver limits the number of users."""
    if is_classic_reserved_for(claim, pod):
        return ""
    name, limit = f"{claim.metadata.namespace}/{claim.metadata.name}", claim.status.user_limit
    if claim.metadata.deletion_timestamp is not None:
        return f"claim {name} is being deleted"
    if limit is not None and 0 <= limit <= len(claim.status.reserved_for):
        return f"claim {name} has {len(claim.status.reserved_for)} users, and its driver allows {limit}"
    return ""


def is_classic_reserved_for(claim: ClassicResourceClaim, pod: Pod) -> bool:
    return any(is_reference_to(user.name, user.uid, pod) for user in claim.status.reserved_for)


def build_classic_user(pod: Pod) -> OwnerRef:
    """A pod as a user of a classic claim."""
    return OwnerRef(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
