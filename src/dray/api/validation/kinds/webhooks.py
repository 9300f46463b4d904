"""Rules of webhook configurations: a webhook that can be reached and asked, about something that is named."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

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
from dray.api.admission import webhook_configuration as words
from dray.api.admission.match_conditions import compiled
from dray.api.fields import ROOT, Path, duplicate, invalid, not_supported, required, too_long
from dray.api.validation import limits
from dray.api.validation.field_rules import OMITTED, Errors, each, named, one_of, size
from dray.values import label_selectors
from dray.values.names import dns_subdomain, qualified_name

_OPERATIONS: Final = (words.CREATE, words.UPDATE, words.DELETE, words.CONNECT, words.ALL)
_WEBHOOKS = ROOT.field("webhooks")
_LEAST_SEGMENTS: Final = 3


def webhook_configuration(obj: ValidatingWebhookConfiguration | MutatingWebhookConfiguration) -> Errors:
    """What holds of a configuration besides its metadata."""
    seen: set[str] = set()
    webhooks: Sequence[words.Webhook] = obj.webhooks
    for position, webhook in enumerate(webhooks):
        path = _WEBHOOKS.index(position)
        if webhook.name in seen:
            yield duplicate(path.field("name"), webhook.name)
        seen.add(webhook.name)
        yield from _webhook(webhook, path)


def _webhook(webhook: words.Webhook, path: Path) -> Errors:
    yield from _name(webhook.name, path.field("name"))
    yield from _client(webhook.client_config, path.field("clientConfig"))
    for position, rule in enumerate(webhook.rules):
        yield from _rule(rule, path.field("rules").index(position))
    for field, value, supported in (
        ("failurePolicy", webhook.failure_policy, (words.FAIL, words.IGNORE)),
        ("matchPolicy", webhook.match_policy, (words.EXACT, words.EQUIVALENT)),
        ("sideEffects", webhook.side_effects, (words.NO_EFFECTS, words.NONE_ON_DRY_RUN)),
    ):
        yield from one_of(value or "", supported, path.field(field))
    if isinstance(webhook, MutatingWebhook):
        policies = (words.NEVER, words.IF_NEEDED)
        yield from one_of(webhook.reinvocation_policy or "", policies, path.field("reinvocationPolicy"))
    seconds = webhook.timeout_seconds
    if seconds is not None and not 1 <= seconds <= limits.WEBHOOK_SECONDS:
        expected = f"the timeout value must be between 1 and {limits.WEBHOOK_SECONDS} seconds"
        yield invalid(path.field("timeoutSeconds"), seconds, expected)
    yield from _versions(webhook.admission_review_versions, path.field("admissionReviewVersions"))
    yield from _selector(webhook.namespace_selector, path.field("namespaceSelector"))
    yield from _selector(webhook.object_selector, path.field("objectSelector"))
    yield from _conditions(webhook.match_conditions, path.field("matchConditions"))


def _name(name: str, path: Path) -> Errors:
    yield from named(name, dns_subdomain, path)
    if name and not dns_subdomain(name) and name.count(".") < _LEAST_SEGMENTS - 1:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _versions(versions: Sequence[str], path: Path) -> Errors:
    if not versions:
        yield required(path, f"must include {words.REVIEW_VERSION}")
    elif words.REVIEW_VERSION not in versions:
        yield invalid(path, list(versions), f"must include {words.REVIEW_VERSION}")
    for position, version in enumerate(versions):
        if version in versions[:position]:
            yield duplicate(path.index(position), version)


# --- where it is ---


def _client(client: WebhookClientConfig, path: Path) -> Errors:
    if (client.url is None) == (client.service is None):
        yield required(path, "exactly one of url or service is required")
    if client.url is not None:
        yield from _url(client.url, path.field("url"))
    if client.service is not None:
        yield from _service(client.service, path.field("service"))
    try:
        base64.b64decode(client.ca_bundle, validate=True)
    except (binascii.Error, ValueError):
        yield invalid(path.field("caBundle"), OMITTED, "must be certificates in PEM, encoded as base64")


def _url(url: str, path: Path) -> Errors:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as broken:
        yield invalid(path, OMITTED, f"url must be a valid URL: {broken}")
        return
    # Whoever wrote a password or a token into it does not want to read it in a log.
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


def _service(service: ServiceReference, path: Path) -> Errors:
    yield from named(service.namespace, dns_subdomain, path.field("namespace"))
    yield from named(service.name, dns_subdomain, path.field("name"))
    if service.port is not None and not 1 <= service.port <= limits.LARGEST_PORT:
        expected = f"must be between 1 and {limits.LARGEST_PORT}, inclusive"
        yield invalid(path.field("port"), service.port, expected)
    if service.path is not None and not service.path.startswith("/"):
        yield invalid(path.field("path"), service.path, "must start with a '/'")


# --- what it is asked about ---


def _rule(rule: RuleWithOperations, path: Path) -> Errors:
    for field, values in (
        ("operations", rule.operations),
        ("apiGroups", rule.api_groups),
        ("apiVersions", rule.api_versions),
        ("resources", rule.resources),
    ):
        yield from _listed(values, path.field(field), alone=field != "resources", empty=field == "apiGroups")
    for position, operation in enumerate(rule.operations):
        if operation and operation not in _OPERATIONS:
            yield not_supported(path.field("operations").index(position), operation, _OPERATIONS)
    yield from _resources(rule.resources, path.field("resources"))
    scopes = (words.CLUSTER, words.NAMESPACED, words.ALL)
    if rule.scope is not None and rule.scope not in scopes:
        yield not_supported(path.field("scope"), rule.scope, scopes)


def _listed(values: Sequence[str], path: Path, *, alone: bool, empty: bool) -> Errors:
    if not values:
        yield required(path)
    if alone and len(values) > 1 and words.ALL in values:
        yield invalid(path, list(values), "if '*' is present, must not specify other values")
    for position, value in enumerate(values):
        if not value and not empty:
            yield required(path.index(position))


def _resources(resources: Sequence[str], path: Path) -> Errors:
    """What another entry already says is a mistake, mostly one that hides another."""
    if "*/*" in resources and len(resources) > 1:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
        return
    plain = [entry for entry in resources if "/" not in entry]
    if words.ALL in plain and len(plain) > 1:
        expected = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), expected)
    for position, entry in enumerate(resources):
        resource, _, subresource = entry.partition("/")
        others = {(*other.partition("/"),)[0::2] for other in resources if other != entry and "/" in other}
        if subresource and subresource != words.ALL and (resource, words.ALL) in others:
            yield invalid(
                path.index(position), entry, f"if '{resource}/*' is present, must not specify {entry}"
            )
        elif subresource and resource != words.ALL and (words.ALL, subresource) in others:
            what = f"if '*/{subresource}' is present, must not specify {entry}"
            yield invalid(path.index(position), entry, what)


def _conditions(conditions: Sequence[MatchCondition], path: Path) -> Errors:
    yield from each(conditions, limits.MATCH_CONDITIONS, _condition, path)
    names = [condition.name for condition in conditions]
    for position, name in enumerate(names):
        if name in names[:position]:
            yield duplicate(path.index(position).field("name"), name)


def _condition(condition: MatchCondition, path: Path) -> Errors:
    yield from named(condition.name, qualified_name, path.field("name"))
    place, text = path.field("expression"), condition.expression
    if not text.strip():
        yield required(place)
    elif size(text) > limits.EXPRESSION_BYTES:
        yield too_long(place, limits.EXPRESSION_BYTES)
    elif isinstance(why := compiled(text), str):
        yield invalid(place, text, why)


def _selector(selector: LabelSelector | None, path: Path) -> Errors:
    if selector is None:
        return
    try:
        label_selectors.LabelSelector.read(msgspec.to_builtins(selector))
    except label_selectors.LabelSelectorError as wrong:
        yield invalid(path, msgspec.to_builtins(selector), wrong.reason)
