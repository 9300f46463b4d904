"""The roles that both servers begin with: Kubernetes' components may on `dray server` what they may there."""

from __future__ import annotations

import pytest

from dray.server.auth.authz.bootstrap_roles import build_bootstrap_documents
from dray.server.auth.authz.policy_rules import find_uncovered, read_rules
from tests.e2e.kubectl import Kubectl

COMPONENTS = ("system:controller:", "system:kube-scheduler", "system:kube-controller-manager")
NO_LONGER_SERVED = "extensions"
"""A group that has no resources any more, but still has rules."""


@pytest.fixture(scope="module")
def own_rules() -> dict[str, list[object]]:
    roles = [each for each in build_bootstrap_documents() if each["kind"] == "ClusterRole"]
    return {role["metadata"]["name"]: role["rules"] for role in roles}


def test_every_component_has_at_least_its_rights(
    kubectl: Kubectl, own_rules: dict[str, list[object]]
) -> None:
    roles = {role["metadata"]["name"]: role["rules"] for role in kubectl.get("clusterroles")["items"]}
    components = {name: rules for name, rules in roles.items() if name.startswith(COMPONENTS)}
    assert len(components) > 30
    missing = {
        (name, *sorted(rule.verbs), *sorted(rule.groups), *sorted(rule.resources))
        for name, rules in components.items()
        for rule in find_uncovered(read_rules(rules), read_rules(own_rules.get(name)))
        if NO_LONGER_SERVED not in rule.groups
    }
    assert not missing


def test_the_namespaces_of_the_system_have_the_same_roles(kubectl: Kubectl) -> None:
    own = {
        (role["kind"], role["metadata"]["namespace"], role["metadata"]["name"]): role
        for role in build_bootstrap_documents()
        if "namespace" in role["metadata"]
    }
    theirs = {
        (role["kind"], role["metadata"]["namespace"], role["metadata"]["name"]): role
        for role in kubectl.get("roles,rolebindings", "-A")["items"]
    }
    assert own.keys() == theirs.keys()
    for name, role in theirs.items():
        if "roleRef" in role:
            assert own[name]["subjects"] == role["subjects"]
        else:
            mine, yours = read_rules(own[name]["rules"]), read_rules(role["rules"])
            assert not find_uncovered(mine, yours)
            assert not find_uncovered(yours, mine)
