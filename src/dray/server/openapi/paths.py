"""OpenAPI paths of a group and version, and their operations, from the resources of discovery.

Theory of operation: every verb of a resource is an operation on the path of the collection or of one object.
Clients look for few things in them: the action, the kind, and the query parameters of an operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dray.server.discovery.resources import ApiResource
from dray.server.http.requests import JSON, YAML
from dray.server.openapi.schema_names import META, build_reference

Paths = dict[str, dict[str, Any]]


def _build_query_parameter(name: str, description: str, type_: str = "string") -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": type_, "uniqueItems": True},
    }


def _build_path_parameter(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "uniqueItems": True},
    }


_NAMESPACE = _build_path_parameter("namespace", "The namespace of the objects.")
_NAME = _build_path_parameter("name", "The name of the object.")
_PRETTY = _build_query_parameter("pretty", "Accepted and ignored.")
_DRY_RUN = _build_query_parameter("dryRun", "`All`: do everything but store the result.")
_MANAGER = _build_query_parameter("fieldManager", "Who owns the fields that are written.")
_VALIDATION = _build_query_parameter(
    "fieldValidation",
    "What to do about unknown and duplicate fields: `Ignore`, `Warn` (the default) or `Strict`.",
)
_FORCE = _build_query_parameter(
    "force", "Take over fields that others own; for server-side apply.", "boolean"
)
_CHOOSING = (
    _build_query_parameter("continue", "The continue token of the last page of a list."),
    _build_query_parameter("fieldSelector", "Which objects, by their fields."),
    _build_query_parameter("labelSelector", "Which objects, by their labels."),
    _build_query_parameter("limit", "How many objects at most.", "integer"),
    _build_query_parameter(
        "resourceVersion", "The minimum version of the response, or the start of a watch."
    ),
    _build_query_parameter(
        "resourceVersionMatch", "`Exact` or `NotOlderThan`: how `resourceVersion` is meant."
    ),
    _build_query_parameter("sendInitialEvents", "A watch begins with all existing objects.", "boolean"),
    _build_query_parameter("timeoutSeconds", "Time-out of the response.", "integer"),
)
_LISTING = (
    *_CHOOSING,
    _build_query_parameter("allowWatchBookmarks", "A watch sends bookmarks with its progress.", "boolean"),
    _build_query_parameter("watch", "Watch for changes instead of listing.", "boolean"),
)
_WRITING = (_DRY_RUN, _MANAGER, _VALIDATION)
_DELETING = (
    _DRY_RUN,
    _build_query_parameter("gracePeriodSeconds", "Grace period of the deletion.", "integer"),
    _build_query_parameter("orphanDependents", "No longer used; see `propagationPolicy`.", "boolean"),
    _build_query_parameter(
        "propagationPolicy", "What happens to what it owns: `Background`, `Foreground` or `Orphan`."
    ),
)

_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class _Verb(NamedTuple):
    """A verb: method, action, description, parameters, type of request body, whether on a collection."""

    method: str
    action: str
    description: str
    parameters: Sequence[dict[str, Any]]
    request_body: str = ""
    collection: bool = False


_VERBS: Mapping[str, _Verb] = MappingProxyType(
    {
        "list": _Verb("get", "list", "List or watch", _LISTING, collection=True),
        "create": _Verb("post", "post", "Create", _WRITING, "object", collection=True),
        "deletecollection": _Verb(
            "delete",
            "deletecollection",
            "Delete many of",
            (*_CHOOSING, *_DELETING),
            "options",
            collection=True,
        ),
        "get": _Verb("get", "get", "Read", ()),
        "update": _Verb("put", "put", "Replace", _WRITING, "object"),
        "delete": _Verb("delete", "delete", "Delete", _DELETING, "options"),
        "patch": _Verb("patch", "patch", "Change", (*_WRITING, _FORCE), "patch"),
    }
)


def build_paths(
    place: str, resources: Sequence[ApiResource], schemas: Mapping[tuple[str, str, str], str]
) -> Paths:
    """Build all paths below a path such as `/apis/apps/v1`; `schemas` names the schema of each resource."""
    listing = _build_response(f"{META}.APIResourceList")
    paths: Paths = {
        f"{place}/": {
            "get": {
                "description": "The resources of this group and version.",
                "operationId": f"get{_to_camel_case(place)}Resources",
                "responses": {"200": listing, "401": _UNAUTHORIZED},
            }
        }
    }
    for resource in resources:
        for path, verbs in _iter_paths(place, resource):
            parameters = [
                *([_NAME] if "{name}" in path else []),
                *([_NAMESPACE] if "{namespace}" in path else []),
            ]
            paths[path] = {
                **{_VERBS[verb].method: _build_operation(resource, verb, schemas, path) for verb in verbs},
                "parameters": [*parameters, _PRETTY],
            }
    return paths


def _iter_paths(place: str, resource: ApiResource) -> Iterator[tuple[str, list[str]]]:
    """Yield the paths of a resource, and the verbs on each."""
    inside = f"{place}/namespaces/{{namespace}}" if resource.namespaced else place
    verbs = [verb for verb in resource.verbs if verb in _VERBS]
    if resource.subresource:
        yield f"{inside}/{resource.plural}/{{name}}/{resource.subresource}", verbs
        return
    yield f"{inside}/{resource.plural}", [verb for verb in verbs if _VERBS[verb].collection]
    single = [verb for verb in verbs if not _VERBS[verb].collection]
    if single:
        yield f"{inside}/{resource.plural}/{{name}}", single
    if resource.namespaced and "list" in verbs:
        yield f"{place}/{resource.plural}", ["list"]


def _build_operation(
    resource: ApiResource, verb: str, schemas: Mapping[tuple[str, str, str], str], path: str
) -> dict[str, Any]:
    how = _VERBS[verb]
    group, version, kind = resource.group_version_kind
    schema = schemas[resource.group_version_kind]
    everywhere = resource.namespaced and "{namespace}" not in path
    answer = {"list": f"{schema}List", "deletecollection": f"{META}.Status"}.get(verb, schema)
    operation: dict[str, Any] = {
        "tags": [f"{(resource.group or 'core').partition('.')[0]}_{resource.version}"],
        "description": f"{how.description} {resource.name}{' of all namespaces' if everywhere else ''}.",
        "operationId": f"{verb}{_to_camel_case(path)}",
        "parameters": list(how.parameters),
        "responses": {"200": _build_response(answer), "401": _UNAUTHORIZED},
        "x-kubernetes-action": how.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    }
    if verb in ("create", "update", "patch"):
        operation["responses"]["201"] = _build_response(answer)
    sent = _build_request_body(resource, how.request_body, schema)
    return operation | ({"requestBody": sent} if sent else {})


def _build_request_body(resource: ApiResource, what: str, schema: str) -> dict[str, Any]:
    if what == "object":
        return {"content": {"*/*": _build_content(schema)}, "required": True}
    if what == "options":
        return {"content": {"*/*": _build_content(f"{META}.DeleteOptions")}}
    if what == "patch":
        # Strategic merge patches are accepted for every kind. They are listed only where the schema is
        # complete: kubectl builds a patch from a schema when it can, and else from its built-in types, which
        # are better than half a schema.
        whole = resource.kind is not None and not resource.kind.open
        forms = (*_PATCHES, _STRATEGIC) if whole else _PATCHES
        return {"content": {form: _build_content(f"{META}.Patch") for form in forms}, "required": True}
    return {}


def _build_content(schema: str) -> dict[str, Any]:
    return {"schema": {"$ref": build_reference(schema)}}


def _build_response(schema: str) -> dict[str, Any]:
    return {"description": "OK", "content": {media: _build_content(schema) for media in (JSON, YAML)}}


_UNAUTHORIZED: Final = {"description": "Unauthorized"}


def _to_camel_case(path: str) -> str:
    """Return a path in camel case: `/apis/apps/v1/{name}` is `AppsV1Name`."""
    parts = path.replace("{", "").replace("}", "").replace(".", "/").split("/")
    return "".join(part[:1].upper() + part[1:] for part in parts if part not in ("", "api", "apis"))
