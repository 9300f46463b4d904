"""Field documentation of webhook configurations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.admission import (
    LabelSelector,
    LabelSelectorRequirement,
    MatchCondition,
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)

_WEBHOOK: Mapping[str, str] = MappingProxyType(
    {
        "name": "The name, a domain of at least three parts such as `parameters.gpu.example.com`; messages "
        "and metrics contain it. Required.",
        "clientConfig": "The address of the webhook, and the authorities of its certificate. Required.",
        "rules": "The requests it is called for; one matching rule is enough.",
        "failurePolicy": "What happens to a request when the call fails: `Fail` refuses it, `Ignore` "
        "continues without the webhook.",
        "matchPolicy": "`Equivalent` also matches requests in other versions, and calls in the version that "
        "a rule names; `Exact` matches only versions that rules name.",
        "namespaceSelector": "It is called only for objects in namespaces with these labels; cluster-scoped "
        "objects always match.",
        "objectSelector": "It is called only for objects with these labels, before or after the change.",
        "sideEffects": "`None`, or `NoneOnDryRun` when it has side effects that a dry run leaves out. "
        "Required.",
        "timeoutSeconds": "How long it may take, from 1 to 30 seconds.",
        "admissionReviewVersions": "Versions of AdmissionReview that it understands; `v1` must be there.",
        "matchConditions": "It is called only when all these expressions are true.",
    }
)

WEBHOOKS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        ValidatingWebhookConfiguration: {"webhooks": "The webhooks; all are called at the same time."},
        MutatingWebhookConfiguration: {
            "webhooks": "The webhooks; they are called one after the other, in this order."
        },
        ValidatingWebhook: _WEBHOOK,
        MutatingWebhook: {
            **_WEBHOOK,
            "reinvocationPolicy": "`IfNeeded` calls it once more when another one changed the object after "
            "it; `Never` calls it once.",
        },
        WebhookClientConfig: {
            "url": "Its address, `https://HOST[:PORT]/PATH` without user, query or fragment; this or "
            "`service`.",
            "service": "The service of the cluster that serves it; this or `url`.",
            "caBundle": "Authorities of its certificate, PEM in base64; those of the system when empty.",
        },
        ServiceReference: {
            "namespace": "The namespace of the service. Required.",
            "name": "The name of the service. Required.",
            "path": "The path on the service that serves reviews.",
            "port": "The port of the service, 443 by default.",
        },
        RuleWithOperations: {
            "operations": "`CREATE`, `UPDATE`, `DELETE`, `CONNECT`, or `*` for all. Required.",
            "apiGroups": "Groups of resources, or `*` for all. Required.",
            "apiVersions": "Versions of resources, or `*` for all. Required.",
            "resources": "Resources such as `pods`, with subresources such as `pods/status`; `*` is every "
            "resource, `*/*` also every subresource. Required.",
            "scope": "`Namespaced`, `Cluster`, or `*` for both.",
        },
        MatchCondition: {
            "name": "Identifies the condition.",
            "expression": "A CEL expression about `request`, `object` and `oldObject`. Required.",
        },
        LabelSelector: {
            "matchLabels": "Labels and the values they must have.",
            "matchExpressions": "Conditions on labels; all must hold.",
        },
        LabelSelectorRequirement: {
            "key": "The label.",
            "operator": "`In`, `NotIn`, `Exists` or `DoesNotExist`.",
            "values": "What is compared with, for `In` and `NotIn`; none for the others.",
        },
    }
)
