"""From a method and a path to a call: `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUBRESOURCE]]`.

Rules for this file: it only reads; whether the call is allowed or makes sense for its kind is asked later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from dray.api.kinds import Kind
from dray.server.http.errors import Failure, bad_request, method_not_allowed, no_such_path
from dray.server.http.requests import Call

REVIEWS: Mapping[tuple[str, str], tuple[str, bool]] = MappingProxyType(
    {
        ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", False),
        ("authentication.k8s.io", "tokenreviews"): ("TokenReview", False),
        ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
        ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
        ("authorization.k8s.io", "subjectaccessreviews"): ("SubjectAccessReview", False),
        ("authorization.k8s.io", "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    }
)
"""Questions that are answered and not kept: by group and plural, the kind and whether it has a namespace."""

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
"""The verb, by method and whether an object is named."""

BINDINGS = "bindings"
"""The older way to bind a pod, which is named in the body alone."""

REMEMBERED = 4096
"""So many calls are remembered by what they looked like."""
FIELDS = 100
"""So many parameters a query may have."""
LONG = 512
"""Nobody's long addresses are remembered."""

_NAMESPACE_OF_ITSELF = frozenset({"status", "finalize"})


class Routes:
    """Reads paths; knows the kinds that are served."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {
            (kind.group, version, kind.plural): kind for kind in kinds for version in kind.versions
        }
        # Components ask for the same things again and again: their lists, their leases, their node.
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._read)

    def call(self, method: str, path: str, query: str) -> Call:
        """What a request asks for; raises a `Failure` when there is nothing of that name."""
        if len(path) + len(query) > LONG:
            return self._read(method, path, query)
        return self._remembered(method, path, query)

    def asked(self, method: str, path: str, query: Mapping[str, str]) -> Call:
        """The same for a query that was never text."""
        if len(query) > FIELDS:
            raise _too_many_fields()
        return self._call(method, path, query)

    def _read(self, method: str, path: str, query: str) -> Call:
        return self._call(method, path, _query(query))

    def _call(self, method: str, path: str, asked: Mapping[str, str]) -> Call:
        parts = [part for part in path.split("/") if part]
        if "%" in path:
            parts = [unquote(part) for part in parts]
        if parts[:1] == ["api"] and len(parts) > 2:
            return self._resource(method, path, asked, ["", *parts[1:]])
        if parts[:1] == ["apis"] and len(parts) > 3:
            return self._resource(method, path, asked, parts[1:])
        return Call(method.lower(), path, query=asked)

    def _resource(self, method: str, path: str, query: Mapping[str, str], parts: list[str]) -> Call:
        group, version, *rest = parts
        if rest and rest[0] == "watch":  # the old way to ask for a watch
            rest, query = rest[1:], MappingProxyType({**query, "watch": "true"})
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in _NAMESPACE_OF_ITSELF:
            namespace, rest = rest[1], rest[2:]
        plural, name, *sub = [*rest, "", ""][: max(len(rest), 2)]
        subresource = "/".join(sub)
        bindings = (group, plural) == ("", BINDINGS)
        kind = self._kinds.get((group, version, "pods" if bindings else plural))
        review = REVIEWS.get((group, plural)) if version == "v1" else None
        if kind is None and review is None:
            raise no_such_path()
        _check(kind, namespace, name, subresource)
        verb = _VERBS.get((method, bool(name)))
        if bindings and (name or not namespace):
            raise no_such_path()
        if verb is None or (verb == "create" and bool(name) != bool(subresource)):
            raise method_not_allowed()
        if bindings and verb != "create":
            raise method_not_allowed()
        if verb == "list" and query.get("watch") in ("true", "1", "True"):
            verb = "watch"
        return Call(verb, path, kind, group, version, plural, namespace, name, subresource, query)


def _check(kind: Kind | None, namespace: str, name: str, subresource: str) -> None:
    if kind is None:
        return
    if namespace and not kind.namespaced:
        raise no_such_path()
    if kind.namespaced and name and not namespace:
        raise no_such_path()
    if subresource and subresource not in kind.subresources:
        raise no_such_path()


def _query(text: str) -> Mapping[str, str]:
    if not text:
        return MappingProxyType({})
    try:
        return MappingProxyType(dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS)))
    except ValueError:
        raise _too_many_fields() from None


def _too_many_fields() -> Failure:
    return bad_request(f"a request has at most {FIELDS} query parameters")
