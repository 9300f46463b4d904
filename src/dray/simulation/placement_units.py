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
from dray.claims.claim_names import ENTRY_ANNOTATION, Name, name_of, owner_of
from dray.claims.reservation import MOST_CONSUMERS, is_over
from dray.simulation.bundle import Bundle

_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Subject:
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
    def name(self) -> Name:
        """Namespace and name of the pod, or of the claim."""
        metadata = self.claims[0].metadata if self.pod is None else self.pod.metadata
        return metadata.namespace, metadata.name

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(self.name)}"

    @property
    def pending(self) -> tuple[ResourceClaim, ...]:
        """The claims that have no devices yet."""
        return tuple(claim for claim in self.claims if claim.status.allocation is None)


class Claims:
    """The claims of a bundle by name, while pods are being placed; allocations are written back here."""

    def __init__(self, bundle: Bundle) -> None:
        self._claims = {name_of(claim.metadata): claim for claim in bundle.claims}
        self._templates = {name_of(template.metadata): template for template in bundle.templates}
        self._classic = {name_of(claim.metadata) for claim in bundle.classic_claims}
        self._invalid = {(each.kind, each.namespace, each.name): str(each) for each in bundle.invalid}
        # Claims made from templates earlier: namespace, owner and entry lead to the name.
        self._made: dict[tuple[str, str, str], Name] = {
            (name[0], owner.uid or owner.name, claim.metadata.annotations.get(ENTRY_ANNOTATION, "")): name
            for name, claim in self._claims.items()
            for owner in claim.metadata.owner_references
            if owner.kind == "Pod"
        }

    def get(self, name: Name) -> ResourceClaim | None:
        """A claim as it stands now."""
        return self._claims.get(name)

    def keep(self, claim: ResourceClaim) -> None:
        """Remember a claim as it is from now on."""
        self._claims[name_of(claim.metadata)] = claim

    def of(self, pod: Pod) -> Subject:
        """A pod with its claims; the first obstacle when they cannot all be had."""
        found: list[ResourceClaim] = []
        for entry in pod.spec.resource_claims:
            claim = self._resolved(pod, entry)
            if isinstance(claim, str):
                return Subject(pod, tuple(found), claim)
            if claim is not None and claim not in found:
                found.append(claim)
        return Subject(pod, tuple(found), self._class_obstacle(found))

    def single(self, claim: ResourceClaim) -> Subject:
        """A claim on its own."""
        return Subject(None, (claim,), self._class_obstacle([claim]))

    def _class_obstacle(self, claims: list[ResourceClaim]) -> str:
        """The first class that claims without devices ask for and that is invalid."""
        if not self._invalid:
            return ""
        for claim in claims:
            for name in _classes_of(claim) if claim.status.allocation is None else ():
                if ("DeviceClass", "", name) in self._invalid:
                    return f"DeviceClass `{name}` is {self._invalid['DeviceClass', '', name]}"
        return ""

    def used_by(self, pod: Pod) -> set[Name]:
        """The names of the claims a pod has a part in, whether they are there or not."""
        entries = pod.spec.resource_claims
        names = [entry.resource_claim_name for entry in entries]
        names += [said.resource_claim_name for said in pod.status.resource_claim_statuses]
        made = {self._made[key] for entry in entries if (key := _made_key(pod, entry)) in self._made}
        return made | {(pod.metadata.namespace, name) for name in names if name}

    def alone(self, used: set[Name]) -> list[ResourceClaim]:
        """Claims without devices that nobody among the used ones speaks for."""
        return [
            claim
            for name, claim in self._claims.items()
            if name not in used
            and claim.status.allocation is None
            and claim.metadata.deletion_timestamp is None
        ]

    def _resolved(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | str | None:
        """The claim of an entry, None when it needs none, or what is in the way."""
        statuses = {said.name: said.resource_claim_name for said in pod.status.resource_claim_statuses}
        if entry.resource_claim_name is not None:
            return self._named(pod, entry.resource_claim_name)
        if entry.name in statuses:
            made = statuses[entry.name]
            return None if made is None else self._named(pod, made)
        if entry.resource_claim_template_name is None:
            if entry.template is not None:
                return f"entry `{entry.name}` stands for a claim of `cdi.k8s.io`: its driver allocates it"
            return f"entry `{entry.name}` names neither a claim nor a template"
        made_before = self._made.get(_made_key(pod, entry))
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
        return self._from(template, pod, entry.name)

    def _named(self, pod: Pod, name: str) -> ResourceClaim | str:
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
        if len(reserved) >= MOST_CONSUMERS and not holds:
            return f"claim `{'/'.join(full)}` has {len(reserved)} consumers, and no room for more"
        return claim

    def _from(self, template: ResourceClaimTemplate, pod: Pod, entry: str) -> ResourceClaim:
        """The claim that a template stands for; its name is the same in every run."""
        namespace = pod.metadata.namespace
        base = name = f"{pod.metadata.name}-{entry}"[:_LONGEST_NAME].rstrip("-.")
        number = 1
        while (namespace, name) in self._claims:
            number += 1
            name = f"{base[: _LONGEST_NAME - 6].rstrip('-.')}-{number}"
        given = template.spec.metadata
        metadata = ObjectMeta(
            name=name,
            namespace=namespace,
            labels=given.labels,
            annotations={**given.annotations, ENTRY_ANNOTATION: entry},
            owner_references=(owner_of(pod),),
        )
        return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def waiting_pods(bundle: Bundle) -> list[Pod]:
    """Pods that still need a place, highest priority first, else as in the manifests."""
    found = [pod for pod in bundle.pods if pod.spec.resource_claims and not is_over(pod)]
    return sorted(found, key=lambda pod: -(pod.spec.priority or 0))


def refused_subjects(bundle: Bundle) -> Iterator[Subject]:
    """Pods and claims that would wait for devices if an API server did not refuse them."""
    for each in bundle.invalid:
        if each.waits:
            pod = each.object if isinstance(each.object, Pod) else None
            claims = () if pod is not None else (each.object,)
            yield Subject(pod, claims, str(each), invalid=True)


def _classes_of(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        yield from (alternative.device_class_name for alternative in request.first_available)


def _made_key(pod: Pod, entry: PodResourceClaim) -> tuple[str, str, str]:
    return pod.metadata.namespace, pod.metadata.uid or pod.metadata.name, entry.name
