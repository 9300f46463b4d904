"""Routing of a method and path to a call: `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUBRESOURCE]]`.

A path or a method that is not served is routed as well, as Kubernetes does it: whoever has no right to it is
told that, and is on record, and only others are told that there is nothing (`check_served`).

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
from dray.server.http.requests import REVIEW_KINDS, TRANSACTIONS, ApiCall

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

_COLLECTION_METHODS: Mapping[str, str] = MappingProxyType({"PUT": "update", "PATCH": "patch"})
"""The verb of a method that no collection has."""

BINDINGS = "bindings"
"""The legacy resource for binding a pod; only the body names the pod."""

MAX_CACHED_CALLS = 4096
MAX_QUERY_FIELDS = 100
MAX_CACHED_URL_LENGTH = 512
"""Longer URLs are parsed each time, so that the cache stays small."""

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Router:
    """Routes paths to the served kinds."""

    def __init__(self, kinds: Iterable[Kind], *, transactions: bool = False) -> None:
        """`transactions` says whether the store can commit several writes together."""
        self._serves_transactions = transactions
        self._kinds: dict[tuple[str, str, str], Kind] = {
            (kind.group, version, kind.plural): kind for kind in kinds for version in kind.versions
        }
        # Components send the same requests repeatedly: their lists, their leases, their node.
        self._parse_cached = lru_cache(maxsize=MAX_CACHED_CALLS)(self._parse)

    def route(self, method: str, path: str, query: str) -> ApiCall:
        """Route a request; raises an `ApiStatusError` for a query that is too long."""
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
        verb = _VERBS.get((method, bool(name)), "")
        is_found = _is_served(kind, namespace, name, subresource)
        if kind is None:
            is_found = version == "v1" and (group, plural) in REVIEW_KINDS
            if self._serves_transactions and (group, version, plural) == TRANSACTIONS:
                is_found = not (namespace or name)
        if bindings and (name or not namespace):
            is_found = False
        is_allowed = verb == "create" if bindings else bool(verb)
        if verb == "create":
            is_placed = kind is None or not kind.namespaced or bool(namespace)
            is_allowed = is_placed and bool(name) == bool(subresource)
        if verb == "list" and query.get("watch") in ("true", "1", "True"):
            verb = "watch"
        code = 404 if not is_found else 405 if not is_allowed else 0
        verb = verb or _COLLECTION_METHODS.get(method, method.lower())
        return ApiCall(verb, path, kind, group, version, plural, namespace, name, subresource, query, code)


def check_served(call: ApiCall) -> None:
    """Raise 404 or 405 when nothing is served for a call."""
    if call.unserved_code == 404:
        raise new_path_not_found()
    if call.unserved_code:
        raise new_method_not_allowed()


def _is_served(kind: Kind | None, namespace: str, name: str, subresource: str) -> bool:
    """Whether a kind has such a path."""
    if kind is None:
        return False
    if kind.namespaced and name and not namespace:
        return False
    return not (namespace and not kind.namespaced) and (not subresource or subresource in kind.subresources)


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
