"""The fields of webhook configurations."""

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
        "and metrics have it. Required.",
        "clientConfig": "Where it is, and whose certificate it shows. Required.",
        "rules": "What it is asked about; one rule that names the request is enough.",
        "failurePolicy": "What becomes of a request when it cannot be asked: `Fail` refuses it, `Ignore` "
        "goes on without it.",
        "matchPolicy": "`Equivalent` also takes requests in other versions, and asks in the version that a "
        "rule names; `Exact` takes only versions that rules name.",
        "namespaceSelector": "It is asked only about objects in namespaces with these labels; objects "
        "outside of all namespaces are always taken.",
        "objectSelector": "It is asked only about objects with these labels, before or after the change.",
        "sideEffects": "`None`, or `NoneOnDryRun` when it does something else that a dry run leaves out. "
        "Required.",
        "timeoutSeconds": "How long it may take, from 1 to 30 seconds.",
        "admissionReviewVersions": "Versions of AdmissionReview that it understands; `v1` must be there.",
        "matchConditions": "It is asked only when all these expressions are true.",
    }
)

WEBHOOKS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        ValidatingWebhookConfiguration: {"webhooks": "Who is asked; all at the same time."},
        MutatingWebhookConfiguration: {"webhooks": "Who is asked, one after the other in this order."},
        ValidatingWebhook: _WEBHOOK,
        MutatingWebhook: {
            **_WEBHOOK,
            "reinvocationPolicy": "`IfNeeded` asks it once more when another one changed the object after "
            "it; `Never` asks it once.",
        },
        WebhookClientConfig: {
            "url": "Its address, `https://HOST[:PORT]/PATH` without user, query or fragment; this or "
            "`service`.",
            "service": "The service of the cluster behind which it is; this or `url`.",
            "caBundle": "Authorities of its certificate, PEM in base64; those of the system when empty.",
        },
        ServiceReference: {
            "namespace": "The namespace of the service. Required.",
            "name": "The name of the service. Required.",
            "path": "Where on the service reviews are answered.",
            "port": "The port of the service, 443 unless said otherwise.",
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
            "name": "Tells the condition from others.",
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
