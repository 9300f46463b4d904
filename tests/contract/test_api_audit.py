"""What requests leave in the audit log of a running server: who sent them, and as whom they were served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from dray.server.audit import list_log_files
from dray.server.audit.events import RECORDED_PATHS
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import REVIEW_KINDS
from dray.server.ledger.endpoints import BACKUP_PATH
from tests.contract.api import SOON, Api, path, serving

RBAC = "rbac.authorization.k8s.io"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JANE, JOHN = {"impersonate-user": "jane"}, {"impersonate-user": "john"}
AS_JANE = {"impersonate-user": "jane", "impersonate-group": "team:a"}
Work = Callable[[Api], Coroutine[Any, Any, None]]


def run(log: Path, work: Work, limits: ServerLimits | None = None) -> list[dict[str, Any]]:
    """Do something with a server; returns the lines of what it answered."""

    async def main() -> None:
        async with serving(limits=limits, audit=log) as api:
            await work(api)

    asyncio.run(main())
    return read_log(log, "complete")


def read_log(log: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for file in list_log_files(log) for line in file.read_bytes().splitlines()]
    return [line for line in lines if line["event"] == event]


def pick(line: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in names)


async def let(api: Api, user: str, rule: dict[str, Any]) -> None:
    """Give rights to a user, and wait until they count."""
    role = {"metadata": {"name": user}, "apiVersion": f"{RBAC}/v1"}
    await api.create({**role, "kind": "ClusterRole", "rules": [rule]}, f"/apis/{RBAC}/v1/clusterroles")
    binding = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    await api.create(binding, f"/apis/{RBAC}/v1/clusterrolebindings")
    question = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"resource": rule["resources"][0], "verb": rule["verbs"][0]}},
    }
    async with asyncio.timeout(SOON):
        while not (await api.as_user(user).create(question, ACCESS_REVIEWS))["status"]["allowed"]:
            await asyncio.sleep(0.005)


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_a_write_by_impersonation_has_both_users(tmp_path):
    async def work(api: Api) -> None:
        await let(api, "jane", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]})
        created = await api.ask("POST", path("configmaps"), config("a"), headers=AS_JANE)
        assert created.code == 201

    line = run(tmp_path / "audit.log", work)[-1]
    assert pick(line, "user", "groups", "impersonatedUser", "resource", "code") == (
        "admin",
        ["system:masters", "system:authenticated"],
        {"username": "jane", "groups": ["team:a", "system:authenticated"]},
        "configmaps",
        201,
    )


def test_a_denial_names_the_caller_whoever_has_no_right(tmp_path):
    async def work(api: Api) -> None:
        # Jane has no right; the caller has no right to impersonate.
        assert (await api.ask("GET", path("pods"), headers=AS_JANE)).code == 403
        assert (await api.as_user("mallory").ask("GET", path("pods"), headers=AS_JANE)).code == 403

    lines = run(tmp_path / "audit.log", work)
    jane = {"username": "jane", "groups": ["team:a", "system:authenticated"]}
    assert [pick(line, "user", "impersonatedUser", "code") for line in lines] == [
        ("admin", jane, 403),
        ("mallory", None, 403),
    ]


def test_limits_are_those_of_the_caller_whoever_is_impersonated(tmp_path):
    where = path("configmaps")

    async def work(api: Api) -> None:
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
        for name in ("jane", "john"):
            await let(api, name, rule)
        robot = api.as_user("robot", "system:masters")
        async with robot.watch(where, headers=JANE), robot.watch(where, headers=JOHN):
            refused = await robot.ask("GET", where, headers=JANE, watch="true")
            assert refused.code == 429
            assert "`robot` has 2 watches open" in refused.message
            async with api.as_user("jane").watch(where) as watch:
                assert watch.code == 200

    lines = run(tmp_path / "audit.log", work, ServerLimits(max_watches_per_user=2))
    denied = [line for line in lines if line["code"] == 429]
    assert [(line["user"], line["impersonatedUser"]["username"]) for line in denied] == [("robot", "jane")]


@pytest.mark.parametrize("namespace", ["default", ""])
def test_reads_of_secrets_are_recorded_without_their_contents(tmp_path, namespace):
    log = tmp_path / "audit.log"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": {"k": "c2VjcmV0"}}

    async def work(api: Api) -> None:
        await api.create(secret)
        await api.get(path("secrets", namespace=namespace))
        await api.get(path("secrets", "key"))
        async with api.watch(path("secrets", namespace=namespace)) as watch:
            assert await watch.tell(1) == [("ADDED", "key")]
        await api.get(path("configmaps"))

    lines = run(log, work)
    assert [pick(line, "user", "verb", "resource", "response") for line in lines] == [
        ("admin", verb, "secrets", "withheld") for verb in ("create", "list", "get")
    ]
    received = [pick(line, "user", "verb") for line in read_log(log, "received")]
    assert received == [("admin", verb) for verb in ("create", "list", "get", "watch")]
    assert "c2VjcmV0" not in log.read_text()


def test_a_backup_is_recorded(tmp_path):
    assert BACKUP_PATH in RECORDED_PATHS

    async def work(api: Api) -> None:
        assert (await api.ask("GET", BACKUP_PATH)).code == 200

    assert [
        pick(line, "user", "verb", "path", "code", "response") for line in run(tmp_path / "log", work)
    ] == [("admin", "get", BACKUP_PATH, 200, None)]


REVIEWS: dict[str, dict[str, Any]] = {
    "SelfSubjectReview": {},
    "TokenReview": {"spec": {"token": "t"}},
    "SelfSubjectAccessReview": {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}},
    "SelfSubjectRulesReview": {"spec": {"namespace": "default"}},
    "SubjectAccessReview": {"spec": {"user": "jane", "nonResourceAttributes": {"path": "/", "verb": "get"}}},
    "LocalSubjectAccessReview": {
        "metadata": {"namespace": "default"},
        "spec": {"user": "jane", "resourceAttributes": {"namespace": "default", "verb": "get"}},
    },
}


@pytest.mark.parametrize(("group", "plural"), REVIEW_KINDS)
def test_reviews_are_reads_and_leave_no_line(tmp_path, group, plural):
    kind, namespaced = REVIEW_KINDS[group, plural]

    async def work(api: Api) -> None:
        where = path(plural, group=group, namespace="default" if namespaced else "")
        review = {"apiVersion": f"{group}/v1", "kind": kind, **REVIEWS[kind]}
        response = await api.ask("POST", where, review)
        assert response.code == 201, response.document

    assert run(tmp_path / "audit.log", work) == []


UNSERVED = (
    ("GET", "/apis/nosuch.example.com/v1/things", 404),
    ("GET", "/api/v1/namespaces/default/pods/p/nosuch", 404),
    ("GET", "/api/v1/namespaces/default/../kube-system/secrets", 404),
    ("PUT", "/api/v1/namespaces/default/configmaps", 405),
    ("GET", "/nosuch", 404),
)


def test_who_has_no_right_is_denied_and_recorded_before_being_told_what_there_is(tmp_path):
    async def work(api: Api) -> None:
        for method, where, code in UNSERVED:
            assert (await api.as_user("mallory").ask(method, where)).code == 403
            assert (await api.ask(method, where)).code == code

    lines = run(tmp_path / "audit.log", work)
    denied = [pick(line, "user", "path", "code") for line in lines if line["code"] == 403]
    assert denied == [("mallory", where, 403) for _, where, _ in UNSERVED]
