"""The rules on who may write what into objects, in their order."""

from __future__ import annotations

from typing import Final

from dray.api.kinds import KINDS
from dray.server.admission.change import (
    ADMITTED,
    CREATE,
    AdmissionEffects,
    AdmissionRule,
    ObjectChange,
    RuleScope,
)
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.auth.restriction.claim_restriction import (
    AdminAccessRule,
    ClaimFinalizerRule,
    ClaimStatusRule,
)
from dray.server.auth.restriction.driver_restriction import (
    DriverAuthorizer,
    DriverBindingRule,
    SliceWriteRule,
)
from dray.server.auth.restriction.escalation import EscalationRule
from dray.server.auth.restriction.node_restriction import NodeRestrictionRule, PreparationWriteRule
from dray.server.http.requests import WRITE_VERBS
from dray.server.watch.cache import WatchCache


class CreateOnUpdateRule:
    """Requires the right to create from users who create an object by an update or a patch."""

    scopes: Final = (RuleScope(KINDS, (CREATE,), verbs=WRITE_VERBS - {CREATE}),)

    def __init__(self, authorizer: UnionAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.operation == CREATE and change.request.call.verb != CREATE:
            kind = change.kind
            attributes = AccessAttributes(
                "create", kind.group, kind.plural, "", change.namespace, change.name
            )
            self._authorizer.require(change.request.user, attributes)
        return ADMITTED


def build_write_rules(cache: WatchCache, authorizer: UnionAuthorizer) -> tuple[AdmissionRule, ...]:
    """Build the rules for a server with this cache and authorizer."""
    drivers = DriverAuthorizer(cache, authorizer)
    return (
        CreateOnUpdateRule(authorizer),
        NodeRestrictionRule(),
        PreparationWriteRule(authorizer.node_authorizer.pod_graph),
        SliceWriteRule(drivers),
        ClaimStatusRule(cache, authorizer, drivers),
        ClaimFinalizerRule(authorizer),
        AdminAccessRule(cache),
        DriverBindingRule(authorizer),
        EscalationRule(authorizer),
    )
