"""Entries of `metadata.managedFields`: manager, operation, time, subresource and fields.

Theory of operation: manager, operation, version and subresource identify an entry; for an apply the version
does not count. Entries are ordered by operation, time and name. At most ten managers with updates are
distinguished: beyond that the oldest are joined as `ancient-changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dray.server.patch.managed_fields.field_set import FieldSet, FieldTree, sort_tree, unite_trees

Document = dict[str, Any]

APPLY: Final = "Apply"
UPDATE: Final = "Update"
MAX_UPDATE_ENTRIES: Final = 10
ANCIENT_CHANGES: Final = "ancient-changes"


class ManagedFieldsEntry(msgspec.Struct, frozen=True, eq=False):
    """One manager and the fields it owns."""

    manager: str
    operation: str
    api_version: str
    fields: FieldTree
    time: str = ""
    subresource: str = ""
    source: Document | None = None
    """The document this was parsed from, while nothing has changed."""

    def replace_fields(self, fields: FieldTree) -> ManagedFieldsEntry:
        """Return the same manager with other fields; the same entry when they are equal."""
        return self if fields is self.fields else replace(self, fields=fields, source=None)

    def belongs_to(self, manager: str, operation: str, api_version: str, subresource: str) -> bool:
        """Return whether this is the entry of a manager."""
        return (
            self.manager == manager
            and self.operation == operation
            and self.subresource == subresource
            and (operation == APPLY or self.api_version == api_version)
        )

    @property
    def owner(self) -> str:
        """The manager, as conflicts name it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text = f'{text} with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text

    def to_document(self) -> Document:
        """Return the entry as an object has it."""
        return self.build_document(sort_tree(self.fields)) if self.source is None else self.source

    def build_document(self, fields: FieldTree) -> Document:
        """Return the entry as an object has it, with its fields in their order."""
        document: Document = {"manager": self.manager, "operation": self.operation}
        document["apiVersion"] = self.api_version
        if self.time:
            document["time"] = self.time
        document["fieldsType"] = "FieldsV1"
        document["fieldsV1"] = fields
        if self.subresource:
            document["subresource"] = self.subresource
        return document


def read_stored_entries(documents: Sequence[Document]) -> list[ManagedFieldsEntry]:
    """Parse the entries of a stored object, whose field sets are canonical."""
    return [_build_entry(document, document.get("fieldsV1") or {}) for document in documents]


def parse_sent_entries(documents: Any) -> list[ManagedFieldsEntry] | None:
    """Parse the entries that a client sent; None when they are malformed."""
    if not isinstance(documents, list):
        return None
    entries: list[ManagedFieldsEntry] = []
    for document in documents:
        if not isinstance(document, dict) or document.get("operation") not in (APPLY, UPDATE):
            return None
        try:
            fields = FieldSet.parse(document.get("fieldsV1") or {}).tree
        except ValueError:
            return None
        texts = [document.get(name, "") for name in ("manager", "apiVersion", "time", "subresource")]
        if not all(text is None or isinstance(text, str) for text in texts):
            return None
        entries.append(replace(_build_entry(document, fields), source=None))
    return entries


def serialize_entries(entries: Iterable[ManagedFieldsEntry]) -> list[Document]:
    """Serialize the entries that are not empty, in order."""
    standing = [entry for entry in entries if entry.fields]
    if len(standing) > 1:
        standing.sort(key=_get_sort_key)
    return [entry.to_document() for entry in standing]


def cap_update_entries(entries: list[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
    """Limit the entries of updates to ten: the oldest are joined, version by version."""
    if len(entries) <= MAX_UPDATE_ENTRIES:
        return entries
    updaters = sorted((entry for entry in entries if entry.operation == UPDATE), key=_get_sort_key)
    surplus = len(updaters) - MAX_UPDATE_ENTRIES
    if surplus <= 0:
        return entries
    buckets: dict[str, list[ManagedFieldsEntry]] = {}
    for entry in updaters:
        if surplus <= 0:
            break
        bucket = buckets.setdefault(entry.api_version, [])
        bucket.append(entry)
        if len(bucket) > 1:
            surplus -= 1
    joined = {id(entry) for bucket in buckets.values() if len(bucket) > 1 for entry in bucket}
    kept = [entry for entry in entries if id(entry) not in joined]
    return kept + [_merge_entries(bucket) for bucket in buckets.values() if len(bucket) > 1]


def _merge_entries(bucket: list[ManagedFieldsEntry]) -> ManagedFieldsEntry:
    fields: FieldTree = {}
    for entry in bucket:
        fields = unite_trees(fields, entry.fields)
    newest = bucket[-1]
    return ManagedFieldsEntry(ANCIENT_CHANGES, UPDATE, newest.api_version, fields, newest.time)


def _build_entry(document: Document, fields: FieldTree) -> ManagedFieldsEntry:
    return ManagedFieldsEntry(
        document.get("manager") or "",
        document.get("operation") or "",
        document.get("apiVersion") or "",
        fields,
        document.get("time") or "",
        document.get("subresource") or "",
        document,
    )


def _get_sort_key(entry: ManagedFieldsEntry) -> tuple[str, str, str, str, str]:
    return entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource
