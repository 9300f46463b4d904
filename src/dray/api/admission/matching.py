"""Webhook matching: which webhooks are called for a request, and in which version of the object.

Theory of operation: a webhook is called when one of its rules matches the resource and the operation, and its
selectors match the namespace and the object. Rules are evaluated twice at most: first with the version of the
request, then, for `matchPolicy: Equivalent`, with every other version in which the same objects are served.
The webhook is called in the version that the rule names. The outcome of rules does not depend on the object,
so callers may cache `find_called_version`; selectors are evaluated every time.

Rules for this file: pure functions; tables of test cases cover all of it.
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
"""Resources of this API group that no webhook is called for: an administrator must be able to repair a
webhook configuration that refuses every request.
"""


class AdmissionTarget(msgspec.Struct, frozen=True):
    """A resource and the operation on it; `versions` are all versions in which it is served."""

    operation: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespaced: bool = True
    versions: tuple[str, ...] = ()


class AdmissionLabels(msgspec.Struct, frozen=True):
    """The labels that selectors evaluate: of the namespace (None outside of all) and of the new and old
    object.
    """

    namespace: Mapping[str, str] | None = None
    objects: tuple[Mapping[str, str], ...] = ()


def find_called_version(webhook: Webhook, target: AdmissionTarget) -> str | None:
    """Return the version in which a webhook is called for a target; None when its rules do not match."""
    if target.group == GROUP and target.resource in EXEMPT_RESOURCES:
        return None
    equivalent = webhook.match_policy in (None, EQUIVALENT)
    others = [version for version in target.versions if version != target.version] if equivalent else []
    for version in (target.version, *others):
        if any(_rule_matches(rule, target, version) for rule in webhook.rules):
            return version
    return None


def matches_selectors(webhook: Webhook, labels: AdmissionLabels) -> bool:
    """Whether the selectors of a webhook match the namespace and the object."""
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
    # A namespace itself is not in a namespace.
    wanted = {CLUSTER: False, NAMESPACED: True}.get(scope or ALL)
    return wanted is None or wanted is target.namespaced


def _matches_resource(pattern: str, target: AdmissionTarget) -> bool:
    """Whether a pattern matches: `pods`, `pods/status`, `*/status`; `*` is every resource, `*/*` also
    subresources.
    """
    resource, _, subresource = pattern.partition("/")
    return resource in (ALL, target.resource) and subresource in (ALL, target.subresource)
