"""Validation of a new pod, and of templates of pods.

Theory of operation: most pods come from templates, so the server sees the same specs again and again. What is
wrong with a pod without annotations and volumes depends on its spec alone. The JSON texts of specs that were
found valid are cached, and the same spec is not validated again.
"""

from __future__ import annotations

from typing import Final

from dray.api.fields import ROOT, FieldPath, forbidden, invalid
from dray.api.json_text import write_json
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.annotations import validate_pod_annotations, validate_profiles_match
from dray.api.validation.pods.document_fields import (
    Document,
    find_number,
    get_list,
    get_mapping,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.spec.containers import validate_image_spaces
from dray.api.validation.pods.spec.pod_spec import validate_pod_spec
from dray.api.validation.pods.value_rules import NOT_NEGATIVE
from dray.api.validation.pods.volumes.projections import iterate_token_sources
from dray.api.validation.validation_cache import ValidValueCache
from dray.values.cache_bounds import CacheBound

SPEC = ROOT.child("spec")
ANNOTATIONS = ROOT.child("metadata", "annotations")
VALID_SPECS_BOUND: Final = CacheBound("valid specs of pods", 1_024, "the process")
VALID_SPECS: Final = ValidValueCache[bytes](VALID_SPECS_BOUND)
MAX_CACHED_SPEC_BYTES: Final = 8 * 1024
"""Larger specs are validated each time: a few of them would fill the memory."""


def validate_new_pod(pod: Document) -> FieldErrors:
    """Check a new pod; its metadata and claims have rules of their own."""
    annotations, spec = get_mapping(get_mapping(pod, "metadata"), "annotations"), get_mapping(pod, "spec")
    yield from validate_pod(pod)
    if get_list(spec, "ephemeralContainers"):
        yield forbidden(
            SPEC.child("ephemeralContainers"), "may not be set on create; add them to a running pod"
        )
    if get_text(spec, "nodeName") and get_list(spec, "schedulingGates"):
        yield forbidden(SPEC.child("nodeName"), "may not be set while there are scheduling gates")
    if annotations:
        yield from validate_profiles_match(annotations, spec, SPEC)


def validate_pod(pod: Document) -> FieldErrors:
    """Check a pod by itself, new or changed."""
    spec = get_mapping(pod, "spec")
    if get_mapping(get_mapping(pod, "metadata"), "annotations") or spec.get("volumes"):
        return _check_pod(pod)
    text = write_json(spec)
    if text in VALID_SPECS:
        return iter(())
    errors = list(_check_pod(pod))
    if not errors and len(text) <= MAX_CACHED_SPEC_BYTES:
        VALID_SPECS.add((text,))
    return iter(errors)


def _check_pod(pod: Document) -> FieldErrors:
    metadata, spec = get_mapping(pod, "metadata"), get_mapping(pod, "spec")
    annotations = get_mapping(metadata, "annotations")
    if annotations:
        yield from validate_pod_annotations(annotations, spec, ANNOTATIONS)
    yield from validate_pod_spec(spec, SPEC, pod_name=get_text(metadata, "name"))
    if (
        not get_text(spec, "serviceAccountName")
        and not get_text(spec, "serviceAccount")
        and spec.get("volumes")
    ):
        for position, index in iterate_token_sources(spec):
            place = SPEC.child("volumes").index(position).child("projected", "sources").index(index)
            yield forbidden(place.child("serviceAccountToken"), "needs `spec.serviceAccountName`")
    grace = find_number(spec, "terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        yield invalid(SPEC.child("terminationGracePeriodSeconds"), grace, NOT_NEGATIVE)
    for field in ("containers", "initContainers"):
        if field in spec:
            place = SPEC.child(field)
            yield from validate_image_spaces(
                (place.index(position), container) for position, container in iterate_objects(spec, field)
            )


def validate_pod_template(template: Document, path: FieldPath) -> FieldErrors:
    """Check the template of a pod, besides its labels and claims."""
    annotations, spec = (
        get_mapping(get_mapping(template, "metadata"), "annotations"),
        get_mapping(template, "spec"),
    )
    if annotations:
        yield from validate_pod_annotations(annotations, spec, path.child("annotations"))
    yield from validate_pod_spec(spec, path.child("spec"))
    if annotations:
        yield from validate_profiles_match(annotations, spec, path.child("spec"))
    if get_list(spec, "ephemeralContainers"):
        yield forbidden(path.child("spec", "ephemeralContainers"), "may not be set in a template")
