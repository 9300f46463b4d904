"""Which objects are meant: kinds by name, paths, selections, and what identifies an object.

Objects are structs for closed kinds and documents (plain dicts) for open ones; the functions here read the
few fields that every object has from either.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from dray.api.kinds import KINDS, Kind, kind_of, kind_read_as

Document = dict[str, Any]


class Key(NamedTuple):
    """What tells objects of one kind apart; the namespace is empty outside all namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: by labels and by fields, both in the words of Kubernetes."""

    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        chosen = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in chosen.items() if value}


EVERYTHING = Selection()

_PLAIN = re.compile(r"[A-Za-z0-9.-]+")

_BY_QUALIFIED_NAME: Mapping[str, Kind] = {kind.qualified_name: kind for kind in KINDS}


def kind_called(name: str) -> Kind:
    """A kind by its name: `Pod`, `ResourceClaim.resource.k8s.io`; a `ValueError` that helps otherwise."""
    found = _BY_QUALIFIED_NAME.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _BY_QUALIFIED_NAME, n=1)
        raise ValueError(f"there is no kind `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""))
    return found


def row_of(kind: Kind | type[msgspec.Struct]) -> Kind:
    """The row of a kind, given as itself or as the struct its objects are read as."""
    return kind if isinstance(kind, Kind) else kind_read_as(kind)


def kind_of_object(obj: msgspec.Struct | Mapping[str, Any]) -> Kind:
    """What an object is."""
    return kind_read_as(type(obj)) if isinstance(obj, msgspec.Struct) else kind_of(obj)[0]


def path_of(kind: Kind, version: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Where objects are: all of them, those of a namespace, one, or a part of one."""
    parts = ["/apis", kind.group, version] if kind.group else ["/api", version]
    if kind.namespaced and namespace:
        parts += ["namespaces", _quoted(namespace)]
    parts.append(kind.plural)
    if name:
        if kind.namespaced and not namespace:
            raise ValueError(f"{kind.name} `{name}` is in a namespace; say in which")
        parts.append(_quoted(name))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")


class Stamp(NamedTuple):
    """What tells an object from others and from its own past."""

    key: Key
    uid: str
    """Another one under the same key is another object."""
    resource_version: str
    """What a write may insist on."""


def stamp_of(obj: Any) -> Stamp:
    """The stamp of a struct or a document."""
    if isinstance(obj, dict):
        given = obj.get("metadata")
        fields = given if isinstance(given, dict) else {}
        namespace, name, uid, version = (
            str(fields.get(field) or "") for field in ("namespace", "name", "uid", "resourceVersion")
        )
        return Stamp(Key(namespace, name), uid, version)
    metadata = obj.metadata
    return Stamp(Key(metadata.namespace, metadata.name), metadata.uid, metadata.resource_version)


def key_of(obj: Any) -> Key:
    """The key of an object."""
    return stamp_of(obj).key


def uid_of(obj: Any) -> str:
    """The uid of an object."""
    return stamp_of(obj).uid


def resource_version_of(obj: Any) -> str:
    """The version of an object."""
    return stamp_of(obj).resource_version
