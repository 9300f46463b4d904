"""Which claim an entry of a pod stands for: names, owners, and the claim a template makes.

Theory of operation: an entry names a claim, or a template from which one claim is made for this pod. What was
made is found again in three ways, the surest first: the pod's status says its name; an owner reference and an
annotation on the claim say whose it is and for which entry; for classic inline templates the name itself says
it, `<pod>-<entry>`. A claim of that name which the pod does not own is somebody else's and blocks the pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.classic import ClassicClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import ResourceClaim, ResourceClaimTemplate

ENTRY_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""On a claim made from a template: the entry of the pod it stands for."""

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim while it has devices. Claims made from templates carry it from birth, so that whoever gives
them devices need not write it first; one that has none is let go as soon as it is deleted."""

_LONGEST_GENERATED: Final = 63 - 5

Name = tuple[str, str]
"""Namespace and name."""


def name_of(metadata: ObjectMeta) -> Name:
    return metadata.namespace, metadata.name


def owner_of(pod: Pod) -> OwnerRef:
    """The reference by which a claim belongs to its pod, and goes with it."""
    return OwnerRef(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_owned(metadata: ObjectMeta, pod: Pod) -> bool:
    """Whether a claim belongs to a pod, and to no pod of the same name that was before it."""
    return any(owner.uid == pod.metadata.uid and owner.kind == "Pod" for owner in metadata.owner_references)


def recorded(pod: Pod, entry: PodResourceClaim) -> tuple[bool, str | None]:
    """Whether the pod's status says what its entry stands for, and which claim; None: none is needed."""
    for said in pod.status.resource_claim_statuses:
        if said.name == entry.name:
            return True, said.resource_claim_name
    return False, None


def made_for(pod: Pod, entry: PodResourceClaim, claims: Iterable[ResourceClaim]) -> ResourceClaim | None:
    """The claim that was made for an entry; the oldest, should there ever be two."""
    found = [
        claim
        for claim in claims
        if is_owned(claim.metadata, pod) and claim.metadata.annotations.get(ENTRY_ANNOTATION) == entry.name
    ]
    return min(
        found, key=lambda claim: (claim.metadata.creation_timestamp or "", claim.metadata.name), default=None
    )


def from_template(template: ResourceClaimTemplate, pod: Pod, entry: PodResourceClaim) -> ResourceClaim:
    """The claim a template makes for an entry; the server completes its name."""
    given = template.spec.metadata
    prefix = f"{pod.metadata.name}-{entry.name}"[: _LONGEST_GENERATED - 1].rstrip("-.")
    metadata = ObjectMeta(
        generate_name=f"{prefix}-",
        namespace=pod.metadata.namespace,
        labels=given.labels,
        annotations={**given.annotations, ENTRY_ANNOTATION: entry.name},
        owner_references=(owner_of(pod),),
        finalizers=(FINALIZER,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def classic_name(pod: Pod, entry: PodResourceClaim) -> str:
    """The name of the claim that an inline template makes."""
    return f"{pod.metadata.name}-{entry.name}"


def from_inline(pod: Pod, entry: PodResourceClaim) -> ClassicClaim:
    """The classic claim an inline template makes for an entry."""
    assert entry.template is not None
    given = entry.template.metadata
    metadata = ObjectMeta(
        name=classic_name(pod, entry),
        namespace=pod.metadata.namespace,
        labels=given.labels,
        annotations=given.annotations,
        owner_references=(owner_of(pod),),
    )
    return ClassicClaim(metadata=metadata, spec=entry.template.spec)
