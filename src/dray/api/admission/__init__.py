"""Admission webhooks as values: their configurations, which requests they are asked about, and the reviews.

Nothing here calls anybody, keeps anything or knows a clock; whoever asks webhooks does so with what is
decided here. The API server imports this package, and the tables of kinds, defaults and rules.
"""

from __future__ import annotations

from dray.api.admission.label_selector import LabelSelector, LabelSelectorRequirement
from dray.api.admission.webhook_configuration import (
    MatchCondition,
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)

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
