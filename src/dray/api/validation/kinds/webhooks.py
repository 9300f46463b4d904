"""Validation of webhook configurations: address, rules, selectors, conditions and policies."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from dray.api import limits
from dray.api.admission import (
    LabelSelector,
    MatchCondition,
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from dray.api.admission import webhook_configuration as configuration
from dray.api.admission.match_conditions import compile_condition
from dray.api.fields import ROOT, FieldPath, duplicate, invalid, not_supported, required, too_long
from dray.api.validation.field_rules import (
    OMITTED,
    FieldErrors,
    report_name_faults,
    validate_each,
    validate_name,
    validate_one_of,
)
from dray.api.validation.pods.label_selectors import validate_label_selector
from dray.values.names import check_dns_label, check_dns_subdomain, check_qualified_name, count_bytes

_OPERATIONS: Final = (
    configuration.CREATE,
    configuration.UPDATE,
    configuration.DELETE,
    configuration.CONNECT,
    configuration.ALL,
)
_WEBHOOKS = ROOT.child("webhooks")
_MIN_SEGMENTS: Final = 3


def validate_webhook_configuration(
    obj: ValidatingWebhookConfiguration | MutatingWebhookConfiguration,
) -> FieldErrors:
    """Check a webhook configuration, its metadata excluded."""
    seen: set[str] = set()
    webhooks: Sequence[configuration.Webhook] = obj.webhooks
    for position, webhook in enumerate(webhooks):
        path = _WEBHOOKS.index(position)
        if webhook.name in seen:
            yield duplicate(path.child("name"), webhook.name)
        seen.add(webhook.name)
        yield from _validate_webhook(webhook, path)


def _validate_webhook(webhook: configuration.Webhook, path: FieldPath) -> FieldErrors:
    yield from _validate_webhook_name(webhook.name, path.child("name"))
    yield from _validate_client_config(webhook.client_config, path.child("clientConfig"))
    for position, rule in enumerate(webhook.rules):
        yield from _validate_rule(rule, path.child("rules").index(position))
    for field, value, supported in (
        ("failurePolicy", webhook.failure_policy, (configuration.FAIL, configuration.IGNORE)),
        ("matchPolicy", webhook.match_policy, (configuration.EXACT, configuration.EQUIVALENT)),
        ("sideEffects", webhook.side_effects, (configuration.NO_EFFECTS, configuration.NONE_ON_DRY_RUN)),
    ):
        if value is None:
            yield required(path.child(field))
        elif value not in supported:
            yield not_supported(path.child(field), value, supported)
    if isinstance(webhook, MutatingWebhook):
        policies = (configuration.NEVER, configuration.IF_NEEDED)
        yield from validate_one_of(
            webhook.reinvocation_policy or "", policies, path.child("reinvocationPolicy")
        )
    seconds = webhook.timeout_seconds
    if seconds is not None and not 1 <= seconds <= limits.WEBHOOK_SECONDS:
        expected = f"the timeout value must be between 1 and {limits.WEBHOOK_SECONDS} seconds"
        yield invalid(path.child("timeoutSeconds"), seconds, expected)
    yield from _validate_review_versions(
        webhook.admission_review_versions, path.child("admissionReviewVersions")
    )
    yield from _validate_label_selector(webhook.namespace_selector, path.child("namespaceSelector"))
    yield from _validate_label_selector(webhook.object_selector, path.child("objectSelector"))
    yield from _validate_conditions(webhook.match_conditions, path.child("matchConditions"))


def _validate_webhook_name(name: str, path: FieldPath) -> FieldErrors:
    yield from validate_name(name, check_dns_subdomain, path)
    if name and not check_dns_subdomain(name) and name.count(".") < _MIN_SEGMENTS - 1:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _validate_review_versions(versions: Sequence[str], path: FieldPath) -> FieldErrors:
    if not versions:
        yield required(path, f"must include {configuration.REVIEW_VERSION}")
    elif configuration.REVIEW_VERSION not in versions:
        yield invalid(path, list(versions), f"must include {configuration.REVIEW_VERSION}")
    for position, version in enumerate(versions):
        yield from report_name_faults(check_dns_label(version), path.index(position))
        if version in versions[:position]:
            yield invalid(path.index(position), version, "is a duplicate")


# --- the address ---


def _validate_client_config(client: WebhookClientConfig, path: FieldPath) -> FieldErrors:
    if (client.url is None) == (client.service is None):
        yield required(path, "exactly one of url or service is required")
    if client.url is not None:
        yield from _validate_url(client.url, path.child("url"))
    if client.service is not None:
        yield from _validate_service(client.service, path.child("service"))
    try:
        base64.b64decode(client.ca_bundle, validate=True)
    except (binascii.Error, ValueError):
        yield invalid(path.child("caBundle"), OMITTED, "must be certificates in PEM, encoded as base64")


def _validate_url(url: str, path: FieldPath) -> FieldErrors:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as broken:
        yield invalid(path, OMITTED, f"url must be a valid URL: {broken}")
        return
    # The URL may contain a password or a token, which must not reach a log.
    shown = OMITTED if "@" in parts.netloc or parts.query else url
    for is_wrong, expected in (
        (
            parts.scheme != "https",
            "'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (not host or port == 0, "host must be specified; desired format: https://host[/path]"),
        ("@" in parts.netloc, "user information is not permitted in the URL"),
        (bool(parts.fragment), "fragments are not permitted in the URL"),
        (bool(parts.query), "query parameters are not permitted in the URL"),
    ):
        if is_wrong:
            yield invalid(path, shown, expected)


def _validate_service(service: ServiceReference, path: FieldPath) -> FieldErrors:
    for field, name in (("namespace", service.namespace), ("name", service.name)):
        if not name:
            yield required(path.child(field))
    if service.port is not None and not 1 <= service.port <= limits.MAX_PORT:
        expected = f"must be between 1 and {limits.MAX_PORT}, inclusive"
        yield invalid(path.child("port"), service.port, expected)
    if service.path is not None and not service.path.startswith("/"):
        yield invalid(path.child("path"), service.path, "must start with a '/'")


# --- rules and conditions ---


def _validate_rule(rule: RuleWithOperations, path: FieldPath) -> FieldErrors:
    for field, values in (
        ("operations", rule.operations),
        ("apiGroups", rule.api_groups),
        ("apiVersions", rule.api_versions),
        ("resources", rule.resources),
    ):
        yield from _validate_value_list(
            values,
            path.child(field),
            wildcard_alone=field != "resources",
            allow_empty=field in ("apiGroups", "operations"),
        )
    for position, operation in enumerate(rule.operations):
        if operation not in _OPERATIONS:
            yield not_supported(path.child("operations").index(position), operation, _OPERATIONS)
    yield from _validate_resources(rule.resources, path.child("resources"))
    scopes = (configuration.CLUSTER, configuration.NAMESPACED, configuration.ALL)
    if rule.scope is not None and rule.scope not in scopes:
        yield not_supported(path.child("scope"), rule.scope, scopes)


def _validate_value_list(
    values: Sequence[str], path: FieldPath, *, wildcard_alone: bool, allow_empty: bool
) -> FieldErrors:
    if not values:
        yield required(path)
    if wildcard_alone and len(values) > 1 and configuration.ALL in values:
        yield invalid(path, list(values), "if '*' is present, must not specify other values")
    for position, value in enumerate(values):
        if not value and not allow_empty:
            yield required(path.index(position))


def _validate_resources(resources: Sequence[str], path: FieldPath) -> FieldErrors:
    """Check for entries that another entry includes; they are mistakes, and mostly hide another one."""
    if "*/*" in resources and len(resources) > 1:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
        return
    plain = [entry for entry in resources if "/" not in entry]
    if configuration.ALL in plain and len(plain) > 1:
        expected = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), expected)
    for position, entry in enumerate(resources):
        resource, _, subresource = entry.partition("/")
        earlier = resources[:position]
        others = {
            (*other.partition("/"),)[0::2]
            for other in (*earlier, *resources[position + 1 :])
            if "/" in other and (other != entry or other in earlier)
        }
        if subresource and (resource, configuration.ALL) in others:
            yield invalid(
                path.index(position), entry, f"if '{resource}/*' is present, must not specify {entry}"
            )
        elif subresource and resource != configuration.ALL and (configuration.ALL, subresource) in others:
            what = f"if '*/{subresource}' is present, must not specify {entry}"
            yield invalid(path.index(position), entry, what)


def _validate_conditions(conditions: Sequence[MatchCondition], path: FieldPath) -> FieldErrors:
    yield from validate_each(conditions, limits.MATCH_CONDITIONS, _validate_condition, path)
    names = [condition.name for condition in conditions]
    for position, name in enumerate(names):
        if name in names[:position]:
            yield duplicate(path.index(position).child("name"), name)


def _validate_condition(condition: MatchCondition, path: FieldPath) -> FieldErrors:
    yield from validate_name(condition.name, check_qualified_name, path.child("name"))
    place, text = path.child("expression"), condition.expression
    if not text.strip():
        yield required(place)
    elif count_bytes(text) > limits.EXPRESSION_BYTES:
        yield too_long(place, limits.EXPRESSION_BYTES)
    elif isinstance(why := compile_condition(text), str):
        yield invalid(place, text, why)


def _validate_label_selector(selector: LabelSelector | None, path: FieldPath) -> FieldErrors:
    if selector is None:
        return
    yield from validate_label_selector(msgspec.json.decode(msgspec.json.encode(selector)), path)
