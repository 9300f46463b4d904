"""Webhook configurations: which webhooks the server calls before storing an object, and when."""

from __future__ import annotations

from typing import Final

from dray.api.admission.label_selector import LabelSelector
from dray.api.meta import ApiStruct, CompositeApiStruct, Int32, ObjectMeta, always_encode

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
    """Operations on resources; `*` stands for all."""

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str | None = None


class ServiceReference(ApiStruct, frozen=True):
    """A service of the cluster, and the path and port where it serves reviews."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: Int32 | None = None


class WebhookClientConfig(ApiStruct, frozen=True):
    """How the server reaches a webhook: at a URL, or as a service."""

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str = ""


class MatchCondition(ApiStruct, frozen=True):
    """A condition on a request, as a CEL expression."""

    name: str = ""
    expression: str = ""


class ValidatingWebhook(CompositeApiStruct, frozen=True):
    """A webhook that can deny requests."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()
    rules: tuple[RuleWithOperations, ...] = ()
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: Int32 | None = None
    admission_review_versions: tuple[str, ...] = ()
    match_conditions: tuple[MatchCondition, ...] = ()


class MutatingWebhook(CompositeApiStruct, frozen=True):
    """A webhook that can deny requests and change objects."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()
    rules: tuple[RuleWithOperations, ...] = ()
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: Int32 | None = None
    admission_review_versions: tuple[str, ...] = ()
    reinvocation_policy: str | None = None
    match_conditions: tuple[MatchCondition, ...] = ()


Webhook = ValidatingWebhook | MutatingWebhook


class ValidatingWebhookConfiguration(CompositeApiStruct, frozen=True):
    """Webhooks that are called with objects as they would be stored, and can deny them."""

    api_version: str = always_encode(f"{GROUP}/v1")
    kind: str = always_encode("ValidatingWebhookConfiguration")
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[ValidatingWebhook, ...] = ()


class MutatingWebhookConfiguration(CompositeApiStruct, frozen=True):
    """Webhooks that are called first, one after the other, and can change objects."""

    api_version: str = always_encode(f"{GROUP}/v1")
    kind: str = always_encode("MutatingWebhookConfiguration")
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[MutatingWebhook, ...] = ()
