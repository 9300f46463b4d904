"""Validation of the template from which the claim of an ephemeral volume is made."""

from __future__ import annotations

from typing import Final

from dray.api.fields import FieldPath, forbidden, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, forbid_field, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_quantity,
    get_mapping,
    get_text,
    get_texts,
)
from dray.api.validation.pods.label_selectors import validate_label_selector
from dray.api.validation.pods.value_rules import (
    POSITIVE,
    require_texts,
    validate_given_choice,
    validate_labels,
    validate_optional_name,
)
from dray.values.names import check_dns_label, check_dns_subdomain, check_qualified_name

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SINGLE_POD: Final = "ReadWriteOncePod"
_COPIED: Final = ("labels", "annotations")


def validate_claim_template(template: Document, path: FieldPath) -> FieldErrors:
    """Check the metadata and the spec of the claim to be made."""
    metadata, place = get_mapping(template, "metadata"), path.child("metadata")
    for key in get_mapping(metadata, "annotations"):
        yield from report_name_faults(check_qualified_name(key.lower()), place.child("annotations"))
    yield from validate_labels(get_mapping(metadata, "labels"), place.child("labels"))
    for field, value in metadata.items():
        if field not in _COPIED and value:
            yield forbid_field(place.child(field))
    yield from _validate_claim_spec(get_mapping(template, "spec"), path.child("spec"))


def _validate_claim_spec(spec: Document, path: FieldPath) -> FieldErrors:
    yield from _validate_access_modes(get_texts(spec, "accessModes"), path.child("accessModes"))
    selector = find_mapping(spec, "selector")
    if selector is not None:
        yield from validate_label_selector(selector, path.child("selector"))
    storage = find_quantity(get_mapping(get_mapping(spec, "resources"), "requests"), "storage")
    if storage is None:
        yield required(path.child("resources").key("storage"))
    elif storage.nanos <= 0:
        yield invalid(path.child("resources").key("storage"), str(storage), POSITIVE)
    yield from validate_optional_name(spec, "storageClassName", check_dns_subdomain, path)
    yield from validate_given_choice(spec, "volumeMode", ("Block", "Filesystem"), path)
    yield from _validate_data_sources(spec, path)
    yield from validate_optional_name(spec, "volumeAttributesClassName", check_dns_subdomain, path)


def _validate_access_modes(modes: list[str], path: FieldPath) -> FieldErrors:
    if not modes:
        yield required(path, "at least one is needed")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in modes if mode in _ACCESS_MODES}
    if _SINGLE_POD in known and len(known) > 1:
        yield forbidden(path, f"`{_SINGLE_POD}` may not be combined with other modes")


def _validate_data_sources(spec: Document, path: FieldPath) -> FieldErrors:
    source, reference = find_mapping(spec, "dataSource"), find_mapping(spec, "dataSourceRef")
    for field, value in (("dataSource", source), ("dataSourceRef", reference)):
        if value is not None:
            yield from _validate_data_source(value, path.child(field))
    if source is None or reference is None:
        return
    if get_text(reference, "namespace"):
        yield invalid(path, "dataSource", "may not be set when `dataSourceRef.namespace` is set")
    elif any(get_text(source, name) != get_text(reference, name) for name in ("apiGroup", "kind", "name")):
        yield invalid(path, "dataSource", "must be the same as `dataSourceRef`")


def _validate_data_source(source: Document, path: FieldPath) -> FieldErrors:
    yield from require_texts(source, ("name", "kind"), path)
    if not get_text(source, "apiGroup") and get_text(source, "kind") != "PersistentVolumeClaim":
        yield invalid(
            path, get_text(source, "kind"), "must be `PersistentVolumeClaim`, or have an `apiGroup`"
        )
    yield from validate_optional_name(source, "apiGroup", check_dns_subdomain, path)
    yield from validate_optional_name(source, "namespace", check_dns_label, path)
