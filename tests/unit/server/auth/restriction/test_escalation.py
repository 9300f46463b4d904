"""Nobody grants rights they do not have, and impersonation requires a right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dray.server.auth.authz.impersonation import impersonate
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import RequestUser
from tests.unit.server.auth.cluster_state import AccessChecks, ClusterState, grant, person, role, rule, thing

BOSS, ADA, ED, STRANGER = person("boss"), person("ada"), person("ed"), person("stranger")
RBAC = "rbac.authorization.k8s.io"

GIVER = role(
    "giver",
    rule("create update patch", "roles clusterroles rolebindings clusterrolebindings", RBAC),
    rule("get list", "pods"),
)
BINDER = role("binder", rule("bind", "clusterroles", RBAC, "view"), rule("escalate", "roles", RBAC, "chosen"))


@pytest.fixture(scope="module")
def checks() -> Iterator[AccessChecks]:
    grants = [
        grant("cluster-admin", "boss"),
        grant("admin", "ada", namespace="a"),
        grant("giver", "ed"),
        grant("binder", "ed"),
    ]
    with ClusterState([GIVER, BINDER, *grants]) as world:
        yield AccessChecks(world)


def local(*rules: dict[str, Any], name: str = "r", namespace: str = "a") -> dict[str, Any]:
    return role(name, *rules, namespace=namespace)


AGGREGATED = role("r", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})


@pytest.mark.parametrize(
    ("user", "old", "new", "yes"),
    [
        (ED, None, role("r", rule("get", "pods")), True),
        (ED, None, role("r", rule("get delete", "pods")), False),
        (ED, None, role("r", rule("*", "pods")), False),
        (ED, None, role("r", rule("get", "pods/status")), False),
        (ED, None, role("r", rule("get", "*")), False),
        (ED, None, role("r", rule("get", "pods", "", "one")), True),
        (ED, role("r", rule("get", "pods")), role("r", rule("get", "secrets")), False),
        (ED, role("r", rule("get", "secrets")), role("r", rule("get", "secrets"), labels={"a": "b"}), True),
        (ED, role("r", rule("get", "secrets")), role("r"), True),
        (ED, None, role("r", {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}), False),
        (ED, None, AGGREGATED, False),
        (ED, AGGREGATED, AGGREGATED | {"rules": []}, True),
        (ED, None, local(rule("delete", "secrets"), name="chosen"), True),
        (ED, None, local(rule("delete", "secrets"), name="other"), False),
        (ADA, None, local(rule("delete", "pods")), True),
        (ADA, None, local(rule("delete", "pods"), namespace="b"), False),
        (ADA, None, local(rule("create", "resourceslices", "resource.k8s.io")), False),
        (ADA, None, local(rule("update", "resourceclaims/binding", "resource.k8s.io")), False),
        (BOSS, None, role("r", rule("*", "*", "*")), True),
        (BOSS, None, AGGREGATED, True),
        (STRANGER, None, role("r", rule("get", "pods")), False),
        (RequestUser("m", ("system:masters",)), None, AGGREGATED, True),
    ],
)
def test_writing_a_role_requires_the_rights_in_it(checks, user, old, new, yes):
    failure = checks.refuses(user, old, new)
    assert (failure is None) is yes
    if failure is not None:
        assert failure.code == 403
        assert "is attempting to grant RBAC permissions not currently held" in failure.message


@pytest.mark.parametrize(
    ("user", "binding", "yes"),
    [
        (ED, grant("giver", "joe"), True),
        (ED, grant("view", "joe"), True),
        (ED, grant("edit", "joe"), False),
        (ED, grant("cluster-admin", "ed"), False),
        (ED, grant("not-there-yet", "ed"), False),
        (ADA, grant("edit", "joe", namespace="a"), True),
        (ADA, grant("edit", "joe", namespace="b"), False),
        (ADA, grant("dray:driver", "joe", namespace="a"), False),
        (BOSS, grant("not-there-yet", "joe"), True),
        (STRANGER, grant("system:discovery", "joe"), True),
    ],
)
def test_writing_a_binding_requires_the_rights_of_its_role(checks, user, binding, yes):
    assert (checks.refuses(user, None, binding) is None) is yes


def test_a_binding_keeps_its_role_and_can_lose_subjects_only_with_the_same_rights(checks):
    old = grant("edit", "joe", namespace="a")
    failure = checks.refuses(BOSS, old, old | {"roleRef": {**old["roleRef"], "name": "view"}})
    assert failure is not None
    assert failure.code == 422
    assert "cannot change roleRef" in failure.message
    assert checks.refuses(STRANGER, old, old | {"subjects": []}) is not None
    assert checks.refuses(STRANGER, old, old) is None
    assert checks.refuses(STRANGER, old, None) is None


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (role("r") | {"rules": "all"}, "rules: Invalid value: "),
        (role("r") | {"rules": [{"verbs": 3}]}, "rules: Invalid value: "),
        (
            role("r") | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": 3}]}},
            "aggregationRule: Invalid value: ",
        ),
        (grant("view", "joe") | {"roleRef": {"kind": "Secret", "name": "x"}}, "roleRef: Invalid value: "),
        (grant("view", "joe", role_kind="Role"), "a ClusterRoleBinding can only give a ClusterRole"),
        (grant("view", "joe") | {"subjects": [{"kind": "User"}]}, "`name` is missing"),
        (grant("view", "joe") | {"subjects": ["joe"]}, "has not the form of this field"),
        (
            grant("view", "joe") | {"subjects": [{"kind": "Robot", "name": "r"}]},
            "a subject is a User, a Group",
        ),
    ],
)
def test_roles_that_could_not_be_read_later_are_refused_now(checks, document, words):
    failure = checks.refuses(BOSS, None, document)
    assert failure is not None
    assert failure.code == 422
    assert words in failure.message


def test_creating_by_a_patch_requires_the_right_to_create():
    patcher = role("patcher", rule("patch update", "configmaps"))
    made = thing("v1", "ConfigMap", "c", "a")
    with ClusterState([patcher, grant("patcher", "joe"), grant("edit", "ed", namespace="a")]) as world:
        checks = AccessChecks(world)
        for verb in ("patch", "update"):
            failure = checks.refuses(person("joe"), None, made, verb=verb)
            assert failure is not None
            assert 'User "joe" cannot create resource "configmaps"' in failure.message
            assert checks.refuses(person("joe"), made, made | {"data": {}}, verb=verb) is None
            assert checks.refuses(ED, None, made, verb=verb) is None


# --- as somebody else ---


@pytest.fixture(scope="module")
def stage() -> Iterator[AccessChecks]:
    actor = role(
        "actor",
        rule("impersonate", "users", "", "jane"),
        rule("impersonate", "groups", "", "team:a"),
        rule("impersonate", "uids", "authentication.k8s.io", "u1"),
        rule("impersonate", "userextras/scopes", "authentication.k8s.io", "view"),
    )
    with ClusterState([actor, grant("actor", "actor"), grant("edit", "ed", namespace="a")]) as world:
        yield AccessChecks(world)


def test_allowed_users_impersonate_others(stage):
    headers = {
        "impersonate-user": "jane",
        "impersonate-group": "team:a",
        "impersonate-uid": "u1",
        "impersonate-extra-scopes": "view",
    }
    user = impersonate(person("actor"), headers, stage.access)
    assert user == RequestUser("jane", ("team:a", "system:authenticated"), "u1", {"scopes": ("view",)})


def test_without_the_headers_nobody_is_impersonated(stage):
    assert impersonate(STRANGER, {"accept": "x"}, stage.access) is STRANGER


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"impersonate-user": "root"}, 403),
        ({"impersonate-user": "system:serviceaccount:a:robot"}, 403),
        ({"impersonate-user": "jane", "impersonate-group": "system:masters"}, 403),
        ({"impersonate-user": "jane", "impersonate-group": "team:a, system:masters"}, 403),
        ({"impersonate-user": "jane", "impersonate-uid": "u2"}, 403),
        ({"impersonate-user": "jane", "impersonate-extra-scopes": "edit"}, 403),
        (
            {
                "impersonate-user": "jane",
                "impersonate-extra-authentication.kubernetes.io%2fnode-name": "n1",
            },
            403,
        ),
        ({"impersonate-group": "team:a"}, 400),
        ({"impersonate-uid": "u1"}, 400),
        ({"impersonate-extra-scopes": "view"}, 400),
    ],
)
def test_impersonation_is_refused_without_the_right_to_each_part(stage, headers, code):
    with pytest.raises(ApiStatusError) as failure:
        impersonate(person("actor"), headers, stage.access)
    assert failure.value.code == code


def test_an_editor_acts_as_the_accounts_of_the_namespace(stage):
    robot = impersonate(ED, {"impersonate-user": "system:serviceaccount:a:robot"}, stage.access)
    assert robot.groups == ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")
    with pytest.raises(ApiStatusError):
        impersonate(ED, {"impersonate-user": "system:serviceaccount:b:robot"}, stage.access)


def test_masters_may_impersonate_the_anonymous_user(stage):
    root = RequestUser("root", ("system:masters",))
    nobody = impersonate(root, {"impersonate-user": "system:anonymous"}, stage.access)
    assert nobody == RequestUser("system:anonymous", ("system:unauthenticated",))
