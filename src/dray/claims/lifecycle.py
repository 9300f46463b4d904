"""Lifecycle of claims: the next actions for the claims of a pod and for a claim, given the observed state.

Theory of operation: three pure decisions. For a pod: the claims of its templates are created once, and
recorded when all of them that can be created exist. For a pod with a node: claims that are not reserved for
it, because something other than our scheduler bound it, are reserved. For a claim: finished consumers are
removed, with the last of them the claim is deallocated, and a claim that was created for a pod is deleted
with that pod, also when the pod is gone and no garbage collector does it. A deleted claim without consumers
loses its finalizer, reservations and devices in one write; if it has other finalizers, it is deallocated
first. Each decision returns at most one action of each kind for a claim, in their order: a claim is deleted,
and then loses its finalizer. Actions may be carried out together, or the first one alone: the next one
follows from the state observed then, so a crash between two actions loses nothing.

The observed state may be outdated. The controller must ask the server before it performs a `ReleaseClaim` or
a `DeleteClaim` because a pod is absent, a `CreateClaim` in place of a recorded claim that it does not see, or
an event about a pod without devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.claims import claim_names, reservation
from dray.claims.actions import (
    AnyClaim,
    ClaimAction,
    ClaimWrite,
    CreateClaim,
    DeleteClaim,
    EmitEvent,
    RecordClaims,
    ReleaseClaim,
    RemoveFinalizer,
    ReserveClaim,
)
from dray.claims.pod_claims import is_usable_by

FINALIZER: Final = claim_names.FINALIZER


@dataclass(frozen=True)
class LifecycleLookups:
    """What a decision reads besides the pod or claim it is about."""

    get_claim: Callable[[str, str], ResourceClaim | None]
    """A claim by namespace and name."""
    list_owned_claims: Callable[[Pod], Iterable[ResourceClaim]]
    """The claims that belong to a pod."""
    get_template: Callable[[str, str], ResourceClaimTemplate | None]
    get_classic_claim: Callable[[str, str], ClassicResourceClaim | None]
    get_pod: Callable[[str, str], Pod | None]
    list_naming_pods: Callable[[str, str], Iterable[Pod]]
    """The pods that use a claim, by their spec or by their status."""


def decide_for_pod(
    pod: Pod, lookups: LifecycleLookups, complete_name: Callable[[str], str] | None = None
) -> list[ClaimAction]:
    """Decide the actions for the entries of a pod.

    With `complete_name`, which completes a generated name, claims are created under names that are known
    before, so that they are recorded in the same decision. Without it the server completes the names.
    """
    if reservation.is_pod_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return []
    actions: list[ClaimAction] = []
    names: list[tuple[str, str | None]] = []
    for entry in pod.spec.resource_claims:
        made = _find_or_create_claim(pod, entry, lookups)
        if isinstance(made, CreateClaim) and complete_name is not None:
            made = _name_claim(made, complete_name)
        claim = made.claim if isinstance(made, CreateClaim) else made
        if isinstance(claim, ResourceClaim) and claim.metadata.name:
            names.append((entry.name, claim.metadata.name))
        if made is not None and not isinstance(made, ResourceClaim):
            actions.append(made)
    # Claims are recorded all at once: one write, and a list that only grows.
    if _has_unrecorded_names(pod, names) and not _has_unnamed_claims(actions):
        actions.append(RecordClaims(pod, tuple(names)))
    return actions


def _name_claim(action: CreateClaim, complete_name: Callable[[str], str]) -> CreateClaim:
    metadata = action.claim.metadata
    if metadata.name:
        return action
    named = msgspec.structs.replace(metadata, name=complete_name(metadata.generate_name))
    return replace(action, claim=msgspec.structs.replace(action.claim, metadata=named))


def _has_unnamed_claims(actions: Iterable[ClaimAction]) -> bool:
    """Whether a claim is to be created whose name the server generates."""
    return any(isinstance(each, CreateClaim) and not each.claim.metadata.name for each in actions)


def _find_or_create_claim(
    pod: Pod, entry: PodResourceClaim, lookups: LifecycleLookups
) -> ResourceClaim | ClaimAction | None:
    """The claim created from an entry's template, or the next action for it; None without any."""
    if entry.template is not None:
        return _create_inline_claim(pod, entry, lookups)
    if entry.resource_claim_template_name is None:
        return None
    known, name = claim_names.find_recorded_name(pod, entry)
    if known and name is None:
        return None
    namespace = pod.metadata.namespace
    if name is not None:
        claim = lookups.get_claim(namespace, name)
        if claim is not None and claim_names.is_owned_by(claim.metadata, pod):
            return claim
    made = claim_names.find_generated_claim(pod, entry, lookups.list_owned_claims(pod))
    if made is not None:
        return made
    template = lookups.get_template(namespace, entry.resource_claim_template_name)
    if template is None:
        text = (
            f"entry {entry.name}: ResourceClaimTemplate {entry.resource_claim_template_name} does not exist"
        )
        return EmitEvent(pod, "FailedResourceClaimCreation", text)
    return CreateClaim(pod, entry.name, claim_names.build_from_template(template, pod, entry))


