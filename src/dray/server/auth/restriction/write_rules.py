"""All rules about who may write what into objects, in the order in which they are asked."""

from __future__ import annotations

from dray.server.admission.change import CREATE, NOTHING, Change, Extra, Rule
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.policy_rules import Asked
from dray.server.auth.restriction.claim_restriction import AdminAccessRule, FinalizerRule, StatusRule
from dray.server.auth.restriction.driver_restriction import Drivers, NamingRule, SliceRule
from dray.server.auth.restriction.escalation import EscalationRule
from dray.server.auth.restriction.node_restriction import NodeRule, PreparationRule
from dray.server.watch.cache import Cache


class CreationRule:
    """Who makes an object by an update or a patch needs the right to create it, too."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def judge(self, change: Change) -> Extra:
        if change.operation == CREATE and change.request.call.verb != CREATE:
            kind = change.kind
            asked = Asked("create", kind.group, kind.plural, "", change.namespace, change.name)
            self._access.require(change.request.user, asked)
        return NOTHING


def confinement(cache: Cache, access: Access) -> tuple[Rule, ...]:
    """The rules, for a server that follows `cache` and asks `access`."""
    drivers = Drivers(cache, access)
    return (
        CreationRule(access),
        NodeRule(),
        PreparationRule(access.nodes.placed),
        SliceRule(drivers),
        StatusRule(cache, access, drivers),
        FinalizerRule(access),
        AdminAccessRule(cache),
        NamingRule(access),
        EscalationRule(access),
    )
