"""Admission webhooks as values: their configurations, which requests they are asked about, and the reviews.

Nothing here calls anybody, keeps anything or knows a clock; whoever asks webhooks does so with what is
decided here. The API server imports this package, and the tables of kinds, defaults and rules.
"""

from __future__ import annotations

from dray.api.admission.configuration import (
    MatchCondition,
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from dray.api.admission.selector import LabelSelector, LabelSelectorRequirement

__all__ = [
    "LabelSelector",
    "LabelSelectorRequirement",
    "MatchCondition",
    "MutatingWebhook",
    "MutatingWebhookConfiguration",
    "RuleWithOperations",
    "ServiceReference",
    "ValidatingWebhook",
    "ValidatingWebhookConfiguration",
    "WebhookClientConfig",
]
