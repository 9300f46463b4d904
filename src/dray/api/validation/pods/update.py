"""Validation of changes of a pod: images, deadlines, tolerations and gates may change, nothing else.

Theory of operation: what a pod is, is decided when it is created, because nodes act on it. An update is
checked in three steps. The new pod must be valid, except for errors that the stored pod already has. Each of
the fields that may change has its own rule. Then these fields are set back to their stored values, and what
remains must be equal. A pod that waits for a scheduling gate is on no node yet, so that its node selector and
node affinity may be made narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.fields import FieldError, FieldPath, forbidden, invalid, required
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.annotations import validate_annotation_changes, validate_pod_annotations
from dray.api.validation.pods.create import ANNOTATIONS, SPEC, validate_pod
from dray.api.validation.pods.document_equality import is_same_document
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_number,
    get_list,
    get_mapping,
    get_objects,
    get_text,
    iterate_texts,
)
from dray.api.validation.pods.spec.scheduling import validate_tolerations
from dray.api.validation.pods.value_rules import MAX_INT32, validate_range
from dray.api.validation.ratcheting import filter_new_errors


def validate_changed_pod(new: Document, old: Document) -> list[FieldError]:
    """Return the errors of an update of a pod; its metadata and claims have rules of their own."""
    errors = [*find_new_pod_errors(new, old), *validate_annotations_of_change(new, old)]
    spec, stored = get_mapping(new, "spec"), get_mapping(old, "spec")
    if is_same_document(spec, stored):
        return errors
    for field in ("containers", "initContainers"):
        found = list(_validate_images(spec, stored, SPEC.child(field), field))
        errors += found
        if len(get_list(spec, field)) != len(get_list(stored, field)):
            return errors
    found = list(_validate_deadline(spec, stored, SPEC.child("activeDeadlineSeconds")))
    errors += found
    if found and find_number(spec, "activeDeadlineSeconds") is not None:
        return errors
    errors += _validate_toleration_changes(spec, stored)
    errors += _validate_gate_changes(spec, stored)
    errors += _validate_fixed_fields(spec, stored)
    return errors


def find_new_pod_errors(new: Document, old: Document) -> list[FieldError]:
    """Return the errors that the new pod has by itself and the stored one has not."""
    if is_same_document(new.get("spec"), old.get("spec")) and _get_annotations(new) == _get_annotations(old):
        return []
    found = list(validate_pod(new))
    return filter_new_errors(found, new, validate_pod(old), old) if found else []


def _get_annotations(pod: Document) -> Document:
    return get_mapping(get_mapping(pod, "metadata"), "annotations")


def validate_annotations_of_change(new: Document, old: Document) -> FieldErrors:
    """Check the annotations of a changed pod."""
    after, before = _get_annotations(new), _get_annotations(old)
    if after != before:
        yield from validate_annotation_changes(after, before, ANNOTATIONS)
        found = list(validate_pod_annotations(after, get_mapping(new, "spec"), ANNOTATIONS))
        if found:
            known = validate_pod_annotations(before, get_mapping(old, "spec"), ANNOTATIONS)
            yield from filter_new_errors(found, new, known, old)


# --- fields that may change ---


def _validate_images(spec: Document, stored: Document, path: FieldPath, field: str) -> FieldErrors:
    if len(get_list(spec, field)) != len(get_list(stored, field)):
        yield forbidden(path, "an update may not add or remove containers")
        return
    for position, container in enumerate(get_objects(spec, field)):
        image, place = get_text(container, "image"), path.index(position).child("image")
        if image == get_text(get_objects(stored, field)[position], "image"):
            continue
        if not image:
            yield required(place)
        if image != image.strip():
            yield invalid(place, image, "must not begin or end with white space")


def _validate_deadline(spec: Document, stored: Document, path: FieldPath) -> FieldErrors:
    new, old = find_number(spec, "activeDeadlineSeconds"), find_number(stored, "activeDeadlineSeconds")
    if new is None:
        if old is not None:
            yield invalid(path, None, "may not be removed")
    elif not 0 <= new <= MAX_INT32:
        yield from validate_range(new, 0, MAX_INT32, path)
    elif old is not None and old < new:
        yield invalid(path, new, f"must be at most the present value, {old}")


def _validate_toleration_changes(spec: Document, stored: Document) -> FieldErrors:
    """Check that tolerations are only added; how long an existing one lasts may change."""
    if is_same_document(spec.get("tolerations"), stored.get("tolerations")):
        return
    kept = [_drop_seconds(each) for each in get_objects(spec, "tolerations")]
    for toleration in get_objects(stored, "tolerations"):
        wanted = _drop_seconds(toleration)
        if not any(is_same_document(each, wanted) for each in kept):
            text = "existing tolerations may not be changed or removed, except for `tolerationSeconds`"
            yield forbidden(SPEC.child("tolerations"), text)
            return
    yield from validate_tolerations(spec, SPEC)


def _drop_seconds(toleration: Document) -> dict[str, Any]:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _validate_gate_changes(spec: Document, stored: Document) -> FieldErrors:
    known = {get_text(gate, "name") for gate in get_objects(stored, "schedulingGates")}
    for position, gate in enumerate(get_objects(spec, "schedulingGates")):
        name = get_text(gate, "name")
        if name not in known:
            place = SPEC.child("schedulingGates").index(position).child("name")
            yield forbidden(place, f"gates may only be removed, and `{name}` is new")


# --- fields that may not change ---

_CHANGING: Final = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
_CHANGEABLE_TEXT: Final = ", ".join(
    f"`spec.{name}`"
    for name in (
        "containers[*].image",
        "initContainers[*].image",
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
    )
)


def _validate_fixed_fields(spec: Document, stored: Document) -> FieldErrors:
    """Check that nothing else differs, once the fields that may change are set back."""
    rest = {name: value for name, value in spec.items() if name not in _CHANGING}
    rest |= {name: stored[name] for name in _CHANGING if name in stored}
    for field in ("containers", "initContainers"):
        rest[field] = [
            {**new, "image": old.get("image")}
            for new, old in zip(get_objects(spec, field), get_objects(stored, field), strict=True)
        ]
    grace = find_number(stored, "terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = grace
    if get_list(stored, "schedulingGates"):
        yield from _validate_narrowed_placement(rest, stored)
        rest = _restore_placement(rest, stored)
    changed = sorted(
        name for name in {*rest, *stored} if not is_same_document(rest.get(name), stored.get(name), name)
    )
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        yield forbidden(SPEC, f"an update may only change {_CHANGEABLE_TEXT}; this one changes {names}")


def _validate_narrowed_placement(spec: Document, stored: Document) -> FieldErrors:
    new = dict(iterate_texts(spec, "nodeSelector"))
    if any(new.get(key) != value for key, value in iterate_texts(stored, "nodeSelector")):
        yield invalid(SPEC.child("nodeSelector"), new, "labels may only be added")
    required_field = "requiredDuringSchedulingIgnoredDuringExecution"
    place = SPEC.child("affinity", "nodeAffinity", required_field, "nodeSelectorTerms")
    after, before = _get_node_terms(spec, required_field), _get_node_terms(stored, required_field)
    if before and len(before) != len(after):
        yield invalid(place, after, "terms may not be added or removed")
        return
    for position, term in enumerate(before):
        if not _has_only_additions(after[position], term):
            yield invalid(place.index(position), after[position], "requirements may only be added")


def _get_node_terms(spec: Document, field: str) -> list[Document]:
    affinity = get_mapping(get_mapping(spec, "affinity"), "nodeAffinity")
    return get_objects(get_mapping(affinity, field), "nodeSelectorTerms")


def _has_only_additions(new: Document, old: Document) -> bool:
    """Whether a term has all requirements of another one; one without any matches nothing."""
    fields = ("matchExpressions", "matchFields")
    if not any(get_list(old, field) for field in fields):
        return not any(get_list(new, field) for field in fields)
    return all(
        is_same_document(get_list(new, field)[: len(get_list(old, field))], get_list(old, field))
        for field in fields
    )


def _restore_placement(spec: Mapping[str, Any], stored: Document) -> dict[str, Any]:
    """Return the spec with the node selector and the node affinity of the stored one."""
    affinity = dict(get_mapping(spec, "affinity"))
    before = find_mapping(get_mapping(stored, "affinity"), "nodeAffinity")
    affinity.pop("nodeAffinity", None)
    if before is not None:
        affinity["nodeAffinity"] = before
    return {**spec, "nodeSelector": stored.get("nodeSelector"), "affinity": affinity}
