"""Bootstrap objects: creates the objects that every cluster has, and extends roles of older servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind, parse_document_kind
from dray.server.auth.authz.policy_rules import find_uncovered, read_rules
from dray.server.background.extension_authentication import (
    AUTHENTICATION_MAP,
    build_authentication_map,
    complete_authentication_data,
)
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import MASTERS, ApiCall, ApiRequest, ApiResponse, RequestUser

SERVER_USER: Final = RequestUser("system:apiserver", (MASTERS,))
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
AUTO_UPDATE_ANNOTATION: Final = "rbac.authorization.kubernetes.io/autoupdate"
"""An annotation of roles; with `false` a newer server adds no rules to the role."""
_TOKEN_TRACKING: Final = "kube-apiserver-legacy-service-account-token-tracking"

ServeResource = Callable[[ApiRequest], Awaitable[ApiResponse]]


def build_initial_objects(ca_pem: str, now: datetime) -> list[dict[str, Any]]:
    """The objects that every cluster has from its start."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        for name in NAMESPACES
    ]
    # kube-controller-manager removes unused tokens only when it knows since when their use is recorded.
    tracking = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _TOKEN_TRACKING, "namespace": "kube-system"},
        "data": {"since": now.date().isoformat()},
    }
    return [*namespaces, *accounts, build_authentication_map(ca_pem, now), tracking]


async def create_initial_objects(resources: ServeResource, documents: Sequence[Mapping[str, Any]]) -> None:
    """Create the objects that do not exist; existing objects stay as they are, with two exceptions.

    A role gets the rules that it lacks: components of a newer server may need more than the roles in its
    store grant. An annotation keeps a role as it is, as in Kubernetes. The config map of authentication gets
    the keys that it lacks.
    """
    for document in documents:
        kind, version = parse_document_kind(document)
        namespace = document["metadata"].get("namespace", "")
        try:
            await resources(build_server_request("create", kind, version, namespace, document))
        except ApiStatusError as error:
            if error.reason != "AlreadyExists":
                raise
            complete = _find_completion(document)
            if complete is not None:
                await _complete_stored_object(resources, kind, version, document, complete)


Completion = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
"""Returns the fields to change of a stored object, so that it has what the initial document has."""


def _find_completion(document: Mapping[str, Any]) -> Completion | None:
    """Find how a stored object is completed; None when it stays as it is."""
    if "rules" in document and "aggregationRule" not in document:
        return _find_missing_rules
    is_authentication = document["metadata"]["name"] == AUTHENTICATION_MAP and "data" in document
    return _find_missing_data if is_authentication else None


async def _complete_stored_object(
    resources: ServeResource, kind: Kind, version: str, document: Mapping[str, Any], complete: Completion
) -> None:
    namespace = document["metadata"].get("namespace", "")
    response = await resources(build_server_request("get", kind, version, namespace, document))
    assert isinstance(response.body, bytes)
    stored = read_json(response.body)
    changes = complete(stored, document)
    if changes:
        try:
            await resources(build_server_request("update", kind, version, namespace, {**stored, **changes}))
        except ApiStatusError as error:
            if error.reason != "Conflict":  # another server on the same store was faster
                raise


def _find_missing_rules(stored: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of a role with those that the stored ones do not cover."""
    rules = read_rules(stored.get("rules"))
    missing = [rule for rule in document["rules"] if find_uncovered(read_rules([rule]), rules)]
    annotations = stored["metadata"].get("annotations") or {}
    if not missing or annotations.get(AUTO_UPDATE_ANNOTATION) == "false":
        return {}
    return {"rules": [*(stored.get("rules") or ()), *missing]}


def _find_missing_data(stored: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    data = stored.get("data") or {}
    complete = complete_authentication_data(data, document["data"])
    return {} if complete == data else {"data": complete}


def build_server_request(
    verb: str, kind: Kind, version: str, namespace: str, document: Mapping[str, Any]
) -> ApiRequest:
    """A request of the server itself."""
    name = "" if verb == "create" else document["metadata"]["name"]
    call = ApiCall(verb, "", kind, kind.group, version, kind.plural, namespace, name)
    body = b"" if verb == "get" else write_json(document)
    return ApiRequest(call, SERVER_USER, {"user-agent": "dray-server"}, body)
