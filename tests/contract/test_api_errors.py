"""Errors: the codes, reasons and messages that Kubernetes clients read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import Api, path, serving
from tests.contract.documents import claim, config, pod, request
from tests.contract.shapes import differences
from tests.unit.server.samples import sample


def _asks(**more: Any) -> dict[str, Any]:
    return {"body": None, "headers": {}, "query": {}} | more


RECORDED = {
    "err_404_object": ("GET", path("pods", "nope"), _asks()),
    "err_404_cluster": ("GET", "/apis/nosuch.example.com/v1/things", _asks()),
    "err_400_strict": (
        "POST",
        path("resourceclaims"),
        _asks(
            body={**claim("c"), "spec": {**claim("c")["spec"], "nosuch": 1}},
            query={"fieldValidation": "Strict"},
        ),
    ),
    "err_400_sendInitialEvents": (
        "GET",
        path("resourceclaims"),
        _asks(query={"watch": "true", "sendInitialEvents": "true"}),
    ),
    "err_409_exists": ("POST", path("resourceclaims"), _asks(body=claim("big"))),
    "err_409_conflict": (
        "PUT",
        path("resourceclaims", "big"),
        _asks(body=claim("big", resourceVersion="1")),
    ),
    "err_422_claim": (
        "POST",
        path("resourceclaims"),
        _asks(body=claim("bad", requests=[{"name": "A", "exactly": {}}])),
    ),
    "err_406": ("GET", path("pods"), _asks(headers={"accept": "application/cbor"})),
    "err_415": (
        "POST",
        path("pods"),
        _asks(body=pod("p"), headers={"content-type": "application/xml"}),
    ),
}


@pytest.mark.parametrize("name", RECORDED)
async def test_errors_have_the_form_of_recorded_ones(name: str, pytestconfig: pytest.Config) -> None:
    recorded = sample(pytestconfig, f"{name}.json")
    method, where, asked = RECORDED[name]
    async with serving() as api:
        await api.create(claim("big"))
        response = await api.ask(method, where, asked["body"], headers=asked["headers"], **asked["query"])
    assert differences(response.document, recorded) == []
    assert (response.code, response.reason) == (recorded["code"], recorded["reason"])
    if recorded["code"] not in (406, 422):
        assert response.message == recorded["message"]


async def test_every_error_of_an_invalid_claim_is_reported(pytestconfig: pytest.Config) -> None:
    recorded = sample(pytestconfig, "err_422_claim.json")
    async with serving() as api:
        bad = claim("bad", requests=[{"name": "A", "exactly": {}}])
        response = await api.ask("POST", path("resourceclaims"), bad)
    assert response.document == recorded


async def test_a_forbidden_request_names_the_missing_right(pytestconfig: pytest.Config) -> None:
    recorded = sample(pytestconfig, "err_403_anonymous.json")
    async with serving() as api:
        nobody = Api(api.app, api.store, "system:anonymous")
        response = await nobody.ask("GET", path("pods", namespace=""))
    assert differences(response.document, recorded) == []
    assert response.message.startswith(recorded["message"])


async def test_an_unknown_field_is_a_warning_unless_validation_is_strict() -> None:
    wrong = {**claim("c"), "spec": {**claim("c")["spec"], "nosuch": 1}}
    async with serving() as api:
        response = await api.ask("POST", path("resourceclaims"), wrong, dryRun="All")
        assert response.code == 201
        assert response.warnings == '299 - "unknown field \\"spec.nosuch\\""'
        silent = await api.ask("POST", path("resourceclaims"), wrong, fieldValidation="Ignore")
        assert (silent.code, silent.warnings) == (201, "")
        assert "nosuch" not in silent.document["spec"]
        refused = await api.ask("POST", path("resourceclaims"), wrong, fieldValidation="Maybe")
        assert refused.code in (400, 422)
        assert "Strict" in refused.message


async def test_duplicate_fields_are_reported() -> None:
    body = b'{"metadata":{"name":"c"},"data":{"a":"1"},"data":{"b":"2"}}'
    async with serving() as api:
        warned = await api.ask("POST", path("configmaps"), body)
        assert warned.code == 201
        assert 'duplicate field \\"data\\"' in warned.warnings
        strict = await api.ask("POST", path("configmaps"), body, fieldValidation="Strict")
        assert strict.code == 400
        assert 'duplicate field "data"' in strict.message


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "body"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'"text"', "object"),
        (b'{"kind":"Pod"}', "kind"),
        (b'{"apiVersion":"v2"}', "API version"),
        (b'{"metadata":[]}', "metadata"),
        (b'{"metadata":{"name":7}}', "name"),
        (b'{"metadata":{}}', "name"),
        (b'{"metadata":{"name":"a","namespace":"elsewhere"}}', "namespace"),
        (b'{"metadata":{"name":"a","resourceVersion":"5"}}', "resourceVersion"),
        (b'{"metadata":{"name":"A_b"}}', "metadata.name"),
        (b"\xff\xfe", "JSON"),
    ],
    ids=str,
)
@pytest.mark.parametrize("plural", ["configmaps", "resourceclaims"])
async def test_bodies_that_are_no_objects_are_refused(body: bytes, word: str, plural: str) -> None:
    async with serving() as api:
        response = await api.ask("POST", path(plural), body)
    assert response.code in (400, 422), response.document
    assert word.lower() in response.message.lower()
    assert response.document["kind"] == "Status"


@pytest.mark.parametrize(
    ("method", "where", "code"),
    [
        ("POST", path("configmaps", "a"), 405),
        ("PUT", path("configmaps"), 405),
        ("PATCH", path("configmaps"), 405),
        ("TRACE", path("configmaps"), 405),
        ("GET", path("pods", "p", sub="nosuch"), 404),
        ("GET", path("pods", "p", namespace=""), 404),
        ("GET", "/api/v1/namespaces/default/nodes/n", 404),
        ("GET", "/api/v2/pods", 404),
        ("GET", "/nosuch", 404),
        ("POST", "/version", 405),
        ("GET", "/apis/resource.k8s.io/v1alpha1/resourceclaims", 404),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("POST", path("pods", "p", sub="status"), 405),
    ],
)
async def test_what_is_not_served_is_refused(method: str, where: str, code: int) -> None:
    async with serving() as api:
        response = await api.ask(method, where)
    assert response.code == code, response.document
    assert response.document["kind"] == "Status"


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in (b"},
        {"labelSelector": "=="},
        {"fieldSelector": "spec.nosuch=1"},
        {"fieldSelector": "metadata.name"},
        {"limit": "many"},
        {"limit": "-"},
        {"continue_": "nonsense"},
        {"resourceVersion": "abc"},
        {"resourceVersionMatch": "Exact"},
        {"resourceVersion": "1", "resourceVersionMatch": "Sometimes"},
        {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
        {"watch": "true", "timeoutSeconds": "soon"},
        {"watch": "true", "resourceVersion": "abc"},
        {"watch": "true", "resourceVersionMatch": "NotOlderThan"},
    ],
    ids=str,
)
async def test_invalid_query_parameters_are_refused(query: dict) -> None:
    async with serving() as api:
        response = await api.ask("GET", path("configmaps"), **query)
    assert response.code in (400, 422), response.document
    assert response.document["kind"] == "Status"
    assert response.message


async def test_a_body_beyond_the_limit_is_refused() -> None:
    async with serving() as api:
        large = config("large") | {"data": {"a": "x" * (3 * 1024 * 1024)}}
        response = await api.ask("POST", path("configmaps"), large)
        assert (response.code, response.reason) == (413, "RequestEntityTooLarge")
        middling = config("middling") | {"data": {"a": "x" * (2 * 1024 * 1024)}}
        refused = await api.ask("POST", path("configmaps"), middling)
        assert refused.code in (413, 422), refused.message


async def test_names_and_paths_must_agree() -> None:
    async with serving() as api:
        await api.create(config("a"))
        response = await api.ask("PUT", path("configmaps", "a"), config("b"))
        assert response.code == 400
        assert "(b)" in response.message
        assert "(a)" in response.message
        moved = await api.ask("PUT", path("configmaps", "a"), config("a", "kube-system"))
        assert moved.code == 400


async def test_errors_name_fields_in_the_version_of_the_client() -> None:
    async with serving() as api:
        for version, where in (
            ("v1beta1", "spec.devices.requests[0].count"),
            ("v1", "spec.devices.requests[0].exactly.count"),
        ):
            fields = {"deviceClassName": "gpu", "count": -1, "allocationMode": "ExactCount"}
            asked = {"name": "r", **fields} if version == "v1beta1" else request("r", **fields)
            document = claim("c", requests=[asked]) | {"apiVersion": f"resource.k8s.io/{version}"}
            response = await api.ask("POST", path("resourceclaims", version=version), document)
            assert response.code == 422
            assert [cause["field"] for cause in response.document["details"]["causes"]] == [where]
