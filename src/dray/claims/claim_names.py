"""Which claim an entry of a pod stands for: names, owners, and the claim a template makes.

Theory of operation: an entry names a claim, or a template from which one claim is made for this pod. What was
made is found again in three ways, the surest first: the pod's status says its name; an owner reference and an
annotation on the claim say whose it is and for which entry; for classic inline templates the name itself says
it, `<pod>-<entry>`. A claim of that name which the pod does not own is somebody else's and blocks the pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import ResourceClaim, ResourceClaimTemplate

POD_CLAIM_NAME_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""On a claim made from a template: the entry of the pod it stands for."""

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim while it has devices. Claims made from templates carry it from birth, so that whoever gives
them devices need not write it first; one that has none is let go as soon as it is deleted."""

_MAX_GENERATED_PREFIX: Final = 63 - 5

NamespacedName = tuple[str, str]
"""Namespace and name."""


def get_namespaced_name(metadata: ObjectMeta) -> NamespacedName:
    return metadata.namespace, metadata.name


def build_owner_reference(pod: Pod) -> OwnerRef:
    """The reference by which a claim belongs to its pod, and goes with it."""
    return OwnerRef(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_owned_by(metadata: ObjectMeta, pod: Pod) -> bool:
    """Whether a claim belongs to a pod, and to no pod of the same name that was before it."""
    return any(owner.uid == pod.metadata.uid and owner.kind == "Pod" for owner in metadata.owner_references)


def find_recorded_name(pod: Pod, entry: PodResourceClaim) -> tuple[bool, str | None]:
    """Whether the pod's status says what its entry stands for, and which claim; None: none is needed."""
    for said in pod.status.resource_claim_statuses:
        if said.name == entry.name:
            return True, said.resource_claim_name
    return False, None


def find_generated_claim(
    pod: Pod, entry: PodResourceClaim, claims: Iterable[ResourceClaim]
) -> ResourceClaim | None:
    """The claim that was made for an entry; the oldest, should there ever be two."""
    found = [
        claim
        for claim in claims
        if is_owned_by(claim.metadata, pod)
        and claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION) == entry.name
    ]
    return min(
        found, key=lambda claim: (claim.metadata.creation_timestamp or "", claim.metadata.name), default=None
    )


def build_from_template(template: ResourceClaimTemplate, pod: Pod, entry: PodResourceClaim) -> ResourceClaim:
    """The claim a template makes for an entry; the server completes its name."""
    given = template.spec.metadata
    prefix = f"{pod.metadata.name}-{entry.name}"[: _MAX_GENERATED_PREFIX - 1].rstrip("-.")
    metadata = ObjectMeta(
        generate_name=f"{prefix}-",
        namespace=pod.metadata.namespace,
        labels=given.labels,
        annotations={**given.annotations, POD_CLAIM_NAME_ANNOTATION: entry.name},
        owner_references=(build_owner_reference(pod),),
        finalizers=(FINALIZER,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def build_classic_name(pod: Pod, entry: PodResourceClaim) -> str:
    """The name of the claim that an inline template makes."""
    return f"{pod.metadata.name}-{entry.name}"


def build_from_inline(pod: Pod, entry: PodResourceClaim) -> ClassicResourceClaim:
    """The classic claim an inline template makes for an entry."""
    assert entry.template is not None
    given = entry.template.metadata
    metadata = ObjectMeta(
        name=build_classic_name(pod, entry),
        namespace=pod.metadata.namespace,
        labels=given.labels,
        annotations=given.annotations,
        owner_references=(build_owner_reference(pod),),
    )
    return ClassicResourceClaim(metadata=metadata, spec=entry.template.spec)
