"""Validation of the claims of pods, and of the containers that use them; `pods` has all other rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dray.api.core import (
    Container,
    ContainerClaim,
    InlineTemplate,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
)
from dray.api.fields import (
    ROOT,
    FieldPath,
    SubrequestReference,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
)
from dray.api.validation.field_rules import (
    FieldErrors,
    report_name_faults,
    validate_name,
)
from dray.api.validation.kinds.classic import validate_classic_spec
from dray.api.validation.metadata import validate_template_metadata
from dray.api.validation.pods.annotations import MIRROR
from dray.values.names import check_dns_label, check_dns_subdomain

_SPEC = ROOT.child("spec")
_STATUSES = ROOT.child("status", "resourceClaimStatuses")


def validate_pod(obj: Pod) -> FieldErrors:
    """Check the claims of a pod and the containers that use them."""
    claims = obj.spec.resource_claims
    if claims and MIRROR in obj.metadata.annotations:
        yield forbidden(ROOT, "a static pod cannot have claims")
    elif claims:
        yield from _validate_pod_claims(obj, _SPEC.child("resourceClaims"))
    names = frozenset(entry.name for entry in claims)
    for container, path in _iterate_containers(obj):
        if container.resources.claims:
            yield from _validate_container_claims(
                container.resources.claims, names, path.child("resources", "claims")
            )


def _iterate_containers(obj: Pod) -> Iterator[tuple[Container, FieldPath]]:
    for field, position, container in obj.spec.iterate_containers():
        yield container, _SPEC.child(field).index(position)


# --- the claims of a pod ---


def _validate_pod_claims(obj: Pod, path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, entry in enumerate(obj.spec.resource_claims):
        place = path.index(position)
        if entry.name and entry.name in seen:
            yield duplicate(place.child("name"), entry.name)
        else:
            yield from validate_name(entry.name, check_dns_label, place.child("name"))
        seen.add(entry.name)
        yield from _validate_claim_source(entry, obj.metadata.name, place)


def _validate_claim_source(entry: PodResourceClaim, pod_name: str, path: FieldPath) -> FieldErrors:
    """Check the source of a claim: a claim, a template object, or a template inside the pod."""
    named_sources = {
        "resourceClaimName": entry.resource_claim_name,
        "resourceClaimTemplateName": entry.resource_claim_template_name,
    }
    given = [field for field, name in named_sources.items() if name is not None]
    given += ["template"] if entry.template is not None else []
    if len(given) != 1:
        known = ", ".join(f"`{field}`" for field in (*named_sources, "template"))
        yield invalid(path, given, f"exactly one of {known} is required")
    for field, name in named_sources.items():
        if name is not None and (faults := check_dns_subdomain(name)):
            yield from report_name_faults(faults, path.child(field))
    if entry.template is not None:
        yield from _validate_inline_template(entry.template, path.child("template"))
        if pod_name and entry.name:
            yield from _validate_generated_name(f"{pod_name}-{entry.name}", path.child("name"))


def _validate_inline_template(template: InlineTemplate, path: FieldPath) -> FieldErrors:
    yield from validate_template_metadata(template.metadata, path.child("metadata"))
    yield from validate_classic_spec(template.spec, path.child("spec"))


def _validate_generated_name(name: str, path: FieldPath) -> FieldErrors:
    for fault in check_dns_subdomain(name):
        text = f"the claim made for this entry would be called `{name}`: {fault.text}"
        yield invalid(path, name, text)


# --- containers ---


def _validate_container_claims(
    claims: Sequence[ContainerClaim], names: frozenset[str], path: FieldPath
) -> FieldErrors:
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        place = path.index(position)
        if not claim.name:
            yield required(place)
            continue
        if claim.request:
            yield from _validate_request_reference(claim.request, place.child("request"))
        key = f"{claim.name}/{claim.request}" if claim.request else claim.name
        if key in seen or claim.name in seen:
            yield duplicate(place, key if key in seen else claim.name)
        elif not claim.request:
            parts = [name for name in seen if name.startswith(f"{claim.name}/")]
            yield from (duplicate(place, claim.name) for _ in parts)
        seen.add(key)
        if claim.name not in names:
            known = tuple(sorted(names))
            shown = ", ".join(f"`{name}`" for name in known) or "none"
            text = f"must be one of the names in pod.spec.resourceClaims: {shown}"
            yield not_found(place, claim.name, known, text)


def _validate_request_reference(name: str, path: FieldPath) -> FieldErrors:
    """Check that a container refers to a request and not to an alternative; a DNS label has no slash."""
    request, slash, _ = name.partition("/")
    for error in report_name_faults(check_dns_label(name), path):
        yield replace(error, violation=SubrequestReference(request)) if slash else error


# --- status ---


def validate_pod_status(obj: Pod) -> FieldErrors:
    """Check the names of the claims that were created for the pod."""
    entries = frozenset(entry.name for entry in obj.spec.resource_claims)
    seen: set[str] = set()
    for position, item in enumerate(obj.status.resource_claim_statuses):
        place = _STATUSES.index(position)
        yield from _validate_claim_status_entry(item, entries, place)
        if item.name in seen:
            yield duplicate(place.child("name"), item.name)
        seen.add(item.name)


def _validate_claim_status_entry(
    item: PodResourceClaimStatus, entries: frozenset[str], path: FieldPath
) -> FieldErrors:
    if item.name not in entries:
        text = "must match the name of an entry in `spec.resourceClaims`"
        yield invalid(path.child("name"), item.name, text)
    if item.resource_claim_name is not None and (faults := check_dns_subdomain(item.resource_claim_name)):
        yield from report_name_faults(faults, path.child("resourceClaimName"))
