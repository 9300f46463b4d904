"""RBAC: what a rule allows, which subjects a binding covers, and that changes apply at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.server.auth.authz.bootstrap_roles import BOOTSTRAP_ROLES, build_bootstrap_documents
from dray.server.auth.authz.policy_rules import AccessAttributes, PolicyRule, build_attributes, find_uncovered
from dray.server.auth.authz.rbac import RbacAuthorizer, build_forbidden
from dray.server.http.requests import ANONYMOUS_USER, ApiCall
from tests.outside import ROOT
from tests.unit.server.auth.cluster_state import ClusterState, grant, person, role, rule, thing

JANE = person("jane", "team:a")
GROUP = "resource.k8s.io"


@pytest.fixture
def world() -> Iterator[ClusterState]:
    with ClusterState(roles=False) as made:
        yield made


# --- rules ---


@pytest.mark.parametrize(
    ("resources", "asked", "yes"),
    [
        ("pods", AccessAttributes("get", "", "pods", "", "a", "x"), True),
        ("pods", AccessAttributes("get", "", "pods", "status", "a", "x"), False),
        ("pods", AccessAttributes("list", "", "pods"), False),
        ("pods", AccessAttributes("get", "apps", "pods"), False),
        ("pods/status", AccessAttributes("get", "", "pods", "status"), True),
        ("pods/status", AccessAttributes("get", "", "pods"), False),
        ("*/status", AccessAttributes("get", "", "pods", "status"), True),
        ("*/status", AccessAttributes("get", "", "pods"), False),
        ("*/status", AccessAttributes("get", "", "pods", "binding"), False),
        ("pods/*", AccessAttributes("get", "", "pods", "status"), False),
        ("*", AccessAttributes("get", "", "pods", "status"), True),
        ("*", AccessAttributes("get", path="/metrics"), False),
    ],
)
def test_a_rule_allows_or_refuses_a_resource(world, resources, asked, yes):
    world.put(role("r", rule("get", resources)), grant("r", "jane"))
    assert RbacAuthorizer(world.cache).authorize(JANE, asked).allowed is yes


@pytest.mark.parametrize(
    ("asked", "yes"),
    [
        (AccessAttributes("get", "", "secrets", "", "a", "mine"), True),
        (AccessAttributes("get", "", "secrets", "", "a", "other"), False),
        (AccessAttributes("get", "", "secrets", "", "a", ""), False),
        (AccessAttributes("create", "", "secrets", "", "a", ""), False),
    ],
)
def test_a_rule_with_names_is_for_these_names_only(world, asked, yes):
    world.put(role("r", rule("get create", "secrets", "", "mine")), grant("r", "jane"))
    assert RbacAuthorizer(world.cache).authorize(JANE, asked).allowed is yes


@pytest.mark.parametrize(
    ("pattern", "path", "yes"),
    [
        ("/metrics", "/metrics", True),
        ("/metrics", "/metrics/x", False),
        ("/debug/*", "/debug/tasks", True),
        ("/debug/*", "/debug", False),
        ("*", "/anything", True),
        ("/m*", "/metrics", True),
    ],
)
def test_a_rule_allows_or_refuses_a_path(world, pattern, path, yes):
    world.put(role("r", {"verbs": ["get"], "nonResourceURLs": [pattern]}), grant("r", "jane"))
    decide = RbacAuthorizer(world.cache).authorize
    assert decide(JANE, AccessAttributes("get", path=path)).allowed is yes
    assert not decide(JANE, AccessAttributes("post", path=path)).allowed


def test_a_selector_for_one_name_counts_as_the_name():
    def asked(selector: str) -> AccessAttributes:
        return build_attributes(
            ApiCall("list", "/p", plural="secrets", namespace="a", query={"fieldSelector": selector})
        )

    assert asked("metadata.name=mine").name == "mine"
    assert asked("metadata.name==mine").name == "mine"
    assert asked("metadata.name=mine,type=x").name == ""
    assert asked("metadata.name!=mine").name == ""
    assert build_attributes(ApiCall("get", "/metrics")) == AccessAttributes("get", path="/metrics")


def test_rights_in_a_namespace_include_reading_it_and_no_more():
    def asked(verb: str) -> AccessAttributes:
        return build_attributes(ApiCall(verb, "/api/v1/namespaces/a", plural="namespaces", name="a"))

    with ClusterState(
        [grant("view", "jane", namespace="a"), grant("cluster-admin", "ada", namespace="a")]
    ) as world:
        decide = RbacAuthorizer(world.cache).authorize
        assert decide(JANE, asked("get")).allowed
        assert not decide(person("joe"), asked("get")).allowed
        assert not decide(person("ada"), asked("patch")).allowed


# --- bindings ---


PODS = AccessAttributes("list", "", "pods", "", "a")


@pytest.mark.parametrize(
    ("binding", "in_a", "in_b", "everywhere"),
    [
        (grant("r", "jane"), True, True, True),
        (grant("r", "@team:a"), True, True, True),
        (grant("r", "jane", namespace="a"), True, False, False),
        (grant("r", "joe"), False, False, False),
        (grant("r", "@jane"), False, False, False),
        (grant("r", "team:a"), False, False, False),
        (grant("r", "jane", namespace="a", role_kind="Role"), False, False, False),
        (grant("local", "jane", namespace="a", role_kind="Role"), True, False, False),
        (grant("local", "jane", namespace="b", role_kind="Role"), False, False, False),
        (grant("local", "jane", role_kind="Role"), False, False, False),
    ],
)
def test_whom_a_binding_reaches_and_where(world, binding, in_a, in_b, everywhere):
    pods = rule("list", "pods")
    world.put(role("r", pods), role("local", pods, namespace="a"), binding)
    authorizer = RbacAuthorizer(world.cache)
    answers = [authorizer.authorize(JANE, PODS._replace(namespace=place)).allowed for place in ("a", "b", "")]
    assert answers == [in_a, in_b, everywhere]


def test_a_service_account_is_a_user_of_its_namespace(world):
    binding = grant("r", "x")
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "robot", "namespace": "a"}]
    world.put(role("r", rule("list", "pods")), binding)
    decide = RbacAuthorizer(world.cache).authorize
    assert decide(person("system:serviceaccount:a:robot"), PODS).allowed
    assert not decide(person("system:serviceaccount:b:robot"), PODS).allowed


def test_paths_are_only_given_for_the_whole_cluster(world):
    paths = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    world.put(role("r", paths), grant("r", "jane", namespace="a"))
    authorizer = RbacAuthorizer(world.cache)
    assert not authorizer.authorize(JANE, AccessAttributes("get", path="/metrics")).allowed
    assert authorizer.list_user_rules(JANE, "a") == []


def test_changes_count_at_once(world):
    authorizer = RbacAuthorizer(world.cache)
    binding = grant("r", "jane")
    assert not authorizer.authorize(JANE, PODS).allowed
    world.put(role("r", rule("list", "pods")), binding)
    assert authorizer.authorize(JANE, PODS).allowed
    world.put(role("r", rule("get", "pods")))
    assert not authorizer.authorize(JANE, PODS).allowed
    world.put(role("r", rule("list", "pods")))
    assert authorizer.authorize(JANE, PODS).allowed
    world.put(binding | {"subjects": []})
    assert not authorizer.authorize(JANE, PODS).allowed
    world.put(binding)
    assert authorizer.authorize(JANE, PODS).allowed
    world.delete(binding)
    assert not authorizer.authorize(JANE, PODS).allowed
    world.put(binding)
    world.delete(role("r"))
    assert not authorizer.authorize(JANE, PODS).allowed


def test_deleted_bindings_leave_nothing_in_memory(world):
    authorizer = RbacAuthorizer(world.cache)
    before = dict(authorizer._grants_by_subject)
    for number in range(3):
        binding = grant("r", f"user-{number}")
        world.put(binding | {"subjects": binding["subjects"] * 2})
        assert len(authorizer._grants_by_subject) == len(before) + 1
        world.delete(binding)
    assert authorizer._grants_by_subject == before


def test_an_aggregated_role_includes_aggregated_roles(world):
    def made_of(name: str, label: str, **labels: str) -> dict:
        selectors = [{"matchLabels": {label: "true"}}]
        return role(name, aggregationRule={"clusterRoleSelectors": selectors}, labels=labels)

    world.put(
        made_of("big", "to-big", **{"to-small": "true"}),
        made_of("small", "to-small", **{"to-big": "true"}),
        role("part", rule("list", "pods"), labels={"to-small": "true"}),
        grant("big", "jane"),
    )
    authorizer = RbacAuthorizer(world.cache)
    assert authorizer.authorize(JANE, PODS).allowed
    assert not authorizer.authorize(JANE, PODS._replace(verb="get")).allowed
    world.put(role("more", rule("get", "pods"), labels={"to-big": "true"}))
    assert authorizer.authorize(JANE, PODS._replace(verb="get")).allowed
    world.put(role("part", rule("list", "pods")))
    assert not authorizer.authorize(JANE, PODS).allowed


@pytest.mark.parametrize(
    "broken",
    [
        role("r") | {"rules": "everything"},
        role("r") | {"rules": [{"verbs": "*", "apiGroups": ["*"], "resources": ["*"]}]},
        role("r") | {"rules": [None]},
        role("r", rule("list", "pods")) | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": 3}]}},
    ],
)
def test_a_role_that_cannot_be_read_allows_nothing(world, broken):
    world.put(broken, grant("r", "jane"))
    assert not RbacAuthorizer(world.cache).authorize(JANE, PODS).allowed


@pytest.mark.parametrize(
    "broken",
    [
        {"roleRef": None},
        {"roleRef": {"kind": "Secret", "name": "r"}},
        {"subjects": [{"kind": "User"}]},
        {"subjects": [{"kind": "User", "name": 3}]},
        {"subjects": "jane"},
        {"roleRef": {"apiGroup": "other", "kind": "ClusterRole", "name": "r"}},
    ],
)
def test_a_binding_that_cannot_be_read_allows_nothing(world, broken):
    world.put(role("r", rule("list", "pods")), grant("r", "jane") | broken)
    assert not RbacAuthorizer(world.cache).authorize(JANE, PODS).allowed


def test_masters_may_do_everything_without_any_role(world):
    authorizer = RbacAuthorizer(world.cache)
    root = person("root", "system:masters")
    assert authorizer.authorize(root, AccessAttributes("escalate", "x", "y", "z", "a", "b")).allowed
    assert authorizer.authorize(root, AccessAttributes("get", path="/debug")).allowed
    assert not authorizer.authorize(person("system:masters"), PODS).allowed


# --- words ---


def test_a_yes_names_the_binding(world):
    world.put(role("r", rule("list", "pods")), grant("r", "@team:a", namespace="a"))
    assert RbacAuthorizer(world.cache).authorize(JANE, PODS).reason == (
        'RBAC: allowed by RoleBinding "a/r-g-team-a" of ClusterRole "r" to Group "team:a"'
    )


@pytest.mark.parametrize(
    ("asked", "message", "details"),
    [
        (
            AccessAttributes("list", "", "pods"),
            'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the '
            'cluster scope: RBAC: a rule that would allow it: {"apiGroups":[""],"resources":["pods"],'
            '"verbs":["list"]}',
            {"kind": "pods"},
        ),
        (
            AccessAttributes("update", GROUP, "resourceclaims", "status", "a", "x"),
            'resourceclaims.resource.k8s.io "x" is forbidden: User "system:anonymous" cannot update resource '
            '"resourceclaims/status" in API group "resource.k8s.io" in the namespace "a": RBAC: a rule '
            'that would allow it: {"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/status"],'
            '"verbs":["update"]}',
            {"name": "x", "group": GROUP, "kind": "resourceclaims"},
        ),
        (
            AccessAttributes("get", path="/metrics"),
            'forbidden: User "system:anonymous" cannot get path "/metrics": RBAC: a rule that would allow '
            'it: {"nonResourceURLs":["/metrics"],"verbs":["get"]}',
            {},
        ),
    ],
)
def test_a_refusal_names_user_verb_scope_and_missing_rule(world, asked, message, details):
    failure = build_forbidden(asked, RbacAuthorizer(world.cache).authorize(ANONYMOUS_USER, asked))
    assert (failure.code, failure.message, failure.details) == (403, message, details)


def test_a_no_names_a_role_that_is_bound_and_not_there(world):
    world.put(grant("gone", "jane"))
    reason = RbacAuthorizer(world.cache).authorize(JANE, PODS).reason
    assert reason.endswith(': RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found')


# --- one rule covers another ---

WORDS = st.sampled_from(["*", "get", "list", "a", "b", "a/s", "*/s"])
SETS = st.frozensets(WORDS, max_size=3)
POLICIES = st.builds(
    PolicyRule, SETS, SETS, SETS, st.frozensets(st.sampled_from(["x", "y"])), st.just(())
) | st.builds(PolicyRule, SETS, paths=st.lists(st.sampled_from(["*", "/a", "/a/*", "/a/b"])).map(tuple))
QUESTIONS = st.builds(
    AccessAttributes,
    st.sampled_from(["get", "list"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "s"]),
    name=st.sampled_from(["", "x", "y", "z"]),
) | st.builds(AccessAttributes, st.sampled_from(["get", "list"]), path=st.sampled_from(["/a", "/a/b", "/c"]))


@given(POLICIES, st.lists(POLICIES, max_size=3), QUESTIONS)
def test_what_is_covered_allows_nothing_more(wanted, owned, asked):
    if not find_uncovered([wanted], owned) and wanted.allows(asked):
        assert any(rule.allows(asked) for rule in owned)


@given(POLICIES)
def test_a_rule_covers_itself_and_everything_covers_it(policy):
    everything = PolicyRule(frozenset("*"), frozenset("*"), frozenset("*"), paths=("*",))
    assert find_uncovered([policy], [policy]) == []
    assert find_uncovered([policy], [everything]) == []


# --- the roles to begin with ---


def test_the_first_roles_are_sound_documents_each_there_once():
    documents = build_bootstrap_documents()
    names = [
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in documents
    ]
    roles = {name for kind, _, name in names if kind == "ClusterRole"}
    bound = {
        (one["roleRef"]["kind"], one["metadata"].get("namespace", ""), one["roleRef"]["name"])
        for one in documents
        if "roleRef" in one
    }
    assert len(set(names)) == len(names)
    assert bound <= set(names)
    assert {"cluster-admin", "admin", "edit", "view", "dray:driver", "system:kube-scheduler"} <= roles


def test_only_the_administrator_may_use_every_verb():
    every = [row.name for row in BOOTSTRAP_ROLES if any(text.startswith("*") for text in row.rules)]
    assert every == ["cluster-admin"]


def test_the_guide_names_every_role_of_dray():
    guide = (ROOT / "docs" / "guides" / "access.md").read_text("utf-8")
    ours = [row.name for row in BOOTSTRAP_ROLES if row.name.startswith("dray:") or ":" not in row.name]
    assert [name for name in ours if f"| `{name}` |" not in guide] == []


def test_admin_edit_and_view_show_the_rules_they_are_put_together_from():
    shown = {one["metadata"]["name"]: one["rules"] for one in build_bootstrap_documents() if "rules" in one}
    with ClusterState([grant(name, name) for name in ("admin", "edit", "view")]) as world:
        authorizer = RbacAuthorizer(world.cache)
        for name in ("admin", "edit", "view"):
            rules = [rule.to_document() for rule in authorizer.list_user_rules(person(name), "a")]
            missing = [rule for rule in shown[name] if rule not in rules]
            assert missing == []


def test_a_custom_kind_can_be_added_to_view():
    added = role("more", rule("get", "widgets", "example.com"))
    added["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    with ClusterState([added, grant("view", "jane"), thing("v1", "Namespace", "a")]) as world:
        assert (
            RbacAuthorizer(world.cache)
            .authorize(JANE, AccessAttributes("get", "example.com", "widgets", "", "a"))
            .allowed
        )
