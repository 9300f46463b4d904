"""All rules about who may write what into objects, in the order in which they are asked."""

from __future__ import annotations

from dray.server.auth.access import Access
from dray.server.auth.claimrules import AdminAccessRule, FinalizerRule, StatusRule
from dray.server.auth.drivers import Drivers, NamingRule, SliceRule
from dray.server.auth.escalation import EscalationRule
from dray.server.auth.noderules import NodeRule
from dray.server.cache import Cache
from dray.server.change import Rule


def confinement(cache: Cache, access: Access) -> tuple[Rule, ...]:
    """The rules, for a server that follows `cache` and asks `access`."""
    drivers = Drivers(cache, access)
    return (
        NodeRule(),
        SliceRule(drivers),
        StatusRule(cache, access, drivers),
        FinalizerRule(access),
        AdminAccessRule(cache),
        NamingRule(access),
        EscalationRule(access),
    )
