"""What somebody may do, all rights taken together: as a node, and by roles."""

from __future__ import annotations

from dray.server.auth.authz.node_authorizer import NodeAuthorizer
from dray.server.auth.authz.policy_rules import Asked, refusal_text
from dray.server.auth.authz.rbac import Authorizer, Decision, refusal
from dray.server.http.requests import User
from dray.server.watch.cache import Cache


class Access:
    """Answers every question about rights."""

    def __init__(self, cache: Cache) -> None:
        self.rbac = Authorizer(cache)
        self.nodes = NodeAuthorizer(cache)

    def decide(self, user: User, asked: Asked) -> Decision:
        """Whether the user may do it, and why."""
        if user.node is None:
            return self.rbac.decide(user, asked)
        as_node = self.nodes.decide(user, asked)
        if as_node.allowed:
            return as_node
        by_roles = self.rbac.decide(user, asked)
        if by_roles.allowed:
            return by_roles
        # No role is missing: what a node may do is not a matter of roles.
        return Decision(False, f"{refusal_text(user, asked)}: {as_node.reason}", as_node.reason)

    def allows(self, user: User, asked: Asked) -> bool:
        """Whether the user may do it."""
        return self.decide(user, asked).allowed

    def require(self, user: User, asked: Asked) -> None:
        """Raise 403 unless the user may do it."""
        decision = self.decide(user, asked)
        if not decision.allowed:
            raise refusal(asked, decision)
