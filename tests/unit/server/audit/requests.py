"""Requests for the tests of the audit log."""

from __future__ import annotations

from dray.api.kinds import find_kind
from dray.server.http.requests import ApiCall, ApiRequest, RequestUser

SOURCE = "127.0.0.1"
CLAIM = find_kind("resource.k8s.io", "ResourceClaim")


def request(
    verb="create", *, plural="resourceclaims", group="resource.k8s.io", body=b"{}", **more
) -> ApiRequest:
    call = ApiCall(
        verb,
        f"/apis/{group}/v1/namespaces/ml/{plural}",
        kind=CLAIM if plural == "resourceclaims" else None,
        group=group,
        version="v1",
        plural=plural,
        namespace="ml",
        name=more.pop("name", "gpu"),
        query=more.pop("query", {}),
        subresource=more.pop("subresource", ""),
    )
    user = RequestUser("jane", ("dev", "system:authenticated"))
    headers = {"user-agent": "kubectl/v1.34", "authorization": "Bearer s3cr3t-t0ken"}
    return ApiRequest(call, user, headers, more.pop("body", b"{}"), more.pop("audit_id", "a-1"), SOURCE)
