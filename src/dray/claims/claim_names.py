"""Names and owners of the claims of pods, and the claims that templates make.

Theory of operation: an entry of a pod names a claim, or a template from which the claim controller creates
one claim for this pod. A generated claim is found again in three ways, the surest first: the status of the
pod records its name; an owner reference and an annotation on the claim name the pod and the entry; for
classic inline templates the name itself is fixed, `<pod>-<entry>`. A claim of that name which the pod does
not own belongs to someone else and blocks the pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.values.generated_names import MAX_PREFIX_LENGTH

POD_CLAIM_NAME_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""On a claim made from a template: the entry of the pod it was created for."""

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim while it has devices. Claims made from templates carry it from their creation, so that the
scheduler need not write it before it allocates devices; the controller removes it from a deleted claim that
has none."""

NamespacedName = tuple[str, str]
"""Namespace and name."""


def get_namespaced_name(metadata: ObjectMeta) -> NamespacedName:
    return metadata.namespace, metadata.name


def build_owner_reference(pod: Pod) -> OwnerRef:
    """The owner reference of a claim to its pod; the garbage collector deletes the claim with the pod."""
    return OwnerRef(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
    )


def is_reference_to(name: str, uid: str, pod: Pod) -> bool:
    """Whether a reference means this pod, and not an earlier pod of the same name.

    Objects in manifests have no uid before a server accepts them: without one the name decides.
    """
    if uid and pod.metadata.uid:
        return uid == pod.metadata.uid
    return name == pod.metadata.name


def is_owned_by(metadata: ObjectMeta, pod: Pod) -> bool:
    """Whether a claim belongs to a pod."""
    return any(
        owner.kind == "Pod" and is_reference_to(owner.name, owner.uid, pod)
        for owner in metadata.owner_references
    )


@dataclass(frozen=True, slots=True)
class EntryClaim:
    """The claim that an entry of a pod uses; no name when it needs none.

    A `generated` claim was created for this pod alone, so the pod must own it.
    """

    name: str | None
    generated: bool


def find_entry_claim(pod: Pod, entry: PodResourceClaim) -> EntryClaim | None:
    """The claim of an entry by name; None while the claim of its template is not recorded."""
    if entry.template is not None:
        return EntryClaim(build_classic_name(pod, entry), generated=True)
    if entry.resource_claim_name is not None:
        return EntryClaim(entry.resource_claim_name, generated=False)
    known, name = find_recorded_name(pod, entry)
    return EntryClaim(name, generated=True) if known else None


def find_recorded_name(pod: Pod, entry: PodResourceClaim) -> tuple[bool, str | None]:
    """Whether the status of a pod records the claim of an entry, and its name; None: it needs none."""
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return True, status.resource_claim_name
    return False, None


def find_generated_claim(
    pod: Pod, entry: PodResourceClaim, claims: Iterable[ResourceClaim]
) -> ResourceClaim | None:
    """The claim that was created for an entry; the oldest, should there ever be two."""
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
    """Build the claim of an entry from a template; the server completes its name."""
    given = template.spec.metadata
    prefix = f"{pod.metadata.name}-{entry.name}"[: MAX_PREFIX_LENGTH - 1].rstrip("-.")
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
    """Build the classic claim of an entry from its inline template."""
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
