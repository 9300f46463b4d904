"""Who waits for devices: pods with the claims they name or stand for, and claims on their own.

Theory of operation: a pod's entries are resolved as the claim controller and the scheduler would: a claim by
name, the claim made earlier for a template, or a new one made from it. Whatever keeps a pod from being
placed before any device is looked at (a claim that is not there, a claim on its way out, a classic claim) is
an obstacle in words; so is anything invalid that the pod needs. Claims that no waiting pod uses wait on their
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.claims.claim_names import (
    POD_CLAIM_NAME_ANNOTATION,
    NamespacedName,
    build_owner_reference,
    get_namespaced_name,
)
from dray.claims.reservation import MAX_CONSUMERS, is_pod_finished
from dray.simulation.bundle import Bundle

_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class PlacementUnit:
    """A pod with its claims, or one claim on its own (then `pod` is None).

    `invalid` says that an API server would refuse the pod or claim itself.
    """

    pod: Pod | None
    claims: tuple[ResourceClaim, ...]
    obstacle: str = ""
    invalid: bool = False

    @property
    def kind(self) -> str:
        """`pod` or `claim`."""
        return "claim" if self.pod is None else "pod"

    @property
    def name(self) -> NamespacedName:
        """Namespace and name of the pod, or of the claim."""
        metadata = self.claims[0].metadata if self.pod is None else self.pod.metadata
        return metadata.namespace, metadata.name

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(self.name)}"

    @property
    def pending(self) -> tuple[ResourceClaim, ...]:
        """The claims that have no devices yet."""
        return tuple(claim for claim in self.claims if claim.status.allocation is None)


class BundleClaims:
    """The claims of a bundle by name, while pods are being placed; allocations are written back here."""

    def __init__(self, bundle: Bundle) -> None:
        self._claims = {get_namespaced_name(claim.metadata): claim for claim in bundle.claims}
        self._templates = {get_namespaced_name(template.metadata): template for template in bundle.templates}
        self._classic = {get_namespaced_name(claim.metadata) for claim in bundle.classic_claims}
        self._invalid = {(each.kind, each.namespace, each.name): str(each) for each in bundle.invalid}
        # Claims made from templates earlier: namespace, owner and entry lead to the name.
        self._generated: dict[tuple[str, str, str], NamespacedName] = {
            (
                name[0],
                owner.uid or owner.name,
                claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, ""),
            ): name
            for name, claim in self._claims.items()
            for owner in claim.metadata.owner_references
            if owner.kind == "Pod"
        }

    def get(self, name: NamespacedName) -> ResourceClaim | None:
        """A claim as it stands now."""
        return self._claims.get(name)

    def update(self, claim: ResourceClaim) -> None:
        """Remember a claim as it is from now on."""
        self._claims[get_namespaced_name(claim.metadata)] = claim

    def build_pod_unit(self, pod: Pod) -> PlacementUnit:
        """A pod with its claims; the first obstacle when they cannot all be had."""
        found: list[ResourceClaim] = []
        for entry in pod.spec.resource_claims:
            claim = self._resolve_entry(pod, entry)
            if isinstance(claim, str):
                return PlacementUnit(pod, tuple(found), claim)
            if claim is not None and claim not in found:
                found.append(claim)
        return PlacementUnit(pod, tuple(found), self._find_class_obstacle(found))

    def build_claim_unit(self, claim: ResourceClaim) -> PlacementUnit:
        """A claim on its own."""
        return PlacementUnit(None, (claim,), self._find_class_obstacle([claim]))

    def _find_class_obstacle(self, claims: list[ResourceClaim]) -> str:
        """The first class that claims without devices ask for and that is invalid."""
        if not self._invalid:
            return ""
        for claim in claims:
            for name in _iter_class_names(claim) if claim.status.allocation is None else ():
                if ("DeviceClass", "", name) in self._invalid:
                    return f"DeviceClass `{name}` is {self._invalid['DeviceClass', '', name]}"
        return ""

    def list_used_names(self, pod: Pod) -> set[NamespacedName]:
        """The names of the claims a pod has a part in, whether they are there or not."""
        entries = pod.spec.resource_claims
        names = [entry.resource_claim_name for entry in entries]
        names += [said.resource_claim_name for said in pod.status.resource_claim_statuses]
        made = {
            self._generated[key]
            for entry in entries
            if (key := _build_generated_key(pod, entry)) in self._generated
        }
        return made | {(pod.metadata.namespace, name) for name in names if name}

    def list_unused_claims(self, used: set[NamespacedName]) -> list[ResourceClaim]:
        """Claims without devices that nobody among the used ones speaks for."""
        return [
            claim
            for name, claim in self._claims.items()
            if name not in used
            and claim.status.allocation is None
            and claim.metadata.deletion_timestamp is None
        ]

    def _resolve_entry(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | str | None:
        """The claim of an entry, None when it needs none, or what is in the way."""
        statuses = {said.name: said.resource_claim_name for said in pod.status.resource_claim_statuses}
        if entry.resource_claim_name is not None:
            return self._find_named(pod, entry.resource_claim_name)
        if entry.name in statuses:
            made = statuses[entry.name]
            return None if made is None else self._find_named(pod, made)
        if entry.resource_claim_template_name is None:
            if entry.template is not None:
                return f"entry `{entry.name}` stands for a claim of `cdi.k8s.io`: its driver allocates it"
            return f"entry `{entry.name}` names neither a claim nor a template"
        made_before = self._generated.get(_build_generated_key(pod, entry))
        if made_before is not None:
            wrong = self._invalid.get(("ResourceClaim", *made_before))
            return (
                self._claims[made_before] if wrong is None else f"claim `{'/'.join(made_before)}` is {wrong}"
            )
        template = self._templates.get((pod.metadata.namespace, entry.resource_claim_template_name))
        if template is None:
            space, name = pod.metadata.namespace, entry.resource_claim_template_name
            full = f"{space}/{name}"
            wrong = self._invalid.get(("ResourceClaimTemplate", space, name))
            if wrong is not None:
                return f"entry `{entry.name}`: ResourceClaimTemplate `{full}` is {wrong}"
            return f"entry `{entry.name}`: ResourceClaimTemplate `{full}` is not among the manifests"
        return self._create_from_template(template, pod, entry.name)

    def _find_named(self, pod: Pod, name: str) -> ResourceClaim | str:
        full = (pod.metadata.namespace, name)
        wrong = self._invalid.get(("ResourceClaim", *full))
        if wrong is not None:
            return f"claim `{'/'.join(full)}` is {wrong}"
        claim = self._claims.get(full)
        if claim is None:
            if full in self._classic:
                return f"claim `{'/'.join(full)}` is one of `cdi.k8s.io`: its driver allocates it"
            return f"claim `{'/'.join(full)}` is not among the manifests"
        reserved = claim.status.reserved_for
        holds = any(consumer.name == pod.metadata.name for consumer in reserved)
        if claim.metadata.deletion_timestamp is not None and not holds:
            return f"claim `{'/'.join(full)}` is being deleted"
        if len(reserved) >= MAX_CONSUMERS and not holds:
            return f"claim `{'/'.join(full)}` has {len(reserved)} consumers, and no room for more"
        return claim

    def _create_from_template(self, template: ResourceClaimTemplate, pod: Pod, entry: str) -> ResourceClaim:
        """The claim that a template stands for; its name is the same in every run."""
        namespace = pod.metadata.namespace
        base = name = f"{pod.metadata.name}-{entry}"[:_MAX_NAME_LENGTH].rstrip("-.")
        number = 1
        while (namespace, name) in self._claims:
            number += 1
            name = f"{base[: _MAX_NAME_LENGTH - 6].rstrip('-.')}-{number}"
        given = template.spec.metadata
        metadata = ObjectMeta(
            name=name,
            namespace=namespace,
            labels=given.labels,
            annotations={**given.annotations, POD_CLAIM_NAME_ANNOTATION: entry},
            owner_references=(build_owner_reference(pod),),
        )
        return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def list_pending_pods(bundle: Bundle) -> list[Pod]:
    """Pods that still need a place, highest priority first, else as in the manifests."""
    found = [pod for pod in bundle.pods if pod.spec.resource_claims and not is_pod_finished(pod)]
    return sorted(found, key=lambda pod: -(pod.spec.priority or 0))


def list_invalid_units(bundle: Bundle) -> Iterator[PlacementUnit]:
    """Pods and claims that would wait for devices if an API server did not refuse them."""
    for each in bundle.invalid:
        if each.needs_devices:
            pod = each.object if isinstance(each.object, Pod) else None
            claims = () if pod is not None else (each.object,)
            yield PlacementUnit(pod, claims, str(each), invalid=True)


def _iter_class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        yield from (alternative.device_class_name for alternative in request.first_available)


def _build_generated_key(pod: Pod, entry: PodResourceClaim) -> tuple[str, str, str]:
    return pod.metadata.namespace, pod.metadata.uid or pod.metadata.name, entry.name
