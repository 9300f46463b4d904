"""Which webhooks are asked about a request, and in which version of the object.

Theory of operation: a webhook is asked when one of its rules names the resource and the operation, and its
selectors take the namespace and the object. Rules are looked at twice at most: first with the version in
which the request was made, then, when the webhook asks for equivalents, with every other version in which the
same objects are served. The version that a rule names is the one the webhook is asked in. What rules say does
not depend on the object, so whoever asks often may remember `find_called_version`; selectors are looked at
every time.

Rules for this file: pure; rows of tests are enough to know all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dray.api.admission.label_selector import matches_labels
from dray.api.admission.webhook_configuration import (
    ALL,
    CLUSTER,
    EQUIVALENT,
    GROUP,
    NAMESPACED,
    RuleWithOperations,
    Webhook,
)

EXEMPT_RESOURCES = frozenset(
    {
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
)
"""Resources of our group that no webhook is asked about: who locks himself out must be able to mend that."""


class AdmissionTarget(msgspec.Struct, frozen=True):
    """A resource, and what is done to it; `versions` are all in which it is served."""

    operation: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespaced: bool = True
    versions: tuple[str, ...] = ()


class AdmissionLabels(msgspec.Struct, frozen=True):
    """What selectors look at: labels of the namespace, None outside of all, and of the new and old object."""

    namespace: Mapping[str, str] | None = None
    objects: tuple[Mapping[str, str], ...] = ()


def find_called_version(webhook: Webhook, target: AdmissionTarget) -> str | None:
    """The version in which a webhook is asked about a target; None when its rules do not name it."""
    if target.group == GROUP and target.resource in EXEMPT_RESOURCES:
        return None
    equivalent = webhook.match_policy in (None, EQUIVALENT)
    others = [version for version in target.versions if version != target.version] if equivalent else []
    for version in (target.version, *others):
        if any(_rule_matches(rule, target, version) for rule in webhook.rules):
            return version
    return None


def matches_selectors(webhook: Webhook, labels: AdmissionLabels) -> bool:
    """Whether the selectors of a webhook take the namespace and the object."""
    if labels.namespace is not None and not matches_labels(webhook.namespace_selector, (labels.namespace,)):
        return False
    return matches_labels(webhook.object_selector, labels.objects)


def _rule_matches(rule: RuleWithOperations, target: AdmissionTarget, version: str) -> bool:
    return (
        _matches_any(rule.operations, target.operation)
        and _matches_any(rule.api_groups, target.group)
        and _matches_any(rule.api_versions, version)
        and _is_in_scope(rule.scope, target)
        and any(_matches_resource(pattern, target) for pattern in rule.resources)
    )


def _matches_any(patterns: Sequence[str], wanted: str) -> bool:
    return wanted in patterns or ALL in patterns


def _is_in_scope(scope: str | None, target: AdmissionTarget) -> bool:
    # A namespace itself stands outside of all namespaces.
    wanted = {CLUSTER: False, NAMESPACED: True}.get(scope or ALL)
    return wanted is None or wanted is target.namespaced


def _matches_resource(pattern: str, target: AdmissionTarget) -> bool:
    """`pods`, `pods/status`, `*/status`; `*` alone is every resource, `*/*` every subresource as well."""
    resource, _, subresource = pattern.partition("/")
    return resource in (ALL, target.resource) and subresource in (ALL, target.subresource)
