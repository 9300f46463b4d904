"""What services need is what the manifests in `deploy/` grant and what the server's own roles grant."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dray.cluster.services.permissions import CONTROLLER, NODE, SCHEDULER, SYSTEM, UPKEEP, Rights, Want, wants
from dray.server.auth.authz.bootstrap_roles import ROLES
from dray.server.auth.authz.policy_rules import Asked, PolicyRule, read_rules, rule_of
from tests.outside import ROOT

SERVICES = {"scheduler": SCHEDULER, "controller": CONTROLLER}


def _manifests(service: str) -> dict[str, dict[str, Any]]:
    text = (ROOT / "deploy" / f"{service}.yaml").read_text()
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def _pieces(rules: tuple[PolicyRule, ...], namespace: str = "") -> set[Want]:
    return {
        Want(verb, group, resource, namespace, name)
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
    assert _pieces(read_rules(granted["ClusterRole"]["rules"])) == set(wants(rights.rules))
    assert granted["Role"]["metadata"]["namespace"] == SYSTEM
    assert _pieces(read_rules(granted["Role"]["rules"]), SYSTEM) == set(wants(rights.election, SYSTEM))


def test_the_manifest_of_nodes_grants_exactly_what_is_needed() -> None:
    granted = _manifests("node")
    assert _pieces(read_rules(granted["ClusterRole"]["rules"])) == set(wants(NODE.rules))
    ((namespace, rules),) = NODE.inside
    assert granted["Role"]["metadata"]["namespace"] == namespace
    assert _pieces(read_rules(granted["Role"]["rules"]), namespace) == set(wants(rules, namespace))
    account = {"kind": "ServiceAccount", "name": "dray-node", "namespace": SYSTEM}
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert granted[binding]["subjects"] == [account]
        assert granted[binding]["roleRef"]["kind"] == role


@pytest.mark.parametrize("service", SERVICES)
def test_the_manifests_bind_their_roles_to_the_account_of_the_pods(service: str) -> None:
    granted, name = _manifests(service), f"dray-{service}"
    account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert granted[binding]["subjects"] == [account]
        assert granted[binding]["roleRef"]["kind"] == role
        assert granted[binding]["roleRef"]["name"] == granted[role]["metadata"]["name"] == name
    assert granted["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"] == name
    assert granted["ServiceAccount"]["metadata"] == {"name": name, "namespace": SYSTEM}


@pytest.mark.parametrize(
    ("role", "rights", "more"),
    [
        ("dray:scheduler", SCHEDULER, ()),
        ("system:kube-scheduler", SCHEDULER, ()),
        ("dray:controller", CONTROLLER, UPKEEP),
    ],
)
def test_the_roles_of_the_server_suffice(role: str, rights: Rights, more: tuple[str, ...]) -> None:
    rules = [rule_of(text) for row in ROLES if row.name == role for text in row.rules]
    needed = [*wants((*rights.rules, *more)), *wants(rights.election, SYSTEM)]
    missing = [want for want in needed if not any(rule.allows(_asked(want)) for rule in rules)]
    assert missing == []


def _asked(want: Want) -> Asked:
    resource, _, subresource = want.resource.partition("/")
    return Asked(want.verb, want.group, resource, subresource, want.namespace, want.name)


def test_a_thing_is_named_as_in_rules() -> None:
    (want,) = wants(["patch: resourceclaims.resource.k8s.io/status"])
    assert want.thing == "resourceclaims.resource.k8s.io/status"
    assert [each.thing for each in wants(["create: pods/binding"])] == ["pods/binding"]
