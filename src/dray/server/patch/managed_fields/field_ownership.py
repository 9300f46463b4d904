"""Field ownership after a write: managed fields, and server-side apply.

Theory of operation: an update makes its manager the owner of every field it changed and of no other; former
owners lose them, and removed fields have no owner. An apply makes its manager the owner of exactly the fields
of its configuration, changed or not. Fields that its last configuration had and this one has not are removed
from the object unless somebody else owns them. Where it would change a field of another manager there is a
conflict, unless it is forced. Fields of the server have no owner: identity, versions, times.

A write through a subresource owns only what it may change: `status` nothing of the spec, and the main
resource nothing of a status that has its own subresource.

The functions are pure; `now` is an argument, and inputs are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypedDict, Unpack

from msgspec.structs import replace

from dray.api.kinds import Kind
from dray.server.patch.errors import ApplyConflictError, FieldConflict, build_malformed
from dray.server.patch.limits import check_depth
from dray.server.patch.managed_fields import last_applied
from dray.server.patch.managed_fields.apply import (
    add_parents,
    check_list_items,
    merge_configuration,
    remove_fields,
)
from dray.server.patch.managed_fields.created_fields import collect_created_fields
from dray.server.patch.managed_fields.entries import (
    APPLY,
    UPDATE,
    Document,
    ManagedFieldsEntry,
    cap_update_entries,
    parse_sent_entries,
    read_stored_entries,
    serialize_entries,
)
from dray.server.patch.managed_fields.field_comparison import FieldChanges, collect_fields, compare_documents
from dray.server.patch.managed_fields.field_set import (
    SELF,
    FieldTree,
    intersect_trees,
    list_paths,
    remove_subtrees,
    subtract_tree,
    unite_trees,
)
from dray.server.patch.schema.kind_structures import Structure, get_structure

__all__ = ["ApplyConflictError", "ApplyResult", "apply_configuration", "update_managed_fields"]

_UNOWNED_METADATA: Final = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)
"""Metadata that nobody owns."""

_STATUS_PROTECTED: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {("", "Pod"): frozenset({"f:spec"}), ("", "Node"): frozenset({"f:spec"})}
)
"""What a write of the status cannot change, where it is not the usual."""

_DEFAULT_PROTECTED: Final = frozenset({"f:spec", "f:metadata"})
_MAIN_PROTECTED: Final = frozenset({"f:status"})
_NOTHING: Final[frozenset[str]] = frozenset()

_NAME_FIELD: Final[FieldTree] = {"f:metadata": {"f:name": {}}}
"""What every configuration has, so that metadata is never removed as a whole."""

_RESETS: Final[tuple[list[Document], ...]] = ([], [{}])
"""What a client sends as managed fields to clear all of them."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The object after an apply, without its managed fields, and these."""

    document: Document
    managed_fields: list[Document]


def update_managed_fields(
    kind: Kind, old: Document | None, new: Document, *, manager: str, now: str, subresource: str = ""
) -> list[Document]:
    """Return `metadata.managedFields` after a create, an update or a patch that turned `old` into `new`.

    `new` has the managed fields its client sent, if any: an empty list or a single empty entry clears all of
    them, another list that can be parsed replaces the stored one.
    """
    stored = _read_managed_fields(old)
    entries = _read_sent_entries(stored, new, subresource)
    if old is None and entries is None:
        created = collect_created_fields(kind, _strip_unowned(new))
        created = _drop_protected_fields(created, _get_protected_fields(kind, subresource))
        first = ManagedFieldsEntry(manager, UPDATE, kind.internal_api_version, created, now, subresource)
        return [first.build_document(created)] if created else []
    changed, removed = _compare_owned(kind, old, new)
    changed = _drop_protected_fields(changed, _get_protected_fields(kind, subresource))
    if not changed and not removed and entries is None:
        return stored
    standing = read_stored_entries(stored) if entries is None else entries
    version = kind.internal_api_version
    after: list[ManagedFieldsEntry] = []
    updated: ManagedFieldsEntry | None = None
    for entry in standing:
        rest = _release_fields(entry, changed, removed)
        if entry.belongs_to(manager, UPDATE, version, subresource):
            updated = rest
        else:
            after.append(rest)
    if changed and updated is None:
        first = ManagedFieldsEntry(manager, UPDATE, version, changed, now, subresource)
        # What a comparison finds is sorted.
        updated = replace(first, source=first.build_document(changed))
    elif changed and updated is not None:
        fields = unite_trees(updated.fields, changed)
        updated = ManagedFieldsEntry(manager, UPDATE, version, fields, now, subresource)
    if updated is not None:
        after.append(updated)
    return serialize_entries(cap_update_entries([entry for entry in after if entry.fields]))


def _release_fields(entry: ManagedFieldsEntry, changed: FieldTree, removed: FieldTree) -> ManagedFieldsEntry:
    """Return the entry without fields that were changed or removed."""
    return entry.replace_fields(remove_subtrees(subtract_tree(entry.fields, changed), removed))


class ApplyOptions(TypedDict):
    """The manager, the time and the subresource of an apply."""

    manager: str
    now: str
    subresource: NotRequired[str]


