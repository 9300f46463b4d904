"""Routing of a method and path to a call: `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUBRESOURCE]]`.

Rules for this file: it only parses; authorization and the checks of the kind come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from dray.api.kinds import Kind
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_method_not_allowed,
    new_path_not_found,
)
from dray.server.http.requests import REVIEW_KINDS, ApiCall

_VERBS: Mapping[tuple[str, bool], str] = MappingProxyType(
    {
        ("GET", True): "get",
        ("HEAD", True): "get",
        ("GET", False): "list",
        ("HEAD", False): "list",
        ("POST", False): "create",
        ("POST", True): "create",
        ("PUT", True): "update",
        ("PATCH", True): "patch",
        ("DELETE", True): "delete",
        ("DELETE", False): "deletecollection",
    }
)
"""The verb, by method and whether the path names an object."""

BINDINGS = "bindings"
"""The legacy resource for binding a pod; only the body names the pod."""

MAX_CACHED_CALLS = 4096
MAX_QUERY_FIELDS = 100
MAX_CACHED_URL_LENGTH = 512
"""Longer URLs are parsed each time, so that the cache stays small."""

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Router:
    """Routes paths to the served kinds."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {
            (kind.group, version, kind.plural): kind for kind in kinds for version in kind.versions
        }
        # Components send the same requests repeatedly: their lists, their leases, their node.
        self._parse_cached = lru_cache(maxsize=MAX_CACHED_CALLS)(self._parse)

    def route(self, method: str, path: str, query: str) -> ApiCall:
        """Route a request; raises an `ApiStatusError` when there is no such resource."""
        if len(path) + len(query) > MAX_CACHED_URL_LENGTH:
            return self._parse(method, path, query)
        return self._parse_cached(method, path, query)

    def route_parsed(self, method: str, path: str, query: Mapping[str, str]) -> ApiCall:
        """Route a request whose query is parsed already."""
        if len(query) > MAX_QUERY_FIELDS:
            raise _new_too_many_fields()
        return self._route_path(method, path, query)

    def _parse(self, method: str, path: str, query: str) -> ApiCall:
        return self._route_path(method, path, _parse_query(query))

    def _route_path(self, method: str, path: str, query: Mapping[str, str]) -> ApiCall:
        parts = [part for part in path.split("/") if part]
        if "%" in path:
            parts = [unquote(part) for part in parts]
        if parts[:1] == ["api"] and len(parts) > 2:
            return self._route_resource(method, path, query, ["", *parts[1:]])
        if parts[:1] == ["apis"] and len(parts) > 3:
            return self._route_resource(method, path, query, parts[1:])
        return ApiCall(method.lower(), path, query=query)

    def _route_resource(self, method: str, path: str, query: Mapping[str, str], parts: list[str]) -> ApiCall:
        group, version, *rest = parts
        if rest and rest[0] == "watch":  # the deprecated path of watches
            rest, query = rest[1:], MappingProxyType({**query, "watch": "true"})
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            namespace, rest = rest[1], rest[2:]
        plural, name, *sub = [*rest, "", ""][: max(len(rest), 2)]
        subresource = "/".join(sub)
        bindings = (group, plural) == ("", BINDINGS)
        kind = self._kinds.get((group, version, "pods" if bindings else plural))
        review = REVIEW_KINDS.get((group, plural)) if version == "v1" else None
        if kind is None and review is None:
            raise new_path_not_found()
        _check_resource(kind, namespace, name, subresource)
        verb = _VERBS.get((method, bool(name)))
        if bindings and (name or not namespace):
            raise new_path_not_found()
        if verb is None or (verb == "create" and bool(name) != bool(subresource)):
            raise new_method_not_allowed()
        if verb == "create" and kind is not None and kind.namespaced and not namespace:
            raise new_method_not_allowed()
        if bindings and verb != "create":
            raise new_method_not_allowed()
        if verb == "list" and query.get("watch") in ("true", "1", "True"):
            verb = "watch"
        return ApiCall(verb, path, kind, group, version, plural, namespace, name, subresource, query)


def _check_resource(kind: Kind | None, namespace: str, name: str, subresource: str) -> None:
    if kind is None:
        return
    if namespace and not kind.namespaced:
        raise new_path_not_found()
    if kind.namespaced and name and not namespace:
        raise new_path_not_found()
    if subresource and subresource not in kind.subresources:
        raise new_path_not_found()


def _parse_query(text: str) -> Mapping[str, str]:
    if not text:
        return MappingProxyType({})
    try:
        return MappingProxyType(
            dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS))
        )
    except ValueError:
        raise _new_too_many_fields() from None


def _new_too_many_fields() -> ApiStatusError:
    return new_bad_request(f"a request has at most {MAX_QUERY_FIELDS} query parameters")
