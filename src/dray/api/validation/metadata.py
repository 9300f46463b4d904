"""Metadata of every kind: names, namespaces, labels, annotations, owners, finalizers.

Rules for this file: it knows no kind. Whether a kind has namespaces and which names it takes are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dray.api.fields import ROOT, Path, forbidden, invalid, required, too_long
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.validation import limits
from dray.api.validation.field_rules import Errors, cannot_be_set, misnamed, size, unchanged
from dray.values.names import Faults, dns_label, label_value, qualified_name

METADATA = ROOT.field("metadata")

_NON_NEGATIVE = "must be greater than or equal to 0"
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


def metadata(meta: ObjectMeta, rule: Callable[[str], Faults], namespaced: bool) -> Errors:
    """What holds of every object, new or changed."""
    if meta.generate_name and (faults := rule(_as_prefix(meta.generate_name))):
        yield from misnamed(faults, METADATA.field("generateName"))
    if meta.name:
        if faults := rule(meta.name):
            yield from misnamed(faults, METADATA.field("name"))
    elif not meta.generate_name:
        yield required(METADATA.field("name"), "name or generateName is required")
    yield from _namespace(meta.namespace, namespaced)
    if meta.generation < 0:
        yield invalid(METADATA.field("generation"), meta.generation, _NON_NEGATIVE)
    if meta.labels or meta.annotations:
        yield from marks(meta, METADATA)
    if meta.owner_references:
        yield from _owners(meta.owner_references, METADATA.field("ownerReferences"))
    if meta.finalizers:
        yield from _finalizers(meta.finalizers, METADATA.field("finalizers"))


def _as_prefix(prefix: str) -> str:
    """A prefix as it would be inside a name: what follows is never a dash."""
    return prefix[:-1] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _namespace(namespace: str, namespaced: bool) -> Errors:
    if not namespaced:
        if namespace:
            yield forbidden(METADATA.field("namespace"), "not allowed on this type")
    elif not namespace:
        yield required(METADATA.field("namespace"))
    elif faults := dns_label(namespace):
        yield from misnamed(faults, METADATA.field("namespace"))


def marks(meta: ObjectMeta, path: Path) -> Errors:
    """Labels and annotations, also those of templates."""
    for key, value in meta.labels.items():
        if faults := qualified_name(key) + label_value(value):
            yield from misnamed(faults, path.field("labels"))
    if meta.annotations:
        yield from _annotations(meta.annotations, path.field("annotations"))


def _annotations(annotations: Mapping[str, str], path: Path) -> Errors:
    for key in annotations:
        # The rule for keys is that of labels, but upper case in the domain is let through.
        if qualified_name(key) and (faults := qualified_name(key.lower())):
            for fault in faults:
                yield invalid(path, key, fault.text)
    if sum(size(key) + size(value) for key, value in annotations.items()) > limits.ANNOTATION_BYTES:
        yield too_long(path, limits.ANNOTATION_BYTES)


def _owners(owners: Sequence[OwnerRef], path: Path) -> Errors:
    for position, owner in enumerate(owners):
        place = path.index(position)
        yield from owner_reference(owner, place)
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            yield invalid(place, owner, "an Event is disallowed from being an owner")
    if sum(owner.controller is True for owner in owners) > 1:
        yield invalid(path, len(owners), "only one reference can have `controller` set to true")


def owner_reference(owner: OwnerRef, path: Path) -> Errors:
    """A reference that names one object completely."""
    group, slash, version = owner.api_version.rpartition("/")
    if not version:
        yield invalid(path.field("apiVersion"), owner.api_version, "version must not be empty")
    elif slash and (not group or "/" in group):
        yield invalid(
            path.field("apiVersion"), owner.api_version, "must be a version, or a group and a version"
        )
    for field, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
        if not value:
            yield invalid(path.field(field), value, "must not be empty")


def _finalizers(finalizers: Sequence[str], path: Path) -> Errors:
    for position, name in enumerate(finalizers):
        if faults := qualified_name(name):
            yield from misnamed(faults, path.index(position))
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield invalid(
            path, list(finalizers), f"finalizers `{_ORPHAN}` and `{_FOREGROUND}` cannot be both set"
        )


# --- updates ---

_KEPT = (
    ("name", "name"),
    ("namespace", "namespace"),
    ("uid", "uid"),
    ("creation_timestamp", "creationTimestamp"),
    ("deletion_timestamp", "deletionTimestamp"),
    ("deletion_grace_period_seconds", "deletionGracePeriodSeconds"),
)


def metadata_update(new: ObjectMeta, old: ObjectMeta) -> Errors:
    """What of the metadata may not change. What the system fills in may be left out by the writer."""
    for attribute, field in _KEPT:
        value, stored = getattr(new, attribute), getattr(old, attribute)
        if value != stored and (value or attribute in ("name", "namespace")):
            yield from unchanged(value, stored, METADATA.field(field))
    if new.generation and new.generation < old.generation:
        yield invalid(METADATA.field("generation"), new.generation, "must not be decremented")
    if old.deletion_timestamp is not None and not set(new.finalizers) <= set(old.finalizers):
        added = ", ".join(sorted(set(new.finalizers) - set(old.finalizers)))
        text = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
        yield forbidden(METADATA.field("finalizers"), text)


# --- templates ---

_COPIED = frozenset({"labels", "annotations"})


def template_metadata(meta: ObjectMeta, path: Path) -> Errors:
    """Metadata of a template: labels and annotations are copied into the claim, nothing else is."""
    if meta == ObjectMeta():
        return
    yield from marks(meta, path)
    plain = ObjectMeta()
    for attribute, field in zip(meta.__struct_fields__, meta.__struct_encode_fields__, strict=True):
        if attribute not in _COPIED and getattr(meta, attribute) != getattr(plain, attribute):
            yield cannot_be_set(path.field(field))
