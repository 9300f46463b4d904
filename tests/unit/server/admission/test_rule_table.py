"""The rule table: a rule that is not called for a change would have admitted it without adding anything."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import KINDS, Kind, find_kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.clock import SystemClock
from dray.gates import GateSet
from dray.server.admission.change import (
    ADMITTED,
    AdmissionEffects,
    AdmissionRule,
    ObjectChange,
    RuleScope,
)
from dray.server.admission.rule_table import RuleTable, is_in_scope
from dray.server.app import ApiServer, ApiServerOptions
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import WRITE_VERBS, RequestUser
from dray.store.memory import MemoryStore
from dray.telemetry.logs import build_silent_logger
from tests.unit.server.auth.cluster_state import change_of, node, person

DEVICES, RBAC = "resource.k8s.io", "rbac.authorization.k8s.io"
Document = dict[str, Any]

_RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
_ADMIN = {
    "name": "gpu",
    "exactly": {"deviceClassName": "gpu", "allocationMode": "All", "adminAccess": True},
}
REVIEWED: Mapping[tuple[str, str], tuple[Document, Document]] = {
    ("", "Namespace"): ({}, {"status": {"phase": "Terminating"}}),
    ("", "Pod"): (
        {"spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]}},
        {"spec": {"nodeName": "b", "containers": [{"name": "c", "image": "i"}]}},
    ),
    ("", "ResourceQuota"): ({"spec": {"hard": {"pods": "1"}}}, {"spec": {"hard": {"pods": "2"}}}),
    (RBAC, "ClusterRole"): ({}, {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    (RBAC, "RoleBinding"): (
        {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"}},
        {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}},
    ),
    (DEVICES, "ResourceClaim"): (
        {"spec": {"devices": {"requests": [_ADMIN]}}},
        {
            "spec": {"devices": {"requests": [_ADMIN]}},
            "status": {"allocation": {"devices": {"results": [_RESULT]}}},
        },
    ),
    (DEVICES, "ResourceSlice"): (
        {"spec": {"driver": "a.example.com", "pool": {"name": "p"}, "nodeName": "a", "devices": []}},
        {"spec": {"driver": "b.example.com", "pool": {"name": "p"}, "nodeName": "b", "devices": []}},
    ),
    (DEVICES, "DeviceTaintRule"): (
        {"spec": {"taint": {"key": "k", "effect": "NoExecute"}}},
        {"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}},
    ),
}
"""States of kinds between which a rule sees a difference; other kinds have none."""

USERS = (person("nobody"), node("node-a"), RequestUser("root", ("system:masters",)))


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Sequence[AdmissionRule]:
    """All rules of a server, with a limit on objects."""
    folder: Path = tmp_path_factory.mktemp("rules")
    options = ApiServerOptions(
        FeatureGateFilter(GateSet.from_defaults()),
        folder,
        folder / "audit.log",
        build_silent_logger(),
        limits=ServerLimits(max_objects_per_namespace=1),
        clock=SystemClock(),
    )
    server = ApiServer(MemoryStore(), options)
    return server._build_admission_rules(UnionAuthorizer(server.cache))


def build_documents(kind: Kind) -> tuple[Document, Document]:
    metadata: Document = {"name": "default", "finalizers": ["resource.kubernetes.io/delete-protection"]}
    if kind.namespaced:
        metadata["namespace"] = "default"
    header = {"apiVersion": kind.internal_api_version, "kind": kind.name}
    first, second = REVIEWED.get((kind.group, kind.name), ({}, {}))
    changed = {**metadata, "finalizers": [], "annotations": {"dray.dev/driver": "gpu.example.com"}}
    return {**header, "metadata": metadata, **first}, {**header, "metadata": changed, **second}


def list_changes(kind: Kind) -> Iterator[ObjectChange]:
    """Every operation on an object of a kind, by every verb, subresource and sort of user."""
    first, second = build_documents(kind)
    operations = ((None, first), (first, second), (first, None))
    subresources = ("", *kind.subresources, "eviction")
    for (old, new), user, verb, subresource in itertools.product(
        operations, USERS, sorted(WRITE_VERBS), subresources
    ):
        yield change_of(user, old, new, subresource, verb)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
def test_a_rule_out_of_its_scope_admits_without_adding_anything(kind, rules):
    reviewing = [rule for rule in rules if any(kind in scope.kinds for scope in rule.scopes)]
    for change in list_changes(kind):
        for rule in reviewing:
            if not is_in_scope(rule, change):
                assert rule.admit(change) == ADMITTED, (type(rule), change.operation, change.request.call)


def test_every_rule_is_found_for_some_change(rules):
    table = RuleTable(rules)
    found = {rule for kind in KINDS for change in list_changes(kind) for rule in table.find(change)}
    assert found == set(rules)


def test_few_rules_review_what_a_cluster_writes_most(rules):
    table = RuleTable(rules)
    pod = find_kind("", "Pod")
    assert pod is not None
    first, second = build_documents(pod)
    names = [
        [type(rule).__name__ for rule in table.find(change_of(person("p"), old, new, subresource, verb))]
        for old, new, subresource, verb in (
            (None, first, "", "create"),
            (first, second, "status", "patch"),
            (first, second, "binding", "create"),
        )
    ]
    assert names == [
        [
            "NamespaceLifecycle",
            "LimitRangeAdmission",
            "ObjectCountLimit",
            "NodeRestrictionRule",
            "ResourceQuotaAdmission",
        ],
        ["NodeRestrictionRule", "ResourceQuotaAdmission"],
        ["NodeRestrictionRule", "ResourceQuotaAdmission"],
    ]


class Named:
    """A rule with a name."""

    def __init__(self, name: str, *scopes: RuleScope) -> None:
        self.name, self.scopes = name, scopes

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        return AdmissionEffects(warnings=(self.name,))


def test_rules_are_found_in_their_order_whichever_sort_of_change_came_first():
    kinds = tuple(kind for kind in KINDS if kind.group == DEVICES)
    table = RuleTable(
        (
            Named("updates", RuleScope(kinds, ("update",))),
            Named("all", RuleScope(kinds)),
            Named("status", RuleScope(kinds, subresources=("status",))),
            Named("patches or creates", RuleScope(kinds, verbs=("patch",)), RuleScope(kinds, ("create",))),
            Named("others", RuleScope(())),
        )
    )
    first, second = build_documents(kinds[0])
    changes = {
        "create": change_of(USERS[0], None, first),
        "update": change_of(USERS[0], first, second),
        "status": change_of(USERS[0], first, second, "status", "patch"),
        "delete": change_of(USERS[0], first, None),
    }
    expected = {
        "create": ["all", "patches or creates"],
        "update": ["updates", "all"],
        "status": ["updates", "all", "status", "patches or creates"],
        "delete": ["all"],
    }
    for _ in range(2):
        for sort, change in changes.items():
            found = [warning for rule in table.find(change) for warning in rule.admit(change).warnings]
            assert found == expected[sort]
