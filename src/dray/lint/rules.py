"""The table of lint rules: name, severity, description, and a manifest that breaks the rule.

Rules for this file: every finding names a rule of this table; the reference in `docs/` and the tests read the
same rows. Rules of validation (`required`, `invalid` ...) are one row per type of error, because the rules
themselves are those of the API and are documented with its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from dray.api.fields import FieldErrorType


class Severity(StrEnum):
    """The severity of a finding; only errors fail a run by default."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 is the most severe."""
        return _RANKS[self]


_RANKS = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@dataclass(frozen=True, slots=True)
class LintRule:
    """One rule."""

    id: str
    severity: Severity
    about: str
    example: str


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

_READING_RULES = (
    LintRule("unreadable", _E, "a file cannot be opened or is too large", "chmod 000 claim.yaml"),
    LintRule(
        "syntax", _E, "a file is neither YAML nor JSON; nothing after the fault can be read", "requests: [gpu"
    ),
    LintRule(
        "duplicate-key", _E, "a map holds a key twice; readers keep the last value", "count: 1\ncount: 2"
    ),
    LintRule(
        "not-an-object", _E, "a document is no object with `apiVersion` and `kind`", "metadata:\n  name: gpu"
    ),
    LintRule(
        "unknown-kind",
        _E,
        "the group has no such kind, or does not serve it in this version",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaims",
    ),
    LintRule(
        "not-checked",
        _N,
        "an object of a kind that has nothing to do with devices",
        "apiVersion: v1\nkind: ConfigMap",
    ),
    LintRule("wrong-type", _E, "a value has the wrong type", 'count: "2"'),
    LintRule(
        "unknown-field", _E, "the kind has no such field; an API server would drop it", "alocationMode: All"
    ),
    LintRule(
        "gate-off",
        _E,
        "the kind is not served, because its feature gate is off",
        "apiVersion: cdi.k8s.io/v1alpha1  # with --feature-gates DRAControlPlaneController=false",
    ),
    LintRule(
        "field-dropped",
        _W,
        "the field is dropped when the object is stored, because its feature gate is off",
        "firstAvailable: [...]  # with --feature-gates DRAPrioritizedList=false",
    ),
)

_VALIDATION_RULES = (
    LintRule(
        "required", _E, "a field must be set", "requests:\n- exactly: {deviceClassName: gpu}  # no name"
    ),
    LintRule("invalid", _E, "a value breaks a rule of its field", "name: GPU_0"),
    LintRule("not-supported", _E, "a value is none of those the field knows", "allocationMode: Some"),
    LintRule("forbidden", _E, "the field may not be set here", "allocationMode: All\ncount: 2"),
    LintRule(
        "too-long",
        _E,
        "a text is longer than its field allows",
        "driver: a-name-of-more-than-63-characters...",
    ),
    LintRule("too-many", _E, "a list or map holds more than it may", "requests: [...]  # 33 of them"),
    LintRule("duplicate-value", _E, "a list holds a thing twice", "requests:\n- name: gpu\n- name: gpu"),
    LintRule(
        "not-found", _E, "a name refers to nothing in the object", "claims:\n- name: gpu  # no such entry"
    ),
    LintRule("suspicious", _W, "allowed, but hardly what was meant", "count: 1000"),
)

_CROSS_OBJECT_RULES = (
    LintRule("unknown-class", _W, "a class is not among the manifests", "deviceClassName: gpus"),
    LintRule("unknown-claim", _W, "a claim is not among the manifests", "resourceClaimName: gpu"),
    LintRule(
        "unknown-template", _W, "a template is not among the manifests", "resourceClaimTemplateName: gpu"
    ),
    LintRule(
        "unknown-request",
        _E,
        "a container asks for a request that its claim does not have",
        "claims:\n- name: gpu\n  request: nic  # the claim has only `gpu`",
    ),
    LintRule(
        "subrequest-in-pod",
        _E,
        "a container names an alternative; only the request itself can be named in a pod",
        "claims:\n- name: gpu\n  request: gpu/big",
    ),
    LintRule(
        "duplicate-object",
        _W,
        "two objects have the same kind, namespace and name",
        "kind: ResourceClaim  # twice",
    ),
    LintRule(
        "claim-in-both-groups",
        _E,
        "claims of `resource.k8s.io` and `cdi.k8s.io` have the same name; pods could not tell them apart",
        "apiVersion: cdi.k8s.io/v1alpha1\nkind: ResourceClaim",
    ),
    LintRule(
        "slices-disagree",
        _E,
        "slices of one pool and generation contradict each other; the pool cannot be used",
        "resourceSliceCount: 2  # and 3 in another slice",
    ),
    LintRule(
        "device-twice",
        _E,
        "a device is published twice in the newest generation of its pool; it would be handed out twice",
        "devices:\n- name: gpu-0  # also in another slice",
    ),
    LintRule(
        "attribute-type-differs",
        _W,
        "an attribute has different types on different devices of one driver; selectors fail on some of them",
        "index: {string: '0'}  # and {int: 1} on another device",
    ),
    LintRule(
        "pool-incomplete",
        _N,
        "a pool has fewer slices than it should have; it cannot be used until the rest is there",
        "resourceSliceCount: 2  # and only one slice",
    ),
)

