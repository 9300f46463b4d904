"""References to objects: kinds by name, paths, selectors, and the identity of an object.

Objects are structs for closed kinds and documents (plain dicts) for open ones; these functions read the
common metadata from either.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from dray.api.kinds import KINDS, Kind, get_kind_by_projection, parse_document_kind

Document = dict[str, Any]


class ObjectKey(NamedTuple):
    """Namespace and name of an object; the namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """Label and field selectors, in the syntax of Kubernetes."""

    labels: str = ""
    fields: str = ""

    def build_query(self) -> dict[str, str]:
        chosen = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in chosen.items() if value}


SELECT_ALL = ObjectSelector()

_PLAIN_NAME = re.compile(r"[A-Za-z0-9.-]+")

_BY_QUALIFIED_NAME: Mapping[str, Kind] = {kind.qualified_name: kind for kind in KINDS}


def get_kind(name: str) -> Kind:
    """Return a kind by its name: `Pod`, `ResourceClaim.resource.k8s.io`; a `ValueError` suggests a close
    match.
    """
    found = _BY_QUALIFIED_NAME.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _BY_QUALIFIED_NAME, n=1)
        raise ValueError(f"there is no kind `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""))
    return found


def resolve_kind(kind: Kind | type[msgspec.Struct]) -> Kind:
    """Return the row of a kind, given as itself or as the struct its objects are read as."""
    return kind if isinstance(kind, Kind) else get_kind_by_projection(kind)


def get_object_kind(obj: msgspec.Struct | Mapping[str, Any]) -> Kind:
    """Return the kind of an object."""
    return (
        get_kind_by_projection(type(obj)) if isinstance(obj, msgspec.Struct) else parse_document_kind(obj)[0]
    )


def build_path(kind: Kind, version: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Build the path of a collection, of one namespace's part of it, of an object, or of a subresource."""
    parts = ["/apis", kind.group, version] if kind.group else ["/api", version]
    if kind.namespaced and namespace:
        parts += ["namespaces", _quote_name(namespace)]
    parts.append(kind.plural)
    if name:
        if kind.namespaced and not namespace:
            raise ValueError(f"{kind.name} `{name}` is in a namespace; say in which")
        parts.append(_quote_name(name))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _quote_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote(name, safe="")


class ObjectIdentity(NamedTuple):
    """Key, uid and version of an object."""

    key: ObjectKey
    uid: str
    """Another uid under the same key is another object."""
    resource_version: str
    """What a write may insist on."""


def get_identity(obj: Any) -> ObjectIdentity:
    """Return the identity of a struct or a document."""
    if isinstance(obj, dict):
        given = obj.get("metadata")
        fields = given if isinstance(given, dict) else {}
        namespace, name, uid, version = (
            str(fields.get(field) or "") for field in ("namespace", "name", "uid", "resourceVersion")
        )
        return ObjectIdentity(ObjectKey(namespace, name), uid, version)
    metadata = obj.metadata
    return ObjectIdentity(
        ObjectKey(metadata.namespace, metadata.name), metadata.uid, metadata.resource_version
    )


def get_key(obj: Any) -> ObjectKey:
    """Return the key of an object."""
    return get_identity(obj).key


def get_uid(obj: Any) -> str:
    """Return the uid of an object."""
    return get_identity(obj).uid


def get_resource_version(obj: Any) -> str:
    """Return the resource version of an object."""
    return get_identity(obj).resource_version


def parse_resource_version(version: str) -> int:
    """Return a resource version as a number; -1 when it is none."""
    return int(version) if version.isascii() and version.isdigit() else -1
