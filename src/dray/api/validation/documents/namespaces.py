"""Validation of Namespaces: finalizers and phase."""

from __future__ import annotations

from typing import Final

from dray.api.fields import ROOT, FieldPath, invalid
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import Document, get_mapping, get_text, get_texts, is_set
from dray.values.names import check_qualified_name

_FINALIZERS: Final = ROOT.child("spec").child("finalizers")
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def validate_namespace(namespace: Document) -> FieldErrors:
    """Check a new namespace."""
    for name in get_texts(get_mapping(namespace, "spec"), "finalizers"):
        yield from _validate_finalizer(name, _FINALIZERS)


def validate_finalized_namespace(new: Document, old: Document) -> FieldErrors:
    """Check the finalizers that are left of a namespace."""
    for position, name in enumerate(get_texts(get_mapping(new, "spec"), "finalizers")):
        yield from _validate_finalizer(name, _FINALIZERS.index(position))


def validate_changed_namespace_status(new: Document, old: Document) -> FieldErrors:
    """Check that the phase of a namespace says whether it is being deleted."""
    phase = get_text(get_mapping(new, "status"), "phase") or "Active"
    wanted = "Terminating" if is_set(get_mapping(new, "metadata"), "deletionTimestamp") else "Active"
    if phase != wanted:
        yield invalid(ROOT.child("status").child("Phase"), phase, f"must be {wanted}")


def _validate_finalizer(name: str, path: FieldPath) -> FieldErrors:
    faults = check_qualified_name(name)
    yield from report_name_faults(faults, path)
    if not faults and "/" not in name and name not in _STANDARD_FINALIZERS:
        yield invalid(path, name, "needs a domain, for example `example.com/name`")
