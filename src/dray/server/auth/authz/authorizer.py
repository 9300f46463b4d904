"""The authorizer of the server: the union of the node authorizer and RBAC."""

from __future__ import annotations

from dray.server.auth.authz.node_authorizer import NodeAuthorizer
from dray.server.auth.authz.policy_rules import AccessAttributes, format_refusal
from dray.server.auth.authz.rbac import AccessDecision, RbacAuthorizer, build_forbidden
from dray.server.http.requests import RequestUser
from dray.server.watch.cache import WatchCache


class UnionAuthorizer:
    """Allows what the node authorizer or RBAC allows."""

    def __init__(self, cache: WatchCache) -> None:
        self.rbac = RbacAuthorizer(cache)
        self.node_authorizer = NodeAuthorizer(cache)

    def authorize(self, user: RequestUser, attributes: AccessAttributes) -> AccessDecision:
        """Decide whether the user may do it, with the reason."""
        if user.node_name is None:
            return self.rbac.authorize(user, attributes)
        as_node = self.node_authorizer.authorize(user, attributes)
        if as_node.allowed:
            return as_node
        by_roles = self.rbac.authorize(user, attributes)
        if by_roles.allowed:
            return by_roles
        # No role is missing: the rights of a node do not come from roles.
        return AccessDecision(False, f"{format_refusal(user, attributes)}: {as_node.reason}", as_node.reason)

    def allows(self, user: RequestUser, attributes: AccessAttributes) -> bool:
        """Return whether the user may do it."""
        return self.authorize(user, attributes).allowed

    def require(self, user: RequestUser, attributes: AccessAttributes) -> None:
        """Raise 403 unless the user may do it."""
        decision = self.authorize(user, attributes)
        if not decision.allowed:
            raise build_forbidden(attributes, decision)
