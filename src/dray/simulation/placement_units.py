"""Placement units: the pods of a bundle with the claims they use, and claims on their own.

Theory of operation: first the bundle does for a pod what the claim controller does in a cluster: it finds the
claim that was created for an entry with a template, or creates it. Then the entries are resolved by the rules
of the scheduler (see claims.pod_claims). A claim that the pod cannot use, a classic claim and any invalid
object that the pod needs are obstacles, reported as text. A claim that no pending pod uses is placed on its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim, PodResourceClaimStatus
from dray.api.resource import ResourceClaim
from dray.claims.claim_names import (
    EntryClaim,
    NamespacedName,
    build_from_template,
    find_entry_claim,
    find_generated_claim,
    get_namespaced_name,
)
from dray.claims.pod_claims import ClaimProblem, PodClaimLookup, UnusableClaim, resolve_claim
from dray.claims.reservation import is_pod_finished
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
    """The claims of a bundle by name, while pods are being placed; placements update them."""

    def __init__(self, bundle: Bundle) -> None:
        self._claims = {get_namespaced_name(claim.metadata): claim for claim in bundle.claims}
        self._templates = {get_namespaced_name(template.metadata): template for template in bundle.templates}
        self._classic = {get_namespaced_name(claim.metadata): claim for claim in bundle.classic_claims}
        self._invalid = {(each.kind, each.namespace, each.name): str(each) for each in bundle.invalid}
        self._by_owner: dict[NamespacedName, list[ResourceClaim]] = {}
        """Claims of the bundle by namespace and name of the pods that own them."""
        for claim in bundle.claims:
            for owner in claim.metadata.owner_references:
                if owner.kind == "Pod":
                    self._by_owner.setdefault((claim.metadata.namespace, owner.name), []).append(claim)
        self._created: dict[NamespacedName, ResourceClaim] = {}
        """Claims created from templates for the pod whose unit is being built."""

    def get(self, name: NamespacedName) -> ResourceClaim | None:
        """A claim as it is now."""
        return self._claims.get(name)

    def update(self, claim: ResourceClaim) -> None:
        """Replace a claim, or add one that was created from a template."""
        self._claims[get_namespaced_name(claim.metadata)] = claim

    def build_pod_unit(self, pod: Pod) -> PlacementUnit:
        """A pod with its claims, or with the first obstacle to using one of them."""
        self._created = {}
        found: dict[str, ResourceClaim] = {}
        for entry in pod.spec.resource_claims:
            claim = self._resolve_entry(pod, entry)
            if isinstance(claim, str):
                return PlacementUnit(pod, tuple(found.values()), claim)
            if claim is not None:
                found.setdefault(claim.metadata.name, claim)
        claims = tuple(found.values())
        return PlacementUnit(pod, claims, self._find_class_obstacle(claims))

    def build_claim_unit(self, claim: ResourceClaim) -> PlacementUnit:
        """A claim on its own."""
        return PlacementUnit(None, (claim,), self._find_class_obstacle((claim,)))

    def _find_class_obstacle(self, claims: tuple[ResourceClaim, ...]) -> str:
        """The first invalid class that a claim without devices asks for."""
        if not self._invalid:
            return ""
        for claim in claims:
            for name in _iter_class_names(claim) if claim.status.allocation is None else ():
                if ("DeviceClass", "", name) in self._invalid:
                    return f"DeviceClass `{name}` is {self._invalid['DeviceClass', '', name]}"
        return ""

    def list_used_names(self, pod: Pod) -> set[NamespacedName]:
        """The names of the claims that a pod uses, whether or not they exist."""
        entries = pod.spec.resource_claims
        names = [entry.resource_claim_name for entry in entries]
        names += [status.resource_claim_name for status in pod.status.resource_claim_statuses]
        names += [claim.metadata.name for entry in entries if (claim := self._find_generated(pod, entry))]
        return {(pod.metadata.namespace, name) for name in names if name}

    def list_unused_claims(self, used: set[NamespacedName]) -> list[ResourceClaim]:
        """Claims without devices that no pod uses."""
        return [
            claim
            for name, claim in self._claims.items()
            if name not in used
            and claim.status.allocation is None
            and claim.metadata.deletion_timestamp is None
        ]

    def _resolve_entry(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | str | None:
        """The claim of an entry, None when it needs none, or the obstacle to using it."""
        if entry.template is not None:
            return f"entry `{entry.name}` stands for a claim of `cdi.k8s.io`: its driver allocates it"
        used = find_entry_claim(pod, entry)
        if used is None:
            created = self._find_or_create(pod, entry)
            if isinstance(created, UnusableClaim):
                return created.text
            used, pod = created, _record_claim(pod, entry, created)
        namespace = pod.metadata.namespace
        wrong = self._invalid.get(("ResourceClaim", namespace, used.name or ""))
        if wrong is not None:
            return f"claim `{namespace}/{used.name}` is {wrong}"
        claim = resolve_claim(pod, entry, PodClaimLookup(self._get_claim, self._get_classic_claim))
        if isinstance(claim, UnusableClaim):
            missing = claim.problem is ClaimProblem.NOT_FOUND
            return f"claim `{namespace}/{claim.name}` is not among the manifests" if missing else claim.text
        if claim is None or isinstance(claim, ResourceClaim):
            return claim
        return f"claim `{namespace}/{claim.metadata.name}` is one of `cdi.k8s.io`: its driver allocates it"

    def _get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self._claims.get((namespace, name)) or self._created.get((namespace, name))

    def _get_classic_claim(self, namespace: str, name: str) -> ClassicResourceClaim | None:
        return self._classic.get((namespace, name))

    def _find_generated(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | None:
        owned = self._by_owner.get((pod.metadata.namespace, pod.metadata.name), ())
        return find_generated_claim(pod, entry, owned)

    def _find_or_create(self, pod: Pod, entry: PodResourceClaim) -> EntryClaim | UnusableClaim:
        """The claim of an entry with a template, as the claim controller would record it."""
        if entry.resource_claim_template_name is None:
            text = f"entry `{entry.name}` names neither a claim nor a template"
            return UnusableClaim(ClaimProblem.NOT_RECORDED, text)
        made = self._find_generated(pod, entry)
        if made is not None:
            return EntryClaim(made.metadata.name, generated=True)
        full = (pod.metadata.namespace, entry.resource_claim_template_name)
        template = self._templates.get(full)
        if template is None:
            why = self._invalid.get(("ResourceClaimTemplate", *full), "not among the manifests")
            text = f"entry `{entry.name}`: ResourceClaimTemplate `{'/'.join(full)}` is {why}"
            return UnusableClaim(ClaimProblem.NOT_RECORDED, text)
        claim = self._name_claim(
            build_from_template(template, pod, entry), f"{pod.metadata.name}-{entry.name}"
        )
        self._created[get_namespaced_name(claim.metadata)] = claim
        return EntryClaim(claim.metadata.name, generated=True)

    def _name_claim(self, claim: ResourceClaim, base: str) -> ResourceClaim:
        """Give a claim a name that is the same in every run; it has no finalizer before a server adds it."""
        namespace = claim.metadata.namespace
        base = name = base[:_MAX_NAME_LENGTH].rstrip("-.")
        number = 1
        while (namespace, name) in self._claims or (namespace, name) in self._created:
            number += 1
            name = f"{base[: _MAX_NAME_LENGTH - 6].rstrip('-.')}-{number}"
        return replace(claim, metadata=replace(claim.metadata, name=name, generate_name="", finalizers=()))


def _record_claim(pod: Pod, entry: PodResourceClaim, claim: EntryClaim) -> Pod:
    """The pod with a claim recorded in its status."""
    record = PodResourceClaimStatus(name=entry.name, resource_claim_name=claim.name)
    statuses = (*pod.status.resource_claim_statuses, record)
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


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