_SELECTOR_RULES = (
    LintRule(
        "selector-broken",
        _E,
        "the expression of a selector does not compile; an API server refuses the object",
        'expression: device.attribute["gpu.example.com"].model == "a100"',
    ),
    LintRule(
        "selector-too-costly",
        _E,
        "evaluating the selector could cost more than is allowed; an API server refuses the object",
        'expression: device.attributes["a"].x.all(i, device.attributes["a"].x.all(j, i == j))',
    ),
    LintRule(
        "selector-fails",
        _W,
        "evaluating the selector fails on some devices, and claims that meet them there are not allocated",
        'expression: device.attributes["gpu.example.com"].memory / 0 > 1',
    ),
    LintRule(
        "selector-unguarded",
        _W,
        "the selector reads an attribute or capacity that some devices lack, and fails on them",
        'expression: device.attributes["gpu.example.com"].model == "a100"  # and a network card is published',
    ),
    LintRule(
        "selector-never-true",
        _W,
        "no device of the given slices matches; for a driver without slices here it is only a note",
        'expression: device.attributes["gpu.example.com"].model == "a1OO"  # devices publish `a100`',
    ),
    LintRule(
        "selector-always-true",
        _N,
        "every device that is left matches, so that the selector keeps none out",
        'expression: device.driver == "gpu.example.com"  # and the class says so already',
    ),
    LintRule(
        "selector-wrong-type",
        _W,
        "an attribute is used as another type than devices publish; an error when it fails on all of them",
        'expression: device.attributes["gpu.example.com"].index == "0"  # devices publish `int: 0`',
    ),
    LintRule(
        "unknown-attribute",
        _W,
        "a selector names an attribute or capacity that no device publishes",
        'expression: device.attributes["gpu.example.com"].modle == "a100"',
    ),
    LintRule(
        "selector-not-checked",
        _N,
        "there are too many different devices to try a selector on all of them",
        "a thousand selectors, each about the serial number of a device, and slices with 10,000 devices",
    ),
)

_LEGACY_RULES = (
    LintRule(
        "removed-api",
        _E,
        "an alpha version that Kubernetes no longer serves",
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClass",
    ),
    LintRule(
        "old-claim-source",
        _E,
        "`source` in the claims of a pod is gone since Kubernetes 1.31; its fields moved up",
        "resourceClaims:\n- name: gpu\n  source:\n    resourceClaimName: gpu",
    ),
    LintRule(
        "old-container-claims",
        _N,
        "claims of a container are objects with a name; plain strings are accepted and converted",
        "resources:\n  claims: [gpu]",
    ),
    LintRule(
        "old-inline-template",
        _N,
        "an inline template has a `spec`; its fields without one are accepted and converted",
        "template:\n  resourceClassName: gpu",
    ),
    LintRule(
        "old-classic-fields",
        _E,
        "fields of a classic claim in `resource.k8s.io`",
        "spec:\n  resourceClassName: gpu",
    ),
    LintRule(
        "old-device-basic",
        _E,
        "`basic` around the fields of a device belongs to v1beta1 only",
        "basic: {...}",
    ),
    LintRule(
        "old-flat-request",
        _E,
        "the fields of a request stand under `exactly`, except in v1beta1",
        "requests:\n- name: gpu\n  deviceClassName: gpu",
    ),
    LintRule("new-exactly", _E, "v1beta1 has no `exactly`; its fields stand beside `name`", "exactly: {...}"),
    LintRule(
        "new-flat-device", _E, "the fields of a device stand under `basic` in v1beta1", "attributes: {...}"
    ),
    LintRule(
        "requests-outside-devices",
        _E,
        "requests, constraints and config stand under `devices`",
        "spec:\n  requests: []",
    ),
    LintRule(
        "attribute-list",
        _E,
        "a constraint names one attribute, not a list",
        "matchAttribute:\n- example.com/numa",
    ),
)

RULES: Mapping[str, LintRule] = MappingProxyType(
    {
        rule.id: rule
        for rule in (
            *_READING_RULES,
            *_VALIDATION_RULES,
            *_CROSS_OBJECT_RULES,
            *_SELECTOR_RULES,
            *_LEGACY_RULES,
        )
    }
)

RULE_BY_FAULT: Mapping[FieldErrorType, str] = MappingProxyType(
    {
        FieldErrorType.REQUIRED: "required",
        FieldErrorType.INVALID: "invalid",
        FieldErrorType.NOT_SUPPORTED: "not-supported",
        FieldErrorType.FORBIDDEN: "forbidden",
        FieldErrorType.TOO_LONG: "too-long",
        FieldErrorType.TOO_MANY: "too-many",
        FieldErrorType.DUPLICATE: "duplicate-value",
        FieldErrorType.NOT_FOUND: "not-found",
        FieldErrorType.TYPE_INVALID: "wrong-type",
    }
)
"""The rule a field error is reported under."""
