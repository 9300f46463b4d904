"""Object metadata: names, uids, times and generations that the server sets, and preconditions on them.

Rules for this file: time and randomness are arguments; functions return new metadata and change none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.api.kinds import Kind
from dray.server.http.errors import new_bad_request, new_conflict
from dray.server.objects.stored_object import StoredObject
from dray.server.registry.strategies import get_strategy
from dray.values.generated_names import complete_name

MetadataDocument = Mapping[str, Any]

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

_IGNORED_ON_UPDATE: Final = ("generation", "selfLink", "creationTimestamp")
"""Fields of an update that are not read: the stored values stay."""


def choose_name(metadata: MetadataDocument, random_int: Callable[[int], int]) -> str:
    """The name of a new object: the given one, or one generated from `generateName`."""
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    if name or not prefix:
        return str(name)
    return complete_name(str(prefix), random_int)


def resolve_namespace(kind: Kind, metadata: MetadataDocument, namespace: str) -> str:
    """The namespace of an object; the body and the path must agree."""
    given = metadata.get("namespace") or ""
    if kind.namespaced and given and given != namespace:
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise new_bad_request(why)
    # The namespace of an object that has none is not read, as by Kubernetes.
    return namespace if kind.namespaced else ""


def check_name(metadata: MetadataDocument, name: str, *, required: bool = False) -> None:
    """Refuse a body whose name differs from the name in the path, or one without a name if it is required."""
    given = metadata.get("name") or ""
    if (given or required) and given != name:
        raise new_bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def build_create_metadata(
    kind: Kind, metadata: MetadataDocument, *, name: str, namespace: str, uid: str, now: str
) -> dict[str, Any]:
    """The metadata of a new object."""
    if metadata.get("resourceVersion"):
        raise new_bad_request("resourceVersion should not be set on objects to be created")
    given = {field: value for field, value in metadata.items() if field not in _SERVER_OWNED_FIELDS}
    owned: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": now}
    if get_strategy(kind).has_generation:
        owned["generation"] = 1
    return given | owned


def build_update_metadata(
    kind: Kind, metadata: MetadataDocument, stored: MetadataDocument, *, changed: bool
) -> dict[str, Any]:
    """The metadata of an updated object; validation refuses changes of server-owned fields later."""
    updated = {field: value for field, value in metadata.items() if field not in _IGNORED_ON_UPDATE}
    for field in _SERVER_OWNED_FIELDS:
        if field in stored and updated.get(field) in (None, "", 0):
            updated[field] = stored[field]
    updated.setdefault("name", stored["name"])
    if kind.namespaced:
        updated["namespace"] = updated.get("namespace") or stored["namespace"]
    else:
        updated.pop("namespace", None)
    updated["resourceVersion"] = stored["resourceVersion"]
    if get_strategy(kind).has_generation:
        updated["generation"] = int(stored.get("generation") or 0) + (1 if changed else 0)
    return updated


def check_preconditions(kind: Kind, old: StoredObject, metadata: MetadataDocument) -> None:
    """Refuse an update that names another uid or resource version than the stored one."""
    uid = metadata.get("uid")
    if uid and uid != old.metadata.uid:
        raise new_conflict(kind, old.name, _describe_mismatch("UID", uid, old.metadata.uid))
    check_resource_version(kind, old, metadata)


def check_resource_version(kind: Kind, old: StoredObject, metadata: MetadataDocument) -> None:
    """Refuse an update of another resource version than the stored one; `0` is any version."""
    version = str(metadata.get("resourceVersion") or "0")
    if version != "0" and version != str(old.revision):
        raise new_conflict(kind, old.name)


def check_absent_uid(kind: Kind, name: str, metadata: MetadataDocument) -> None:
    """Refuse to create what an update or apply takes to exist: it names a uid."""
    if metadata.get("uid"):
        raise new_conflict(kind, name, _describe_mismatch("UID", metadata["uid"], ""))


def drop_resource_version(metadata: MetadataDocument) -> dict[str, Any]:
    """The metadata of an update that creates its object: the version it names is gone."""
    return {field: value for field, value in metadata.items() if field != "resourceVersion"}


def check_delete_preconditions(kind: Kind, old: StoredObject, preconditions: MetadataDocument) -> None:
    """Refuse a delete whose preconditions name another uid or resource version than the stored one."""
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != old.metadata.uid:
        raise new_conflict(kind, old.name, _describe_mismatch("UID", uid, old.metadata.uid))
    if version and str(version) != str(old.revision):
        raise new_conflict(kind, old.name, _describe_mismatch("ResourceVersion", version, str(old.revision)))


def _describe_mismatch(what: str, wanted: Any, found: str) -> str:
    return f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
