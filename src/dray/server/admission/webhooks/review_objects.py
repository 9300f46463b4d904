"""Objects under review by webhooks: an object on its way into the store, or the body of a subresource.

No webhook is called here; what a webhook changed is decoded as strictly as what a client sends.
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
"""Sets defaults; called again when a webhook changed something."""

_IMMUTABLE_FIELDS = ("name", "namespace", "uid")


class ReviewObject(Protocol):
    """An object under review."""

    @property
    def labels(self) -> Mapping[str, str]: ...

    def to_document(self, version: str) -> dict[str, Any]:
        """Return the object as plain values, in a version."""
        ...

    def to_json(self, version: str) -> msgspec.Raw:
        """Return the object as JSON, in a version."""
        ...

    def replace(self, version: str, document: dict[str, Any]) -> ReviewObject:
        """Return the object as a webhook changed it; raises an `ApiStatusError` when the change is not
        possible.
        """
        ...


class ProposedObject:
    """The new state of an object."""

    def __init__(self, kind: Kind, draft: PendingObject, complete: CompleteDraft | None = None) -> None:
        """`complete` is needed when the object may be changed."""
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
    """The stored state of an object."""

    def __init__(self, kind: Kind, stored: StoredObject) -> None:
        self._kind, self._stored = kind, stored
        self._json_by_version: dict[str, msgspec.Raw] = {}

    @property
    def labels(self) -> Mapping[str, str]:
        return self._stored.metadata.labels

    def to_json(self, version: str) -> msgspec.Raw:
        if version not in self._json_by_version:
            kept = is_storage_version(self._kind, version)
            encoded = (
                self._stored.served_json
                if kept
                else write_json(convert_from_storage(self._kind, version, self._stored.document))
            )
            self._json_by_version[version] = msgspec.Raw(encoded)
        return self._json_by_version[version]


class SubresourceBody:
    """The body of a subresource, such as a binding; it has one version."""

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
    """Refuse changes of the object's identity."""
    for field in ("apiVersion", "kind"):
        if after.get(field) != before.get(field):
            raise new_bad_request(f"a webhook may not change `{field}`")
    metadata, changed = before.get("metadata") or {}, after.get("metadata") or {}
    for field in _IMMUTABLE_FIELDS:
        if not isinstance(changed, dict) or (changed.get(field) or "") != (metadata.get(field) or ""):
            raise new_bad_request(f"a webhook may not change `metadata.{field}`")
