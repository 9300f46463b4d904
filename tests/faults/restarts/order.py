"""What must be true of a cluster that was left alone for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.api.core import Pod
from dray.api.resource import ResourceClaim

OVER = ("Succeeded", "Failed")


def disorder(pods: Sequence[Pod], claims: Sequence[ResourceClaim]) -> list[str]:
    """Everything that is not in order, in words; empty when all is."""
    return [*_of_pods(pods, claims), *_of_claims(pods, claims)]


def _of_pods(pods: Sequence[Pod], claims: Sequence[ResourceClaim]) -> Iterator[str]:
    by_name = {found.metadata.name: found for found in claims}
    for pod in pods:
        if pod.status.phase in OVER:
            continue
        if not pod.spec.node_name:
            told = [each for each in pod.status.conditions if each.type == "PodScheduled" and each.message]
            if not told:
                yield f"pod {pod.metadata.name} has no node and no reason"
            continue
        for name in _claims_of(pod):
            found = by_name.get(name)
            if found is None or found.status.allocation is None:
                yield f"pod {pod.metadata.name} is on {pod.spec.node_name} without claim {name}"
                continue
            where = found.status.allocation.node_selector
            if where is not None and not where.matches(pod.spec.node_name, {}):
                yield f"pod {pod.metadata.name} is on {pod.spec.node_name}, its claim {name} is not"
            if pod.metadata.uid not in [user.uid for user in found.status.reserved_for]:
                yield f"pod {pod.metadata.name} uses claim {name} without a reservation"


def _of_claims(pods: Sequence[Pod], claims: Sequence[ResourceClaim]) -> Iterator[str]:
    alive = {pod.metadata.uid for pod in pods if pod.status.phase not in OVER}
    used = {(pod.metadata.uid, name) for pod in pods for name in _claims_of(pod)}
    for found in claims:
        name, status = found.metadata.name, found.status
        if found.metadata.deletion_timestamp is not None:
            yield f"claim {name} is being deleted, and is held by {found.metadata.finalizers}"
        for owner in found.metadata.owner_references:
            if owner.uid not in alive:
                yield f"claim {name} is left of pod {owner.name}"
            elif (owner.uid, name) not in used:
                yield f"claim {name} was made for pod {owner.name}, which has another"
        for user in status.reserved_for:
            if user.uid not in alive:
                yield f"claim {name} is reserved for {user.name}, which is gone"
        if status.allocation is not None and not status.reserved_for:
            yield f"claim {name} holds devices for nobody"


def _claims_of(pod: Pod) -> list[str]:
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [entry.resource_claim_name or made.get(entry.name) for entry in pod.spec.resource_claims]
    return [name for name in names if name]
