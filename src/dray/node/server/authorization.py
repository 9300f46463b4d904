"""Authorization of the clients of an agent's endpoint.

Theory of operation: a client presents a certificate of the cluster's CA, and the agent asks the server with a
SubjectAccessReview, as the kubelet does, whether that user may `get nodes/proxy` on this node. Decisions are
cached for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.client.client import Client
from dray.client.rest_client import CALL_ERRORS
from dray.values.cache_bounds import CacheBound

_ACCESS_REVIEW_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ALLOWED_SECONDS, _DENIED_SECONDS = 300.0, 10.0
AUTHORIZATION_BOUND: Final = CacheBound("authorization decisions of an agent", 1_000, "the agent of a node")


class PeerAuthorizer:
    """Decides whether a client may use an agent."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._clock = client.options.time_source.clock
        self._decisions: dict[tuple[str, tuple[str, ...]], tuple[bool, float]] = {}

    async def is_allowed(self, certificate: Mapping[str, Any] | None) -> bool | None:
        """Return whether a client is authorized; None when it presented no certificate.

        `certificate` is verified by TLS and has the form of `ssl.SSLSocket.getpeercert`.
        """
        subject = _parse_subject(certificate)
        if subject is None:
            return None
        now = self._clock.monotonic()
        decision = self._decisions.get(subject)
        if decision is None or decision[1] < now:
            allowed = await self._review_access(*subject)
            until = now + (_ALLOWED_SECONDS if allowed else _DENIED_SECONDS)
            decision = AUTHORIZATION_BOUND.put(self._decisions, subject, (allowed, until))
        return decision[0]

    async def _review_access(self, user: str, groups: tuple[str, ...]) -> bool:
        spec = {
            "user": user,
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": {
                "verb": "get",
                "resource": "nodes",
                "subresource": "proxy",
                "name": self._node,
            },
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            reviewed = await self._client.post_json(_ACCESS_REVIEW_PATH, review)
        except CALL_ERRORS:
            return False
        return bool((reviewed.get("status") or {}).get("allowed"))


def _parse_subject(certificate: Mapping[str, Any] | None) -> tuple[str, tuple[str, ...]] | None:
    """Parse user and groups of a certificate; None when it names no single user."""
    names: dict[str, list[str]] = {}
    for part in (certificate or {}).get("subject", ()):
        for field, value in part:
            names.setdefault(field, []).append(value)
    users = names.get("commonName", [])
    return (users[0], tuple(names.get("organizationName", ()))) if len(users) == 1 and users[0] else None
