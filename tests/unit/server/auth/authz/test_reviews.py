"""Access reviews, token reviews and token requests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from dray.clock import ManualClock
from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authn.service_account_tokens import ISSUER, ServiceAccountTokens
from dray.server.auth.authn.token_file import StaticTokens
from dray.server.auth.authn.token_requests import TokenRequestIssuer
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.reviews import AccessReviews
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import RequestUser
from tests.unit.server.auth.cluster_state import ClusterState, grant, node, person, pod, thing

JANE = person("jane", "team:a")
ROBOT = thing("v1", "ServiceAccount", "robot", "a", uid="u-robot")
POD = pod("p", "a", "n1", uid="u-pod", spec={"serviceAccountName": "robot"})
ELSEWHERE = pod("q", "a", "n2", uid="u-q", spec={"serviceAccountName": "robot"})
OTHER_ACCOUNT = pod("o", "a", "n1", uid="u-o", spec={"serviceAccountName": "human"})
BARE = pod("bare", "a", "n1", uid="u-bare")


class ReviewSetup(NamedTuple):
    world: ClusterState
    reviews: AccessReviews
    requests: TokenRequestIssuer


@pytest.fixture
def setup(tmp_path) -> Iterator[ReviewSetup]:
    there = [ROBOT, POD, ELSEWHERE, OTHER_ACCOUNT, BARE, thing("v1", "Node", "n1", uid="u-n1")]
    with ClusterState([grant("edit", "jane", namespace="a"), *there]) as world:
        clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
        accounts = ServiceAccountTokens.open(tmp_path, world.cache, clock=clock)
        authenticator = Authenticator(
            StaticTokens({"s3cret": RequestUser("jane", ("team:a",), "u1")}), accounts, clock=clock
        )
        reviews = AccessReviews(UnionAuthorizer(world.cache), authenticator, accounts)
        yield ReviewSetup(world, reviews, TokenRequestIssuer(world.cache, accounts))


def review(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}


def attributes(verb: str, resource: str, namespace: str = "a", **more: str) -> dict[str, str]:
    return {"verb": verb, "resource": resource, "namespace": namespace, **more}


def test_may_i(setup):
    ask = review("SelfSubjectAccessReview", resourceAttributes=attributes("create", "pods"))
    answer = setup.reviews.review_self_subject_access(JANE, ask)
    assert answer["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "a/edit-jane" of ClusterRole "edit" to User "jane"',
    }
    assert {name: value for name, value in answer.items() if name != "status"} == ask


def test_i_may_not_and_why(setup):
    ask = review("SelfSubjectAccessReview", resourceAttributes=attributes("create", "pods", "b"))
    assert setup.reviews.review_self_subject_access(JANE, ask)["status"] == {
        "allowed": False,
        "reason": "RBAC: a rule that would allow it: "
        '{"apiGroups":[""],"resources":["pods"],"verbs":["create"]}',
    }


def test_a_subject_access_review_answers_for_any_user(setup):
    on = attributes("get", "pods", name="p")
    for user, groups, allowed in (
        ("jane", [], True),
        ("joe", [], False),
        ("system:node:n1", ["system:nodes"], True),
        ("system:node:n2", ["system:nodes"], False),
        ("", ["system:masters"], True),
    ):
        ask = review("SubjectAccessReview", resourceAttributes=on, user=user, groups=groups)
        assert setup.reviews.review_subject_access(ask)["status"]["allowed"] is allowed


def test_review_of_a_non_resource_path(setup):
    ask = review(
        "SubjectAccessReview",
        nonResourceAttributes={"path": "/metrics", "verb": "get"},
        user="dray:dashboard",
    )
    assert setup.reviews.review_subject_access(ask)["status"]["allowed"] is True


def test_a_local_review_is_restricted_to_its_namespace(setup):
    ask = review("LocalSubjectAccessReview", resourceAttributes=attributes("get", "pods"), user="jane")
    assert setup.reviews.review_local_subject_access("a", ask)["status"]["allowed"] is True
    with pytest.raises(
        ApiStatusError, match=r"resourceAttributes\.namespace: Invalid value: must be the namespace"
    ):
        setup.reviews.review_local_subject_access("b", ask)


@pytest.mark.parametrize(
    "spec",
    [
        {"user": "jane"},
        {"user": "jane", "resourceAttributes": {}, "nonResourceAttributes": {}},
        {"resourceAttributes": {"verb": "get"}},
        {"user": 3},
    ],
)
def test_a_question_without_sense_is_no_answer(setup, spec):
    with pytest.raises(ApiStatusError) as failure:
        setup.reviews.review_subject_access(review("SubjectAccessReview", **spec))
    assert failure.value.code in (400, 422)


def test_what_may_i_do(setup):
    answer = setup.reviews.review_self_subject_rules(JANE, review("SelfSubjectRulesReview", namespace="a"))
    status = answer["status"]
    assert status["incomplete"] is False
    assert any(
        "resourceclaims" in one["resources"] and "create" in one["verbs"] for one in status["resourceRules"]
    )
    assert any("/api/*" in one["nonResourceURLs"] for one in status["nonResourceRules"])
    elsewhere = setup.reviews.review_self_subject_rules(JANE, review("SelfSubjectRulesReview", namespace="b"))
    assert not any("pods" in one["resources"] for one in elsewhere["status"]["resourceRules"])


def test_what_a_node_may_do_is_no_list(setup):
    answer = setup.reviews.review_self_subject_rules(
        node("n1"), review("SelfSubjectRulesReview", namespace="a")
    )
    assert answer["status"]["incomplete"] is True
    with pytest.raises(ApiStatusError, match=r"set `spec\.namespace`"):
        setup.reviews.review_self_subject_rules(JANE, review("SelfSubjectRulesReview"))


def test_self_subject_review_names_the_caller(setup):
    user = RequestUser("jane", ("team:a",), "u1", {"scopes": ("view",)})
    answer = setup.reviews.review_self_subject(user, review("SelfSubjectReview"))
    assert answer["status"] == {
        "userInfo": {"username": "jane", "uid": "u1", "groups": ["team:a"], "extra": {"scopes": ["view"]}}
    }


# --- tokens ---


def request(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec}


def test_a_token_is_issued_and_verified(setup):
    answer = setup.requests.answer(JANE, "a", "robot", request(expirationSeconds=600))
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 600}
    assert answer["status"]["expirationTimestamp"] == "2026-03-01T00:10:00Z"
    token = answer["status"]["token"]
    seen = setup.reviews.review_token(review("TokenReview", token=token))
    assert seen["status"]["user"]["username"] == "system:serviceaccount:a:robot"
    assert seen["status"]["audiences"] == [ISSUER]
    assert token not in str(seen)


def test_a_token_for_other_audiences_is_valid_for_those_only(setup):
    spec = {"audiences": ["vault", "other"]}
    token = setup.requests.answer(JANE, "a", "robot", request(**spec))["status"]["token"]
    for audiences, good in ((["vault"], ["vault"]), (["elsewhere"], None), ([], None)):
        status = setup.reviews.review_token(review("TokenReview", token=token, audiences=audiences))["status"]
        assert status.get("audiences") == good
        assert status["authenticated"] is (good is not None)


def test_a_token_of_the_file_is_recognised_for_this_server_alone(setup):
    assert setup.reviews.review_token(review("TokenReview", token="s3cret"))["status"] == {
        "authenticated": True,
        "user": {"username": "jane", "uid": "u1", "groups": ["team:a", "system:authenticated"]},
    }
    for token, audiences in (("s3cret", ["vault"]), ("wrong", [])):
        answer = setup.reviews.review_token(review("TokenReview", token=token, audiences=audiences))
        assert answer["status"]["authenticated"] is False
        assert token not in str(answer)
    with pytest.raises(ApiStatusError, match="token is required"):
        setup.reviews.review_token(review("TokenReview"))


def bound_to(document: dict[str, Any], **more: str) -> dict[str, Any]:
    ref = {"kind": document["kind"], "apiVersion": "v1", "name": document["metadata"]["name"], **more}
    return request(boundObjectRef=ref)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (request(expirationSeconds=599), 422),
        (request(expirationSeconds="soon"), 400),
        (request(boundObjectRef={"kind": "Lease", "name": "x"}), 400),
        (request(boundObjectRef={"kind": "Pod", "name": "gone"}), 404),
        (bound_to(POD, uid="other"), 409),
        (bound_to(OTHER_ACCOUNT), 400),
        (bound_to(BARE), 400),
    ],
)
def test_a_request_without_sense_gets_no_token(setup, document, code):
    with pytest.raises(ApiStatusError) as failure:
        setup.requests.answer(JANE, "a", "robot", document)
    assert failure.value.code == code


def test_there_is_no_token_for_an_account_that_is_not_there(setup):
    with pytest.raises(ApiStatusError) as failure:
        setup.requests.answer(JANE, "a", "gone", request())
    assert failure.value.code == 404


@pytest.mark.parametrize(
    ("document", "yes"),
    [
        (bound_to(POD), True),
        (bound_to(POD, uid="u-pod"), True),
        (bound_to(ELSEWHERE), False),
        (bound_to(OTHER_ACCOUNT), False),
        (bound_to(BARE), False),
        (bound_to(thing("v1", "Node", "n1")), False),
        (request(), False),
    ],
)
def test_a_node_gets_tokens_for_pods_on_it_and_bound_to_them(setup, document, yes):
    if yes:
        assert setup.requests.answer(node("n1"), "a", "robot", document)["status"]["token"]
        return
    with pytest.raises(ApiStatusError, match=r'node "n1" can only request tokens') as failure:
        setup.requests.answer(node("n1"), "a", "robot", document)
    assert failure.value.code == 403
