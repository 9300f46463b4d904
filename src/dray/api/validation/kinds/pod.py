"""Rules of a pod, as far as its claims are concerned; the rest of a pod is not ours to judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.api.core import (
    Container,
    ContainerClaim,
    InlineTemplate,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
)
from dray.api.fields import ROOT, Fault, FieldError, Path, duplicate, forbidden, invalid, required
from dray.api.validation.field_rules import Errors, exactly_one, misnamed, named
from dray.api.validation.kinds.classic import classic_spec
from dray.api.validation.metadata import template_metadata
from dray.api.validation.semantic_equality import same
from dray.values.names import dns_label, dns_subdomain

_SPEC = ROOT.field("spec")
_STATUSES = ROOT.field("status", "resourceClaimStatuses")
_CONTAINER_LISTS = (
    ("init_containers", "initContainers"),
    ("containers", "containers"),
    ("ephemeral_containers", "ephemeralContainers"),
)


def pod(obj: Pod) -> Errors:
    """The claims of a pod and the containers that use them."""
    claims = obj.spec.resource_claims
    if claims:
        yield from _entries(obj, _SPEC.field("resourceClaims"))
    names = frozenset(entry.name for entry in claims)
    for container, path in _containers(obj):
        if container.resources.claims:
            yield from _uses(container.resources.claims, names, path.field("resources", "claims"))


def pod_update(new: Pod, old: Pod) -> Errors:
    """What a pod claims is settled when it is created; ephemeral containers cannot claim anything more."""
    changed = not same(new.spec.resource_claims, old.spec.resource_claims)
    if changed or _claims_by_container(new) != _claims_by_container(old):
        text = "pod updates may not change `resourceClaims` or the claims that containers use"
        yield forbidden(_SPEC, text)


def _claims_by_container(obj: Pod) -> dict[str, tuple[ContainerClaim, ...]]:
    used = ((container.name, container.resources.claims) for container, _ in _containers(obj))
    return {name: claims for name, claims in used if claims}


def _containers(obj: Pod) -> Iterator[tuple[Container, Path]]:
    for attribute, field in _CONTAINER_LISTS:
        containers: Sequence[Container] = getattr(obj.spec, attribute)
        for position, container in enumerate(containers):
            yield container, _SPEC.field(field).index(position)


# --- the claims of a pod ---


def _entries(obj: Pod, path: Path) -> Errors:
    seen: set[str] = set()
    for position, entry in enumerate(obj.spec.resource_claims):
        place = path.index(position)
        yield from named(entry.name, dns_label, place.field("name"))
        if entry.name in seen:
            yield duplicate(place.field("name"), entry.name)
        seen.add(entry.name)
        yield from _source(entry, obj.metadata.name, place)


def _source(entry: PodResourceClaim, pod_name: str, path: Path) -> Errors:
    """Where the claim comes from: a claim, a template object, or a template written inside the pod."""
    named_sources = {
        "resourceClaimName": entry.resource_claim_name,
        "resourceClaimTemplateName": entry.resource_claim_template_name,
    }
    given = {field: name is not None for field, name in named_sources.items()}
    yield from exactly_one({**given, "template": entry.template is not None}, path)
    for field, name in named_sources.items():
        if name is not None and (faults := dns_subdomain(name)):
            yield from misnamed(faults, path.field(field))
    if entry.template is not None:
        yield from _template(entry.template, path.field("template"))
        if pod_name and entry.name:
            yield from _generated_name(f"{pod_name}-{entry.name}", path.field("name"))


def _template(template: InlineTemplate, path: Path) -> Errors:
    yield from template_metadata(template.metadata, path.field("metadata"))
    yield from classic_spec(template.spec, path.field("spec"))


def _generated_name(name: str, path: Path) -> Errors:
    for fault in dns_subdomain(name):
        text = f"the claim made for this entry would be called `{name}`: {fault.text}"
        yield invalid(path, name, text)


# --- containers ---


def _uses(claims: Sequence[ContainerClaim], names: frozenset[str], path: Path) -> Errors:
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        place = path.index(position)
        if not claim.name:
            yield required(place)
            continue
        if claim.request:
            # A label has no slash: a container uses a request, whichever alternative was chosen for it.
            yield from misnamed(dns_label(claim.request), place.field("request"))
        key = f"{claim.name}/{claim.request}" if claim.request else claim.name
        if key in seen:
            yield duplicate(place, key)
        seen.add(key)
        if claim.name not in names:
            known = ", ".join(f"`{name}`" for name in sorted(names)) or "none"
            text = f"must be one of the names in pod.spec.resourceClaims: {known}"
            yield FieldError(Fault.NOT_FOUND, str(place), claim.name, text)


# --- status ---


def pod_status(obj: Pod) -> Errors:
    """Which claims were made for which entries."""
    entries = frozenset(entry.name for entry in obj.spec.resource_claims)
    seen: set[str] = set()
    for position, item in enumerate(obj.status.resource_claim_statuses):
        place = _STATUSES.index(position)
        yield from _made_claim(item, entries, place)
        if item.name in seen:
            yield duplicate(place.field("name"), item.name)
        seen.add(item.name)


def _made_claim(item: PodResourceClaimStatus, entries: frozenset[str], path: Path) -> Errors:
    if item.name not in entries:
        text = "must match the name of an entry in `spec.resourceClaims`"
        yield invalid(path.field("name"), item.name, text)
    if item.resource_claim_name is not None and (faults := dns_subdomain(item.resource_claim_name)):
        yield from misnamed(faults, path.field("resourceClaimName"))
