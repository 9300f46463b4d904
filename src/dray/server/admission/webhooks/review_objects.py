"""What a webhook is asked about: an object on its way into the store, or the body of an errand.

Rules for this file: nobody is asked here; what a webhook changed is read as carefully as what a client sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.http.errors import new_bad_request
from dray.server.http.request_body import convert_document
from dray.server.objects.conversion import convert_from_storage, is_storage_version
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject

CompleteDraft = Callable[[PendingObject], PendingObject]
"""Fills in what everybody relies on; called again when a webhook changed something."""

_IMMUTABLE_FIELDS = ("name", "namespace", "uid")


class ReviewObject(Protocol):
    """What is asked about."""

    @property
    def labels(self) -> Mapping[str, str]: ...

    def to_document(self, version: str) -> dict[str, Any]:
        """It as plain values, in a version."""
        ...

    def to_json(self, version: str) -> msgspec.Raw:
        """It as JSON, in a version."""
        ...

    def replace(self, version: str, document: dict[str, Any]) -> ReviewObject:
        """What it becomes when a webhook makes this of it; raises a `Failure` when that cannot be."""
        ...


class ProposedObject:
    """An object as somebody wants it."""

    def __init__(self, kind: Kind, draft: PendingObject, complete: CompleteDraft | None = None) -> None:
        """`complete` is needed when it may be changed."""
        self.draft = draft
        self._kind, self._complete = kind, complete
        self._json_by_version: dict[str, msgspec.Raw] = {}

    @property
    def labels(self) -> Mapping[str, str]:
        return _read_labels(self.draft.metadata)

    def to_document(self, version: str) -> dict[str, Any]:
        return convert_from_storage(self._kind, version, self.draft.document)

    def to_json(self, version: str) -> msgspec.Raw:
        if version not in self._json_by_version:
            self._json_by_version[version] = msgspec.Raw(write_json(self.to_document(version)))
        return self._json_by_version[version]

    def replace(self, version: str, document: dict[str, Any]) -> ProposedObject:
        assert self._complete is not None
        _check_identity(self.to_document(version), document)
        made = convert_document(self._kind, version, document).pending
        return ProposedObject(self._kind, self._complete(made), self._complete)


class StoredReviewObject:
    """An object as it is stored."""

    def __init__(self, kind: Kind, held: StoredObject) -> None:
        self._kind, self._held = kind, held
        self._json_by_version: dict[str, msgspec.Raw] = {}

    @property
    def labels(self) -> Mapping[str, str]:
        return self._held.metadata.labels

    def to_json(self, version: str) -> msgspec.Raw:
        if version not in self._json_by_version:
            kept = is_storage_version(self._kind, version)
            told = (
                self._held.served_json
                if kept
                else write_json(convert_from_storage(self._kind, version, self._held.document))
            )
            self._json_by_version[version] = msgspec.Raw(told)
        return self._json_by_version[version]


class SubresourceBody:
    """The body of an errand, such as a binding; it has one version."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.body = document

    @property
    def labels(self) -> Mapping[str, str]:
        metadata = self.body.get("metadata")
        return _read_labels(metadata if isinstance(metadata, dict) else {})

    def to_document(self, version: str) -> dict[str, Any]:
        return self.body

    def to_json(self, version: str) -> msgspec.Raw:
        return msgspec.Raw(write_json(self.body))

    def replace(self, version: str, document: dict[str, Any]) -> SubresourceBody:
        _check_identity(self.body, document)
        return SubresourceBody(document)


def _read_labels(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    labels = metadata.get("labels")
    return labels if isinstance(labels, dict) else {}


def _check_identity(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Whatever a webhook changes, it is still the same object."""
    for field in ("apiVersion", "kind"):
        if after.get(field) != before.get(field):
            raise new_bad_request(f"a webhook may not change `{field}`")
    metadata, changed = before.get("metadata") or {}, after.get("metadata") or {}
    for field in _IMMUTABLE_FIELDS:
        if not isinstance(changed, dict) or (changed.get(field) or "") != (metadata.get(field) or ""):
            raise new_bad_request(f"a webhook may not change `metadata.{field}`")
