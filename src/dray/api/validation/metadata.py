"""Validation of object metadata: names, namespaces, labels, annotations, owners, finalizers.

Rules for this file: it depends on no kind. Whether a kind is namespaced and which names it takes are
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dray.api import limits
from dray.api.fields import ROOT, FieldPath, forbidden, invalid, required, too_long
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.validation.field_rules import (
    FieldErrors,
    forbid_field,
    report_name_faults,
    validate_immutable,
)
from dray.values.names import (
    NameFaults,
    check_dns_label,
    check_label_value,
    check_qualified_name,
    count_bytes,
)

METADATA = ROOT.child("metadata")

_NON_NEGATIVE = "must be greater than or equal to 0"
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
_STANDARD_FINALIZERS = frozenset({"kubernetes", _ORPHAN, _FOREGROUND})


def validate_metadata(meta: ObjectMeta, rule: Callable[[str], NameFaults], namespaced: bool) -> FieldErrors:
    """Check the metadata of any object, new or changed."""
    if meta.generate_name and (faults := rule(_complete_prefix(meta.generate_name))):
        yield from report_name_faults(faults, METADATA.child("generateName"))
    if meta.name:
        if faults := rule(meta.name):
            yield from report_name_faults(faults, METADATA.child("name"))
    elif not meta.generate_name:
        yield required(METADATA.child("name"), "name or generateName is required")
    yield from _validate_namespace(meta.namespace, namespaced)
    if meta.generation < 0:
        yield invalid(METADATA.child("generation"), meta.generation, _NON_NEGATIVE)
    if meta.labels or meta.annotations:
        yield from validate_labels_annotations(meta, METADATA)
    if meta.owner_references:
        yield from _validate_owners(meta.owner_references, METADATA.child("ownerReferences"))
    if meta.finalizers:
        yield from _validate_finalizers(meta.finalizers, METADATA.child("finalizers"))


def _complete_prefix(prefix: str) -> str:
    """Return a prefix as it would be inside a name: the character that follows is never a dash."""
    return prefix[:-1] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _validate_namespace(namespace: str, namespaced: bool) -> FieldErrors:
    if not namespaced:
        if namespace:
            yield forbidden(METADATA.child("namespace"), "not allowed on this type")
    elif not namespace:
        yield required(METADATA.child("namespace"))
    elif faults := check_dns_label(namespace):
        yield from report_name_faults(faults, METADATA.child("namespace"))


def validate_labels_annotations(meta: ObjectMeta, path: FieldPath) -> FieldErrors:
    """Check labels and annotations, also those of templates."""
    for key, value in meta.labels.items():
        if faults := check_qualified_name(key) + check_label_value(value):
            yield from report_name_faults(faults, path.child("labels"))
    if meta.annotations:
        yield from _validate_annotations(meta.annotations, path.child("annotations"))


def _validate_annotations(annotations: Mapping[str, str], path: FieldPath) -> FieldErrors:
    for key in annotations:
        # The rule for keys is that of labels, but upper case in the domain is accepted.
        if check_qualified_name(key) and (faults := check_qualified_name(key.lower())):
            for fault in faults:
                yield invalid(path, key, fault.text)
    if (
        sum(count_bytes(key) + count_bytes(value) for key, value in annotations.items())
        > limits.ANNOTATION_BYTES
    ):
        yield too_long(path, limits.ANNOTATION_BYTES)


def _validate_owners(owners: Sequence[OwnerRef], path: FieldPath) -> FieldErrors:
    for position, owner in enumerate(owners):
        place = path.index(position)
        yield from validate_owner_reference(owner, place)
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            yield invalid(place, owner, "an Event is disallowed from being an owner")
    if sum(owner.controller is True for owner in owners) > 1:
        yield invalid(path, len(owners), "only one reference can have `controller` set to true")


def validate_owner_reference(owner: OwnerRef, path: FieldPath) -> FieldErrors:
    """Check that a reference names one object completely."""
    group, slash, version = owner.api_version.rpartition("/")
    if not owner.api_version:
        yield required(path.child("apiVersion"))
    elif not version:
        yield invalid(path.child("apiVersion"), owner.api_version, "version must not be empty")
    elif slash and (not group or "/" in group):
        yield invalid(
            path.child("apiVersion"), owner.api_version, "must be a version, or a group and a version"
        )
    for field, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
        if not value:
            yield required(path.child(field))


def _validate_finalizers(finalizers: Sequence[str], path: FieldPath) -> FieldErrors:
    for name in finalizers:
        if faults := check_qualified_name(name):
            yield from report_name_faults(faults, path)
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield invalid(
            path, list(finalizers), f"finalizers `{_ORPHAN}` and `{_FOREGROUND}` cannot be both set"
        )


def validate_finalizer_domains(finalizers: Sequence[str]) -> FieldErrors:
    """Check that finalizers name their owner by a domain, except for those of Kubernetes itself."""
    for position, name in enumerate(finalizers):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            place = METADATA.child("finalizers").index(position)
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(place, name, text)


# --- updates ---

_IMMUTABLE_FIELDS = (
    ("name", "name"),
    ("namespace", "namespace"),
    ("uid", "uid"),
    ("creation_timestamp", "creationTimestamp"),
    ("deletion_timestamp", "deletionTimestamp"),
    ("deletion_grace_period_seconds", "deletionGracePeriodSeconds"),
)


def validate_metadata_update(new: ObjectMeta, old: ObjectMeta) -> FieldErrors:
    """Check what of the metadata may not change. Fields that the system fills in may be left out by the
    writer.
    """
    for attribute, field in _IMMUTABLE_FIELDS:
        value, stored = getattr(new, attribute), getattr(old, attribute)
        if value != stored and (value or attribute in ("name", "namespace")):
            yield from validate_immutable(value, stored, METADATA.child(field))
    if new.generation and new.generation < old.generation:
        yield invalid(METADATA.child("generation"), new.generation, "must not be decremented")
    if old.deletion_timestamp is not None and not set(new.finalizers) <= set(old.finalizers):
        added = ", ".join(sorted(set(new.finalizers) - set(old.finalizers)))
        text = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
        yield forbidden(METADATA.child("finalizers"), text)


# --- templates ---

_COPIED_FIELDS = frozenset({"labels", "annotations"})


def validate_template_metadata(meta: ObjectMeta, path: FieldPath) -> FieldErrors:
    """Check the metadata of a template: only labels and annotations, which are copied into the claim."""
    if meta == ObjectMeta():
        return
    yield from validate_labels_annotations(meta, path)
    plain = ObjectMeta()
    for attribute, field in zip(meta.__struct_fields__, meta.__struct_encode_fields__, strict=True):
        if attribute not in _COPIED_FIELDS and getattr(meta, attribute) != getattr(plain, attribute):
            yield forbid_field(path.child(field))
