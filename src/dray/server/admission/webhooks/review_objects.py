"""What a webhook is asked about: an object on its way into the store, or the body of an errand.

Rules for this file: nobody is asked here; what a webhook changed is read as carefully as what a client sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.http.errors import bad_request
from dray.server.http.request_body import understood
from dray.server.objects.conversion import is_kept_form, outward
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held

Complete = Callable[[Draft], Draft]
"""Fills in what everybody relies on; called again when a webhook changed something."""

_SETTLED = ("name", "namespace", "uid")


class Subject(Protocol):
    """What is asked about."""

    @property
    def labels(self) -> Mapping[str, str]: ...

    def document(self, version: str) -> dict[str, Any]:
        """It as plain values, in a version."""
        ...

    def text(self, version: str) -> msgspec.Raw:
        """It as JSON, in a version."""
        ...

    def replaced(self, version: str, document: dict[str, Any]) -> Subject:
        """What it becomes when a webhook makes this of it; raises a `Failure` when that cannot be."""
        ...


class Proposed:
    """An object as somebody wants it."""

    def __init__(self, kind: Kind, draft: Draft, complete: Complete | None = None) -> None:
        """`complete` is needed when it may be changed."""
        self.draft = draft
        self._kind, self._complete = kind, complete
        self._texts: dict[str, msgspec.Raw] = {}

    @property
    def labels(self) -> Mapping[str, str]:
        return _labels(self.draft.metadata)

    def document(self, version: str) -> dict[str, Any]:
        return outward(self._kind, version, self.draft.document)

    def text(self, version: str) -> msgspec.Raw:
        if version not in self._texts:
            self._texts[version] = msgspec.Raw(write_json(self.document(version)))
        return self._texts[version]

    def replaced(self, version: str, document: dict[str, Any]) -> Proposed:
        assert self._complete is not None
        _check_identity(self.document(version), document)
        made = understood(self._kind, version, document).draft
        return Proposed(self._kind, self._complete(made), self._complete)


class Stored:
    """An object as it is stored."""

    def __init__(self, kind: Kind, held: Held) -> None:
        self._kind, self._held = kind, held
        self._texts: dict[str, msgspec.Raw] = {}

    @property
    def labels(self) -> Mapping[str, str]:
        return self._held.metadata.labels

    def text(self, version: str) -> msgspec.Raw:
        if version not in self._texts:
            kept = is_kept_form(self._kind, version)
            told = (
                self._held.served if kept else write_json(outward(self._kind, version, self._held.document))
            )
            self._texts[version] = msgspec.Raw(told)
        return self._texts[version]


class Errand:
    """The body of an errand, such as a binding; it has one version."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.given = document

    @property
    def labels(self) -> Mapping[str, str]:
        metadata = self.given.get("metadata")
        return _labels(metadata if isinstance(metadata, dict) else {})

    def document(self, version: str) -> dict[str, Any]:
        return self.given

    def text(self, version: str) -> msgspec.Raw:
        return msgspec.Raw(write_json(self.given))

    def replaced(self, version: str, document: dict[str, Any]) -> Errand:
        _check_identity(self.given, document)
        return Errand(document)


def _labels(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    labels = metadata.get("labels")
    return labels if isinstance(labels, dict) else {}


def _check_identity(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Whatever a webhook changes, it is still the same object."""
    for field in ("apiVersion", "kind"):
        if after.get(field) != before.get(field):
            raise bad_request(f"a webhook may not change `{field}`")
    metadata, changed = before.get("metadata") or {}, after.get("metadata") or {}
    for field in _SETTLED:
        if not isinstance(changed, dict) or (changed.get(field) or "") != (metadata.get(field) or ""):
            raise bad_request(f"a webhook may not change `metadata.{field}`")
