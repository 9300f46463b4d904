"""Configurations of admission webhooks: whom the server asks before it stores something, and about what."""

from __future__ import annotations

from typing import Final

from dray.api.admission.label_selector import LabelSelector
from dray.api.meta import ApiStruct, CompositeApiStruct, Int64, ObjectMeta, always_encode

GROUP: Final = "admissionregistration.k8s.io"
REVIEW_VERSION: Final = "v1"

FAIL, IGNORE = "Fail", "Ignore"
EXACT, EQUIVALENT = "Exact", "Equivalent"
NEVER, IF_NEEDED = "Never", "IfNeeded"
CLUSTER, NAMESPACED, ALL = "Cluster", "Namespaced", "*"
NO_EFFECTS, NONE_ON_DRY_RUN = "None", "NoneOnDryRun"
CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"

DEFAULT_TIMEOUT_SECONDS: Final = 10
DEFAULT_PORT: Final = 443


class RuleWithOperations(ApiStruct, frozen=True):
    """Which operations on which resources; `*` stands for all."""

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str | None = None


class ServiceReference(ApiStruct, frozen=True):
    """A service of the cluster, and where it answers reviews."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: Int64 | None = None


class WebhookClientConfig(ApiStruct, frozen=True):
    """How a webhook is reached: at a URL, or as a service."""

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str = ""


class MatchCondition(ApiStruct, frozen=True):
    """A condition on a request, as a CEL expression."""

    name: str = ""
    expression: str = ""


class ValidatingWebhook(CompositeApiStruct, frozen=True):
    """Somebody who may say no."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()
    rules: tuple[RuleWithOperations, ...] = ()
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: Int64 | None = None
    admission_review_versions: tuple[str, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()


class MutatingWebhook(CompositeApiStruct, frozen=True):
    """Somebody who may say no, and may change what is stored."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()
    rules: tuple[RuleWithOperations, ...] = ()
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: Int64 | None = None
    admission_review_versions: tuple[str, ...] = ()
    reinvocation_policy: str | None = None
    match_conditions: tuple[MatchCondition, ...] = ()


Webhook = ValidatingWebhook | MutatingWebhook


class ValidatingWebhookConfiguration(CompositeApiStruct, frozen=True):
    """Webhooks that are asked about objects when they are as they would be stored."""

    api_version: str = always_encode(f"{GROUP}/v1")
    kind: str = always_encode("ValidatingWebhookConfiguration")
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[ValidatingWebhook, ...] = ()


class MutatingWebhookConfiguration(CompositeApiStruct, frozen=True):
    """Webhooks that are asked first, one after the other, and may change objects."""

    api_version: str = always_encode(f"{GROUP}/v1")
    kind: str = always_encode("MutatingWebhookConfiguration")
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[MutatingWebhook, ...] = ()
