"""Admission webhooks as values: their configurations, which requests they are called for, and the reviews.

Nothing here sends a request, stores an object or reads a clock; the API server calls webhooks with what is
computed here. The API server, the table of kinds, the defaults and the validation import this package.
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