def _create_inline_claim(pod: Pod, entry: PodResourceClaim, lookups: LifecycleLookups) -> ClaimAction | None:
    """The action for the classic claim of an inline template; a foreign claim of its name blocks the pod."""
    namespace, name = pod.metadata.namespace, claim_names.build_classic_name(pod, entry)
    claim: AnyClaim | None = lookups.get_classic_claim(namespace, name) or lookups.get_claim(namespace, name)
    if claim is None:
        return CreateClaim(pod, entry.name, claim_names.build_from_inline(pod, entry))
    if claim_names.is_owned_by(claim.metadata, pod):
        return None
    text = (
        f"entry {entry.name}: claim {name} exists and does not belong to this pod; "
        "delete it, or give it an owner reference to the pod"
    )
    return EmitEvent(pod, "FailedResourceClaimCreation", text)


def _has_unrecorded_names(pod: Pod, names: Sequence[tuple[str, str | None]]) -> bool:
    """Whether the status of the pod lacks one of these names."""
    statuses = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    return any(entry not in statuses or statuses[entry] != name for entry, name in names)


def decide_reservations(pod: Pod, lookups: LifecycleLookups) -> list[ClaimAction]:
    """Decide the reservations for a pod with a node that does not have all of them."""
    if (
        not pod.spec.node_name
        or reservation.is_pod_finished(pod)
        or pod.metadata.deletion_timestamp is not None
    ):
        return []
    return list(_iter_reservations(pod, lookups))


def _iter_reservations(pod: Pod, lookups: LifecycleLookups) -> Iterator[ClaimAction]:
    for entry in pod.spec.resource_claims:
        classic = find_classic_claim(pod, entry, lookups)
        if classic is not None and not reservation.is_classic_reserved_for(classic, pod):
            # Only a scheduler that negotiated with the driver can tell where a classic claim is available.
            text = (
                f"claim {classic.metadata.name} is not reserved for this pod, which was put on node "
                f"{pod.spec.node_name} without it; delete the pod and create it again"
            )
            yield EmitEvent(pod, "FailedResourceClaimReservation", text)
        claim = find_claim(pod, entry, lookups)
        if claim is None or reservation.is_reserved_for(claim, pod):
            continue
        name = claim.metadata.name
        if claim.status.allocation is None:
            text = (
                f"claim {name} has no devices, and the pod was put on node {pod.spec.node_name} without them"
            )
            yield EmitEvent(pod, "FailedResourceClaimReservation", text)
        elif why := reservation.explain_unreservable(claim, pod):
            yield EmitEvent(pod, "FailedResourceClaimReservation", why)
        else:
            yield ReserveClaim(claim, reservation.build_consumer(pod))


def find_claim(pod: Pod, entry: PodResourceClaim, lookups: LifecycleLookups) -> ResourceClaim | None:
    """The claim of an entry, if it exists and the pod may use it."""
    used = claim_names.find_entry_claim(pod, entry)
    if entry.template is not None or used is None or used.name is None:
        return None
    claim = lookups.get_claim(pod.metadata.namespace, used.name)
    return claim if claim is None or is_usable_by(claim, used, pod) else None


def find_classic_claim(
    pod: Pod, entry: PodResourceClaim, lookups: LifecycleLookups
) -> ClassicResourceClaim | None:
    """The classic claim of an entry, if it exists and the pod may use it."""
    used = claim_names.find_entry_claim(pod, entry)
    if entry.resource_claim_template_name is not None or used is None or used.name is None:
        return None
    claim = lookups.get_classic_claim(pod.metadata.namespace, used.name)
    return claim if claim is None or is_usable_by(claim, used, pod) else None


