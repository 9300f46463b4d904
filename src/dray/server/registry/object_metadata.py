"""Names, identities and times of objects: what the server writes into metadata, and what it does not let go.

Rules for this file: time and chance are arguments; metadata goes in as a document and comes out as a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.api.kinds import Kind
from dray.server.http.errors import new_bad_request, new_conflict
from dray.server.objects.stored_object import StoredObject
from dray.server.registry.strategies import tracks_generation

MetadataDocument = Mapping[str, Any]

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, so no words."""

_SUFFIX_LENGTH: Final = 5
_MAX_NAME_LENGTH: Final = 63

_SERVER_OWNED_FIELDS: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
    "generation",
)
"""Fields that only the server writes."""


def choose_name(metadata: MetadataDocument, random_int: Callable[[int], int]) -> str:
    """The name of a new object: as given, or the generated one."""
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    if name or not prefix:
        return str(name)
    suffix = "".join(NAME_ALPHABET[random_int(len(NAME_ALPHABET))] for _ in range(_SUFFIX_LENGTH))
    return str(prefix)[: _MAX_NAME_LENGTH - _SUFFIX_LENGTH] + suffix


def resolve_namespace(kind: Kind, metadata: MetadataDocument, namespace: str) -> str:
    """The namespace of a new object; what body and path say must agree."""
    given = metadata.get("namespace") or ""
    if kind.namespaced and given and given != namespace:
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise new_bad_request(why)
    return namespace if kind.namespaced else str(given)


def check_name(metadata: MetadataDocument, name: str) -> None:
    """What a body says of its name must be what the path says."""
    said = metadata.get("name")
    if said and said != name:
        raise new_bad_request(f"the name of the object ({said}) does not match the name on the URL ({name})")


def build_create_metadata(
    kind: Kind, metadata: MetadataDocument, *, name: str, namespace: str, uid: str, now: str
) -> dict[str, Any]:
    """The metadata of a new object."""
    if metadata.get("resourceVersion"):
        raise new_bad_request("resourceVersion should not be set on objects to be created")
    given = {field: value for field, value in metadata.items() if field not in _SERVER_OWNED_FIELDS}
    born = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": now}
    if tracks_generation(kind):
        born["generation"] = 1  # type: ignore[assignment]
    return given | born


def build_update_metadata(
    kind: Kind, metadata: MetadataDocument, stored: MetadataDocument, *, changed: bool
) -> dict[str, Any]:
    """The metadata of a changed object; who changes what only the server writes is refused later."""
    kept = {field: value for field, value in metadata.items() if field not in ("generation", "selfLink")}
    for field in _SERVER_OWNED_FIELDS:
        if field in stored and kept.get(field) in (None, "", 0):
            kept[field] = stored[field]
    kept.setdefault("name", stored["name"])
    if kind.namespaced:
        kept["namespace"] = kept.get("namespace") or stored["namespace"]
    kept["resourceVersion"] = stored["resourceVersion"]
    if tracks_generation(kind):
        kept["generation"] = int(stored.get("generation") or 0) + (1 if changed else 0)
    return kept


def check_preconditions(kind: Kind, old: StoredObject, metadata: MetadataDocument) -> None:
    """A writer that names a version or identity means just that one."""
    wanted, uid = metadata.get("resourceVersion"), metadata.get("uid")
    if uid and uid != old.metadata.uid:
        raise new_conflict(kind, old.name, _describe_mismatch("UID", uid, old.metadata.uid))
    if wanted and str(wanted) != str(old.revision):
        raise new_conflict(kind, old.name)


def check_delete_preconditions(kind: Kind, old: StoredObject, preconditions: MetadataDocument) -> None:
    """The same for a delete."""
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != old.metadata.uid:
        raise new_conflict(kind, old.name, _describe_mismatch("UID", uid, old.metadata.uid))
    if version and str(version) != str(old.revision):
        raise new_conflict(kind, old.name, _describe_mismatch("ResourceVersion", version, str(old.revision)))


def _describe_mismatch(what: str, wanted: Any, found: str) -> str:
    return f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