def apply_configuration(
    kind: Kind,
    live: Document | None,
    configuration: Document,
    *,
    force: bool = False,
    **writer: Unpack[ApplyOptions],
) -> ApplyResult:
    """Apply a configuration; raises `ApplyConflictError` or `PatchError`."""
    manager, now, subresource = writer["manager"], writer["now"], writer.get("subresource", "")
    structure = get_structure(kind)
    _check_configuration(structure, configuration)
    stored = _read_managed_fields(live)
    before = _strip_managed_fields(live or {})
    named = _drop_protected_fields(
        _drop_unowned_fields(collect_fields(structure, configuration)),
        _get_protected_fields(kind, subresource),
    )
    others: list[ManagedFieldsEntry] = []
    last: ManagedFieldsEntry | None = None
    for entry in read_stored_entries(stored):
        if entry.belongs_to(manager, APPLY, kind.internal_api_version, subresource):
            last = entry
        else:
            others.append(entry)
    document = _prune_dropped_fields(
        structure,
        merge_configuration(structure, before, configuration),
        last,
        [named, *_list_field_sets(others)],
    )
    comparison = _compare_owned(kind, before, document)
    if not force:
        _check_conflicts(structure, manager, before, _find_taken_fields(others, comparison))
    after = [_release_fields(entry, comparison.changed, comparison.removed) for entry in others]
    same = last is not None and last.fields == named and document == before
    applied = ManagedFieldsEntry(manager, APPLY, kind.internal_api_version, named, now, subresource)
    after.append(last if same and last is not None else applied)
    document = last_applied.update_annotation(document, configuration, manager)
    return ApplyResult(document, serialize_entries(after))


def _read_managed_fields(document: Document | None) -> list[Document]:
    """Return the entries of an object."""
    if document is None:
        return []
    return document.get("metadata", {}).get("managedFields") or []


def _read_sent_entries(
    stored: list[Document], new: Document, subresource: str
) -> list[ManagedFieldsEntry] | None:
    """Return the entries that a client sent instead of the stored ones; None when it did not."""
    sent = new.get("metadata", {}).get("managedFields")
    if subresource or sent is None or sent == stored:
        return None
    if sent in _RESETS:
        return []
    return parse_sent_entries(sent) or None


def _compare_owned(kind: Kind, old: Document | None, new: Document) -> FieldChanges:
    """Compare two objects, without what nobody owns."""
    structure = get_structure(kind)
    return compare_documents(structure, _strip_unowned(old) if old else {}, _strip_unowned(new))


def _strip_unowned(document: Document) -> Document:
    """Return the parts of an object that somebody may own."""
    rest = dict(document)
    rest.pop("apiVersion", None)
    rest.pop("kind", None)
    metadata = rest.get("metadata")
    if metadata is not None:
        rest["metadata"] = {name: value for name, value in metadata.items() if name not in _UNOWNED_METADATA}
    return rest


def _drop_unowned_fields(fields: FieldTree) -> FieldTree:
    """Return a set without the fields that nobody owns."""
    rest = {step: below for step, below in fields.items() if step not in ("f:apiVersion", "f:kind")}
    metadata = {
        step: b for step, b in rest.pop("f:metadata", {}).items() if step[2:] not in _UNOWNED_METADATA
    }
    metadata.pop(SELF, None)
    return {**rest, "f:metadata": metadata} if metadata else rest


def _get_protected_fields(kind: Kind, subresource: str) -> frozenset[str]:
    """Return the parts of an object that a write through this subresource does not change."""
    if subresource == "status":
        return _STATUS_PROTECTED.get((kind.group, kind.name), _DEFAULT_PROTECTED)
    return _MAIN_PROTECTED if not subresource and "status" in kind.subresources else _NOTHING


def _drop_protected_fields(fields: FieldTree, protected: frozenset[str]) -> FieldTree:
    if protected.isdisjoint(fields):
        return fields
    return {step: below for step, below in fields.items() if step not in protected}


def _strip_managed_fields(document: Document) -> Document:
    """Return an object without its managed fields."""
    metadata = document.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return document
    rest = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**document, "metadata": rest}


def _check_configuration(structure: Structure, configuration: Any) -> None:
    if not isinstance(configuration, dict):
        raise build_malformed(
            "an applied configuration is an object with `apiVersion`, `kind` and `metadata`"
        )
    check_depth(configuration)
    metadata = configuration.get("metadata", {})
    if not isinstance(metadata, dict):
        raise build_malformed("`metadata` of an applied configuration is an object")
    if metadata.get("managedFields") is not None:
        raise build_malformed("metadata.managedFields must be nil")
    check_list_items(structure, configuration)


def _list_field_sets(entries: list[ManagedFieldsEntry]) -> list[FieldTree]:
    return [entry.fields for entry in entries]


def _prune_dropped_fields(
    structure: Structure, merged: Document, last: ManagedFieldsEntry | None, owned: list[FieldTree]
) -> Document:
    """Remove what the manager applied last time and nobody owns now."""
    if last is None:
        return merged
    everybody: FieldTree = _NAME_FIELD
    for fields in owned:
        everybody = unite_trees(everybody, fields)
    gone = subtract_tree(add_parents(structure, last.fields), add_parents(structure, everybody))
    rest: Document = remove_fields(structure, merged, gone) if gone else merged
    return rest


def _find_taken_fields(
    others: list[ManagedFieldsEntry], comparison: FieldChanges
) -> list[tuple[ManagedFieldsEntry, FieldTree]]:
    """Find the fields of other managers that an apply would change."""
    taken = ((entry, intersect_trees(entry.fields, comparison.changed)) for entry in others)
    return [(entry, fields) for entry, fields in taken if fields]


def _check_conflicts(
    structure: Structure, manager: str, live: Document, taken: list[tuple[ManagedFieldsEntry, FieldTree]]
) -> None:
    """Raise the conflicts of an apply without force."""
    if taken and manager == last_applied.KUBECTL:
        allowed = last_applied.find_unchanged_fields(structure, live)
        taken = [(entry, subtract_tree(fields, allowed)) for entry, fields in taken]
    conflicts = [FieldConflict(entry.owner, path) for entry, fields in taken for path in list_paths(fields)]
    if conflicts:
        raise ApplyConflictError(conflicts)