def decide_for_claim(claim: ResourceClaim, lookups: LifecycleLookups) -> list[ClaimWrite]:
    """Decide the actions for a claim: its release, and its deletion with its pod."""
    over = frozenset(
        consumer.uid
        for consumer in claim.status.reserved_for
        if reservation.is_pod_consumer(consumer)
        and _is_consumer_gone(claim, consumer.name, consumer.uid, lookups)
    )
    unused = all(consumer.uid in over for consumer in claim.status.reserved_for)
    ending = claim.metadata.deletion_timestamp is not None
    garbage = unused and not ending and is_garbage(claim, lookups)
    deletion: list[ClaimWrite] = []
    if garbage or (unused and not ending and _is_owner_finished(claim, lookups)):
        deletion.append(DeleteClaim(claim))
    if unused and (ending or deletion) and claim.metadata.finalizers == (FINALIZER,):
        # No other finalizer: the claim, its reservations and its devices are removed with this one.
        return [*deletion, RemoveFinalizer(claim, over)]
    if garbage:
        return deletion
    actions: list[ClaimWrite] = []
    allocated = claim.status.allocation is not None
    if over or (allocated and unused and (ending or _is_unneeded(claim, lookups))):
        actions.append(ReleaseClaim(claim, over, deallocate=unused))
    if ending and unused and FINALIZER in claim.metadata.finalizers:
        actions.append(RemoveFinalizer(claim))
    return actions + deletion


def is_garbage(claim: AnyClaim, lookups: LifecycleLookups) -> bool:
    """Whether a claim belongs to deleted pods and nobody else: a garbage collector would delete it."""
    owners = claim.metadata.owner_references
    return bool(owners) and all(
        owner.kind == "Pod" and _is_pod_gone(claim, owner.name, owner.uid, lookups) for owner in owners
    )


def _is_pod_gone(claim: AnyClaim, name: str, uid: str, lookups: LifecycleLookups) -> bool:
    """Whether a pod is deleted, or replaced by another of its name."""
    pod = lookups.get_pod(claim.metadata.namespace, name)
    return pod is None or pod.metadata.uid != uid


def _is_consumer_gone(claim: AnyClaim, name: str, uid: str, lookups: LifecycleLookups) -> bool:
    """Whether the pod of a consumer entry is finished, deleted, or replaced by another of its name."""
    pod = lookups.get_pod(claim.metadata.namespace, name)
    return pod is None or pod.metadata.uid != uid or reservation.is_pod_finished(pod)


def _is_unneeded(claim: ResourceClaim, lookups: LifecycleLookups) -> bool:
    """Whether no pod uses or could use an allocated claim.

    A claim that was allocated by hand lacks our finalizer and waits for its consumer; one that a pod names
    may be between the two writes of a scheduler that allocates first and reserves then.
    """
    metadata = claim.metadata
    if FINALIZER not in metadata.finalizers:
        return False
    return all(
        reservation.is_pod_finished(pod)
        for pod in lookups.list_naming_pods(metadata.namespace, metadata.name)
    )


def _is_owner_finished(claim: AnyClaim, lookups: LifecycleLookups) -> bool:
    """Whether a claim was created for a finished pod."""
    for owner in claim.metadata.owner_references:
        if owner.kind == "Pod" and owner.api_version == "v1":
            pod = lookups.get_pod(claim.metadata.namespace, owner.name)
            return pod is not None and pod.metadata.uid == owner.uid and reservation.is_pod_finished(pod)
    return False


def decide_for_classic(claim: ClassicResourceClaim, lookups: LifecycleLookups) -> list[ClaimWrite]:
    """Decide the actions for a classic claim: remove finished users, and delete it with its pod."""
    over = frozenset(
        user.uid
        for user in claim.status.reserved_for
        if user.kind == "Pod" and _is_consumer_gone(claim, user.name, user.uid, lookups)
    )
    left = [user for user in claim.status.reserved_for if user.uid not in over]
    actions: list[ClaimWrite] = [ReleaseClaim(claim, over, deallocate=False)] if over else []
    over_with_owner = _is_owner_finished(claim, lookups) or is_garbage(claim, lookups)
    if claim.metadata.deletion_timestamp is None and not left and over_with_owner:
        actions.append(DeleteClaim(claim))
    return actions
