"""Patches: JSON patch, merge patch, strategic merge patch and server-side apply.

Theory of operation: a client that writes back a whole object erases fields it does not know. A patch names
only what changes. `build_merge_patch` computes one from an object as it was read and as it should be, and
`add_preconditions` pins it to the version that was read, so it is as strict as a whole update and keeps
unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.api.json_text import write_json
from dray.client.object_refs import Document


class ObjectPatch(Protocol):
    """A patch: its media type, its body, and its query parameters."""

    @property
    def content_type(self) -> str: ...

    def encode_body(self) -> bytes: ...

    def build_query(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """Operations on paths, in order; `test` makes it conditional."""

    operations: Sequence[Mapping[str, Any]]

    content_type = "application/json-patch+json"

    def encode_body(self) -> bytes:
        return write_json(list(self.operations))

    def build_query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class MergePatch:
    """Fields as they should be; null removes a field; lists are replaced."""

    document: Mapping[str, Any]

    content_type = "application/merge-patch+json"

    def encode_body(self) -> bytes:
        return write_json(self.document)

    def build_query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class StrategicMergePatch:
    """Like a merge patch, but lists with a merge key are merged by it."""

    document: Mapping[str, Any]

    content_type = "application/strategic-merge-patch+json"

    def encode_body(self) -> bytes:
        return write_json(self.document)

    def build_query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Everything one field manager wants of an object (server-side apply)."""

    document: Mapping[str, Any]
    field_manager: str
    force: bool = False

    content_type = "application/apply-patch+yaml"

    def encode_body(self) -> bytes:
        return write_json(self.document)  # JSON is YAML

    def build_query(self) -> dict[str, str]:
        return {"fieldManager": self.field_manager} | ({"force": "true"} if self.force else {})


def build_merge_patch(
    old: Mapping[str, Any], new: Mapping[str, Any], *, subresource: str = ""
) -> MergePatch | None:
    """Build the patch from `old` to `new`, for the object without its status or for one subresource.

    None when there is nothing to change. The status is a subresource of its own: a patch of the object leaves
    it out, as the server would.
    """
    if subresource:
        old, new = ({subresource: given.get(subresource)} for given in (old, new))
        found = _compute_difference(old, new)
    else:
        found = _compute_difference(_strip_status(old), _strip_status(new))
    return MergePatch(found) if found else None


def add_preconditions(patch: MergePatch, resource_version: str, uid: str = "") -> MergePatch:
    """Return the patch, valid only for the object in this version."""
    metadata: Document = {**(patch.document.get("metadata") or {}), "resourceVersion": resource_version}
    if uid:
        metadata["uid"] = uid
    return MergePatch({**patch.document, "metadata": metadata})


def _strip_status(document: Mapping[str, Any]) -> Document:
    kept = {name: value for name, value in document.items() if name != "status"}
    metadata = dict(kept.get("metadata") or {})
    for name in ("managedFields", "resourceVersion"):
        metadata.pop(name, None)
    return kept | {"metadata": metadata}


def _compute_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Document:
    found: Document = {}
    for name in old.keys() | new.keys():
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = _compute_difference(before, after)
            if inner:
                found[name] = inner
        elif before != after:
            found[name] = after
    return found
