"""Bootstrap objects: creates the objects that every cluster has, and extends roles of older servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind, parse_document_kind
from dray.server.auth.authz.policy_rules import find_uncovered, read_rules
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import MASTERS, ApiCall, ApiRequest, ApiResponse, RequestUser

SERVER_USER: Final = RequestUser("system:apiserver", (MASTERS,))
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
AUTO_UPDATE_ANNOTATION: Final = "rbac.authorization.kubernetes.io/autoupdate"
"""An annotation of roles; with `false` a newer server adds no rules to the role."""

ServeResource = Callable[[ApiRequest], Awaitable[ApiResponse]]


def build_initial_objects(ca_pem: str) -> list[dict[str, Any]]:
    """The objects that every cluster has from its start."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        for name in NAMESPACES
    ]
    authentication = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": ca_pem} if ca_pem else {},
    }
    return [*namespaces, *accounts, authentication]


async def create_initial_objects(resources: ServeResource, documents: Sequence[Mapping[str, Any]]) -> None:
    """Create the objects that do not exist; existing objects stay as they are, except cluster roles.

    A cluster role gets the rules that it lacks: components of a newer server may need more than the roles in
    its store grant. An annotation keeps a role as it is, as in Kubernetes.
    """
    for document in documents:
        kind, version = parse_document_kind(document)
        namespace = document["metadata"].get("namespace", "")
        try:
            await resources(_build_request("create", kind, version, namespace, document))
        except ApiStatusError as error:
            if error.reason != "AlreadyExists":
                raise
            if kind.name == "ClusterRole" and "aggregationRule" not in document:
                await _add_missing_rules(resources, kind, version, document)


async def _add_missing_rules(
    resources: ServeResource, kind: Kind, version: str, document: Mapping[str, Any]
) -> None:
    """Add the rules to a role that its stored rules do not cover."""
    response = await resources(_build_request("get", kind, version, "", document))
    assert isinstance(response.body, bytes)
    stored = read_json(response.body)
    rules = read_rules(stored.get("rules"))
    missing = [rule for rule in document["rules"] if find_uncovered(read_rules([rule]), rules)]
    annotations = stored["metadata"].get("annotations") or {}
    if missing and annotations.get(AUTO_UPDATE_ANNOTATION) != "false":
        extended = {**stored, "rules": [*(stored.get("rules") or ()), *missing]}
        try:
            await resources(_build_request("update", kind, version, "", extended))
        except ApiStatusError as error:
            if error.reason != "Conflict":  # another server on the same store was faster
                raise


def _build_request(
    verb: str, kind: Kind, version: str, namespace: str, document: Mapping[str, Any]
) -> ApiRequest:
    name = "" if verb == "create" else document["metadata"]["name"]
    call = ApiCall(verb, "", kind, kind.group, version, kind.plural, namespace, name)
    body = b"" if verb == "get" else write_json(document)
    return ApiRequest(call, SERVER_USER, {"user-agent": "dray-server"}, body)
