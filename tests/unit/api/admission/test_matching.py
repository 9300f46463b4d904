"""Which requests a webhook is called for, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.admission import LabelSelector, LabelSelectorRequirement, RuleWithOperations, ValidatingWebhook
from dray.api.admission.matching import (
    EXEMPT_RESOURCES,
    AdmissionLabels,
    AdmissionTarget,
    find_called_version,
    matches_selectors,
)

ALL = ("v1", "v1beta2", "v1beta1")
CLAIMS = AdmissionTarget("CREATE", "resource.k8s.io", "v1", "resourceclaims", versions=ALL)
OLD_CLAIMS = AdmissionTarget("CREATE", "resource.k8s.io", "v1beta1", "resourceclaims", versions=ALL)
STATUS = AdmissionTarget("UPDATE", "resource.k8s.io", "v1", "resourceclaims", "status", versions=ALL)
PODS = AdmissionTarget("DELETE", "", "v1", "pods", versions=("v1",))
BINDING = AdmissionTarget("CREATE", "", "v1", "pods", "binding", versions=("v1",))
NAMESPACES = AdmissionTarget("UPDATE", "", "v1", "namespaces", namespaced=False, versions=("v1",))


def rule(
    operations: str = "*", groups: str = "*", versions: str = "*", resources: str = "*", scope: str = ""
) -> RuleWithOperations:
    parts = [tuple(text.split(",")) for text in (operations, groups, versions, resources)]
    return RuleWithOperations(
        operations=parts[0],
        api_groups=parts[1],
        api_versions=parts[2],
        resources=parts[3],
        scope=scope or None,
    )


DEVICES = "resource.k8s.io"


@pytest.mark.parametrize(
    ("rules", "target", "version"),
    [
        ([], CLAIMS, None),
        ([rule()], CLAIMS, "v1"),
        ([rule()], OLD_CLAIMS, "v1beta1"),
        ([rule("CREATE,UPDATE", DEVICES, "v1", "resourceclaims")], CLAIMS, "v1"),
        ([rule("UPDATE,DELETE", DEVICES, "v1", "resourceclaims")], CLAIMS, None),
        ([rule("*", "apps,cdi.k8s.io", "v1", "resourceclaims")], CLAIMS, None),
        ([rule("*", DEVICES, "v1", "deviceclasses,resourceclaims")], CLAIMS, "v1"),
        ([rule("*", DEVICES, "v1", "deviceclasses")], CLAIMS, None),
        # the core group is the empty one
        ([rule("DELETE", "", "v1", "pods")], PODS, "v1"),
        ([rule("DELETE", DEVICES, "v1", "pods")], PODS, None),
        # another version of the same objects
        ([rule("*", DEVICES, "v1", "*")], OLD_CLAIMS, "v1"),
        ([rule("*", DEVICES, "v1beta2", "*")], OLD_CLAIMS, "v1beta2"),
        ([rule("*", DEVICES, "v1alpha3", "*")], OLD_CLAIMS, None),
        # the version of the request comes before others, whatever the order of rules
        ([rule("*", DEVICES, "v1"), rule("*", DEVICES, "v1beta1")], OLD_CLAIMS, "v1beta1"),
        # subresources
        ([rule(resources="*")], STATUS, None),
        ([rule(resources="resourceclaims")], STATUS, None),
        ([rule(resources="resourceclaims/status")], STATUS, "v1"),
        ([rule(resources="resourceclaims/status")], CLAIMS, None),
        ([rule(resources="resourceclaims/*")], STATUS, "v1"),
        ([rule(resources="resourceclaims/*")], CLAIMS, "v1"),
        ([rule(resources="*/status")], STATUS, "v1"),
        ([rule(resources="*/status")], BINDING, None),
        ([rule(resources="pods/binding")], BINDING, "v1"),
        ([rule(resources="*/*")], STATUS, "v1"),
        ([rule(resources="*/*")], CLAIMS, "v1"),
        # scope
        ([rule(scope="Namespaced")], CLAIMS, "v1"),
        ([rule(scope="Cluster")], CLAIMS, None),
        ([rule(scope="Cluster")], NAMESPACES, "v1"),
        ([rule(scope="Namespaced")], NAMESPACES, None),
        ([rule(scope="*")], NAMESPACES, "v1"),
        # one rule is enough
        ([rule("DELETE"), rule("CREATE")], CLAIMS, "v1"),
    ],
)
def test_a_rule_names_a_request(rules, target, version):
    assert find_called_version(ValidatingWebhook(rules=tuple(rules)), target) == version


def test_a_webhook_with_exact_matching_is_not_called_in_other_versions():
    webhook = ValidatingWebhook(rules=(rule("*", DEVICES, "v1", "*"),), match_policy="Exact")
    assert find_called_version(webhook, OLD_CLAIMS) is None
    assert find_called_version(webhook, CLAIMS) == "v1"


@pytest.mark.parametrize("resource", sorted(EXEMPT_RESOURCES))
def test_no_webhook_is_called_for_webhook_configurations(resource):
    everything = ValidatingWebhook(rules=(rule(resources="*/*"),))
    target = AdmissionTarget("DELETE", "admissionregistration.k8s.io", "v1", resource, namespaced=False)
    assert find_called_version(everything, target) is None
    elsewhere = AdmissionTarget("DELETE", "example.com", "v1", resource, namespaced=False)
    assert find_called_version(everything, elsewhere) == "v1"


def selector(**wanted: Any) -> LabelSelector:
    return LabelSelector(match_labels=wanted)


NOT_OURS = LabelSelector(
    match_expressions=(LabelSelectorRequirement(key="team", operator="NotIn", values=("ours",)),)
)


@pytest.mark.parametrize(
    ("namespaces", "objects", "labelled", "taken"),
    [
        (None, None, AdmissionLabels({}, ({},)), True),
        (LabelSelector(), LabelSelector(), AdmissionLabels({}, ()), True),
        (selector(team="a"), None, AdmissionLabels({"team": "a"}, ({},)), True),
        (selector(team="a"), None, AdmissionLabels({"team": "b"}, ({},)), False),
        (selector(team="a"), None, AdmissionLabels({}, ({},)), False),
        # outside of all namespaces, the selector of namespaces says nothing
        (selector(team="a"), None, AdmissionLabels(None, ({},)), True),
        (None, selector(app="x"), AdmissionLabels({}, ({"app": "x"},)), True),
        (None, selector(app="x"), AdmissionLabels({}, ({},)), False),
        # either the object as it was or as it would be
        (None, selector(app="x"), AdmissionLabels({}, ({}, {"app": "x"})), True),
        (None, selector(app="x"), AdmissionLabels({}, ({"app": "x"}, {})), True),
        # what can have no labels is not selected by them
        (None, selector(app="x"), AdmissionLabels({}, ()), False),
        (NOT_OURS, None, AdmissionLabels({"team": "ours"}, ({},)), False),
        (NOT_OURS, None, AdmissionLabels({}, ({},)), True),
        (selector(team="a"), selector(app="x"), AdmissionLabels({"team": "a"}, ({"app": "y"},)), False),
    ],
)
def test_selectors_take_namespaces_and_objects(namespaces, objects, labelled, taken):
    webhook = ValidatingWebhook(namespace_selector=namespaces, object_selector=objects)
    assert matches_selectors(webhook, labelled) is taken
