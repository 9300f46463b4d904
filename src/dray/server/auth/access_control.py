"""Access control of the API server: authenticates a request, then authorizes it after impersonation."""

from __future__ import annotations

from collections.abc import Mapping

from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.impersonation import impersonate
from dray.server.auth.authz.policy_rules import build_attributes
from dray.server.auth.authz.rbac import build_forbidden
from dray.server.http.application import Peer
from dray.server.http.requests import ApiCall, RequestUser


class ServerAccessControl:
    """Authenticates and authorizes requests; the application calls it."""

    def __init__(self, authenticator: Authenticator, authorizer: UnionAuthorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    def authenticate(self, headers: Mapping[str, str], peer: Peer | None, path: str) -> RequestUser:
        return self._authenticator.authenticate(headers, peer, path)

    def impersonate(self, user: RequestUser, headers: Mapping[str, str]) -> RequestUser:
        return impersonate(user, headers, self._authorizer)

    def authorize(self, call: ApiCall, user: RequestUser) -> str:
        attributes = build_attributes(call)
        decision = self._authorizer.authorize(user, attributes)
        if not decision.allowed:
            raise build_forbidden(attributes, decision)
        return decision.reason
