"""Changes to an object that say what shall be different, and not the whole object.

Theory of operation: whoever writes back a whole object erases what it did not know. A change names only what
it means. `build_merge_patch` works one out from an object as it was read and as it should be, and insists on
the version that was read, so it is as strict as a whole update and leaves fields alone that we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.api.json_text import write_json
from dray.client.object_refs import Document


class ObjectPatch(Protocol):
    """A patch: its media type, its text, and what goes into the query."""

    @property
    def content_type(self) -> str: ...

    def encode_body(self) -> bytes: ...

    def build_query(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """Operations on places, one after the other; `test` makes it conditional."""

    operations: Sequence[Mapping[str, Any]]

    content_type = "application/json-patch+json"

    def encode_body(self) -> bytes:
        return write_json(list(self.operations))

    def build_query(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class MergePatch:
    """Fields as they should be; null removes; lists are replaced."""

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
    """Everything one manager wants of an object; the server remembers who wants what."""

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
    """The change from `old` to `new`, for the object without its status or for one part of it.

    None when there is nothing to change. The status is a part of its own: a change of the object leaves it
    out, as the server would.
    """
    if subresource:
        old, new = ({subresource: given.get(subresource)} for given in (old, new))
        found = _compute_difference(old, new)
    else:
        found = _compute_difference(_strip_status(old), _strip_status(new))
    return MergePatch(found) if found else None


def add_preconditions(patch: MergePatch, resource_version: str, uid: str = "") -> MergePatch:
    """The patch, valid only for the object in this version."""
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
