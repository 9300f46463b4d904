"""The permissions that services need are those that `deploy/` and the server's own roles grant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from dray.cluster.services.permissions import (
    CONTROLLER_PERMISSIONS,
    GUARD_PERMISSIONS,
    GUARD_SECRET_RULES,
    GUARD_TLS_RULES,
    LEASE_NAMESPACE,
    NODE_PERMISSIONS,
    SCHEDULER_PERMISSIONS,
    UPKEEP_RULES,
    RequiredAccess,
    ServicePermissions,
    expand_rules,
)
from dray.server.auth.authz.bootstrap_roles import BOOTSTRAP_ROLES
from dray.server.auth.authz.policy_rules import AccessAttributes, PolicyRule, parse_rule, read_rules
from tests.outside import ROOT

SERVICES = {
    "scheduler": SCHEDULER_PERMISSIONS,
    "controller": CONTROLLER_PERMISSIONS,
    "guard": replace(
        GUARD_PERMISSIONS,
        rules=GUARD_PERMISSIONS.rules + GUARD_TLS_RULES,
        namespaced_rules=((LEASE_NAMESPACE, GUARD_SECRET_RULES),),
    ),
}


def _manifests(service: str) -> dict[str, dict[str, Any]]:
    text = (ROOT / "deploy" / f"{service}.yaml").read_text()
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def _pieces(rules: tuple[PolicyRule, ...], namespace: str = "") -> set[RequiredAccess]:
    return {
        RequiredAccess(verb, group, resource, namespace, name)
        for rule in rules
        for verb in rule.verbs
        for group in rule.groups
        for resource in rule.resources
        for name in rule.names or ("",)
    }


@pytest.mark.req("K3063-105")
@pytest.mark.parametrize("service", SERVICES)
def test_the_manifests_grant_exactly_what_is_needed(service: str) -> None:
    rights, granted = SERVICES[service], _manifests(service)
    assert _pieces(read_rules(granted["ClusterRole"]["rules"])) == set(
        expand_rules((*rights.rules, *rights.optional_rules))
    )
    assert granted["Role"]["metadata"]["namespace"] == LEASE_NAMESPACE
    namespaced = (*rights.election_rules, *dict(rights.namespaced_rules).get(LEASE_NAMESPACE, ()))
    assert _pieces(read_rules(granted["Role"]["rules"]), LEASE_NAMESPACE) == set(
        expand_rules(namespaced, LEASE_NAMESPACE)
    )


def test_the_manifest_of_nodes_grants_exactly_what_is_needed() -> None:
    granted = _manifests("node")
    needed = (*NODE_PERMISSIONS.rules, *NODE_PERMISSIONS.optional_rules)
    assert _pieces(read_rules(granted["ClusterRole"]["rules"])) == set(expand_rules(needed))
    ((namespace, rules),) = NODE_PERMISSIONS.namespaced_rules
    assert granted["Role"]["metadata"]["namespace"] == namespace
    assert _pieces(read_rules(granted["Role"]["rules"]), namespace) == set(expand_rules(rules, namespace))
    account = {"kind": "ServiceAccount", "name": "dray-node", "namespace": LEASE_NAMESPACE}
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert granted[binding]["subjects"] == [account]
        assert granted[binding]["roleRef"]["kind"] == role


@pytest.mark.parametrize("service", SERVICES)
def test_the_manifests_bind_their_roles_to_the_account_of_the_pods(service: str) -> None:
    granted, name = _manifests(service), f"dray-{service}"
    account = {"kind": "ServiceAccount", "name": name, "namespace": LEASE_NAMESPACE}
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert granted[binding]["subjects"] == [account]
        assert granted[binding]["roleRef"]["kind"] == role
        assert granted[binding]["roleRef"]["name"] == granted[role]["metadata"]["name"] == name
    assert granted["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"] == name
    assert granted["ServiceAccount"]["metadata"] == {"name": name, "namespace": LEASE_NAMESPACE}


@pytest.mark.parametrize(
    ("role", "rights", "more"),
    [
        ("dray:scheduler", SCHEDULER_PERMISSIONS, ()),
        ("system:kube-scheduler", SCHEDULER_PERMISSIONS, ()),
        ("dray:controller", CONTROLLER_PERMISSIONS, UPKEEP_RULES),
    ],
)
def test_the_roles_of_the_server_suffice(
    role: str, rights: ServicePermissions, more: tuple[str, ...]
) -> None:
    rules = [parse_rule(text) for row in BOOTSTRAP_ROLES if row.name == role for text in row.rules]
    needed = [*expand_rules((*rights.rules, *more)), *expand_rules(rights.election_rules, LEASE_NAMESPACE)]
    missing = [want for want in needed if not any(rule.allows(_asked(want)) for rule in rules)]
    assert missing == []


def _asked(want: RequiredAccess) -> AccessAttributes:
    resource, _, subresource = want.resource.partition("/")
    return AccessAttributes(want.verb, want.group, resource, subresource, want.namespace, want.name)


def test_a_thing_is_named_as_in_rules() -> None:
    (want,) = expand_rules(["patch: resourceclaims.resource.k8s.io/status"])
    assert want.resource_name == "resourceclaims.resource.k8s.io/status"
    assert [each.resource_name for each in expand_rules(["create: pods/binding"])] == ["pods/binding"]
