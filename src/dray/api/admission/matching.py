"""Which webhooks are asked about a request, and in which version of the object.

Theory of operation: a webhook is asked when one of its rules names the resource and the operation, and its
selectors take the namespace and the object. Rules are looked at twice at most: first with the version in
which the request was made, then, when the webhook asks for equivalents, with every other version in which the
same objects are served. The version that a rule names is the one the webhook is asked in. What rules say does
not depend on the object, so whoever asks often may remember `called_in`; selectors are looked at every time.

Rules for this file: pure; rows of tests are enough to know all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dray.api.admission.label_selector import selected
from dray.api.admission.webhook_configuration import (
    ALL,
    CLUSTER,
    EQUIVALENT,
    GROUP,
    NAMESPACED,
    RuleWithOperations,
    Webhook,
)

EXEMPT = frozenset(
    {
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
)
"""Resources of our group that no webhook is asked about: who locks himself out must be able to mend that."""


class Target(msgspec.Struct, frozen=True):
    """A resource, and what is done to it; `versions` are all in which it is served."""

    operation: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespaced: bool = True
    versions: tuple[str, ...] = ()


class Labelled(msgspec.Struct, frozen=True):
    """What selectors look at: labels of the namespace, None outside of all, and of the new and old object."""

    namespace: Mapping[str, str] | None = None
    objects: tuple[Mapping[str, str], ...] = ()


def called_in(webhook: Webhook, target: Target) -> str | None:
    """The version in which a webhook is asked about a target; None when its rules do not name it."""
    if target.group == GROUP and target.resource in EXEMPT:
        return None
    equivalent = webhook.match_policy in (None, EQUIVALENT)
    others = [version for version in target.versions if version != target.version] if equivalent else []
    for version in (target.version, *others):
        if any(_names(rule, target, version) for rule in webhook.rules):
            return version
    return None


def takes(webhook: Webhook, labelled: Labelled) -> bool:
    """Whether the selectors of a webhook take the namespace and the object."""
    if labelled.namespace is not None and not selected(webhook.namespace_selector, (labelled.namespace,)):
        return False
    return selected(webhook.object_selector, labelled.objects)


def _names(rule: RuleWithOperations, target: Target, version: str) -> bool:
    return (
        _any(rule.operations, target.operation)
        and _any(rule.api_groups, target.group)
        and _any(rule.api_versions, version)
        and _in_scope(rule.scope, target)
        and any(_is_resource(pattern, target) for pattern in rule.resources)
    )


def _any(named: Sequence[str], wanted: str) -> bool:
    return wanted in named or ALL in named


def _in_scope(scope: str | None, target: Target) -> bool:
    # A namespace itself stands outside of all namespaces.
    wanted = {CLUSTER: False, NAMESPACED: True}.get(scope or ALL)
    return wanted is None or wanted is target.namespaced


def _is_resource(pattern: str, target: Target) -> bool:
    """`pods`, `pods/status`, `*/status`; `*` alone is every resource, `*/*` every subresource as well."""
    resource, _, subresource = pattern.partition("/")
    return resource in (ALL, target.resource) and subresource in (ALL, target.subresource)
