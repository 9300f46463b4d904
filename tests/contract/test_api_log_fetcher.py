"""The user as whom the server fetches logs from agents may do that, and nothing else."""

from __future__ import annotations

import pytest

from dray.server.registry.pod_logs import LOG_CLIENT_IDENTITY
from tests.contract.api import serving

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.mark.parametrize(
    ("verb", "resource", "subresource", "allowed"),
    [
        ("get", "nodes", "proxy", True),
        ("create", "nodes", "proxy", False),
        ("get", "nodes", "", False),
        ("get", "pods", "log", False),
        ("list", "pods", "", False),
        ("create", "pods", "", False),
        ("get", "secrets", "", False),
        ("create", "serviceaccounts", "token", False),
        ("impersonate", "users", "", False),
    ],
)
async def test_the_log_fetcher_may_fetch_logs_only(
    verb: str, resource: str, subresource: str, allowed: bool
) -> None:
    attributes = {"verb": verb, "resource": resource, "subresource": subresource}
    review = {"spec": {"user": LOG_CLIENT_IDENTITY, "resourceAttributes": attributes}}
    async with serving() as api:
        said = await api.ask("POST", REVIEWS, review)
        assert said.document["status"]["allowed"] is allowed, said.document
