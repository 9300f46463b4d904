"""What a server does by itself: begin with what every cluster has, and forget the past that nobody reads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind, parse_document_kind
from dray.server.auth.authz.policy_rules import find_uncovered, read_rules
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import MASTERS, ApiCall, ApiRequest, ApiResponse, RequestUser
from dray.store import Store
from dray.store.errors import StoreError

SERVER_USER: Final = RequestUser("system:apiserver", (MASTERS,))
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
AUTO_UPDATE_ANNOTATION: Final = "rbac.authorization.kubernetes.io/autoupdate"
"""An annotation; `false` keeps a role as it is when a newer server begins."""
HISTORY_SECONDS: Final = 300.0
_COMPACTION_SECONDS: Final = 15.0

ServeResource = Callable[[ApiRequest], Awaitable[ApiResponse]]


def build_initial_objects(ca_pem: str) -> list[dict[str, Any]]:
    """Objects that every cluster has from its beginning."""
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
    """Create what is not there; what is there stays as somebody may have changed it.

    Only roles grow: a server that is newer than its data has services that need more than the roles it began
    with. Whoever wants a role to stay as it is says so in an annotation, as with Kubernetes.
    """
    for document in documents:
        kind, version = parse_document_kind(document)
        namespace = document["metadata"].get("namespace", "")
        try:
            await resources(_build_request("create", kind, version, namespace, document))
        except ApiStatusError as failure:
            if failure.reason != "AlreadyExists":
                raise
            if kind.name == "ClusterRole" and "aggregationRule" not in document:
                await _add_missing_rules(resources, kind, version, document)


async def _add_missing_rules(
    resources: ServeResource, kind: Kind, version: str, document: Mapping[str, Any]
) -> None:
    """Let a role have the rules that it did not have when it was written."""
    answer = await resources(_build_request("get", kind, version, "", document))
    assert isinstance(answer.body, bytes)
    stored = read_json(answer.body)
    known = read_rules(stored.get("rules"))
    missing = [rule for rule in document["rules"] if find_uncovered(read_rules([rule]), known)]
    annotations = stored["metadata"].get("annotations") or {}
    if missing and annotations.get(AUTO_UPDATE_ANNOTATION) != "false":
        grown = {**stored, "rules": [*(stored.get("rules") or ()), *missing]}
        try:
            await resources(_build_request("update", kind, version, "", grown))
        except ApiStatusError as failure:
            if failure.reason != "Conflict":  # then another server on the same store did it
                raise


def _build_request(
    verb: str, kind: Kind, version: str, namespace: str, document: Mapping[str, Any]
) -> ApiRequest:
    name = "" if verb == "create" else document["metadata"]["name"]
    call = ApiCall(verb, "", kind, kind.group, version, kind.plural, namespace, name)
    body = b"" if verb == "get" else write_json(document)
    return ApiRequest(call, SERVER_USER, {"user-agent": "dray-server"}, body)


async def compact_history(store: Store, monotonic: Callable[[], float]) -> None:
    """Compact what is older than a few minutes, for ever; the owner runs this as a task."""
    marks: deque[tuple[float, int]] = deque()
    while True:
        try:
            marks.append((monotonic(), await store.get_revision()))
            while len(marks) > 1 and marks[1][0] <= monotonic() - HISTORY_SECONDS:
                marks.popleft()
            if marks[0][0] <= monotonic() - HISTORY_SECONDS:
                await store.compact(marks[0][1])
        except StoreError:
            pass  # a store in trouble is told by everything else that needs it
        await asyncio.sleep(_COMPACTION_SECONDS)
