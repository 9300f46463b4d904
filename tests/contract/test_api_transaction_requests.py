"""What a transaction may contain; a refusal names the field."""

from __future__ import annotations

from typing import Any

from dray.api import limits
from dray.api.json_text import write_json
from dray.api.transactions import TRANSACTIONS_PATH, find_failed_request
from tests.contract.api import APPLY, path, serving
from tests.contract.documents import config
from tests.contract.transactions import CONFIGS, build, delete, patch, post, put, send

ONE = "spec.requests[1]"
OK = post(CONFIGS, config("a"))
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ALONE = "is written alone"

INVALID: dict[str, tuple[dict[str, Any], str, str]] = {
    "no method": (
        {"path": CONFIGS},
        f"{ONE}.method",
        'Unsupported value: "": supported values: "DELETE", "PATCH", "POST", "PUT"',
    ),
    "a read": ({"method": "GET", "path": CONFIGS}, f"{ONE}.method", 'Unsupported value: "GET"'),
    "no path": ({"method": "POST"}, f"{ONE}.path", "must begin with `/`"),
    "a long path": (post(f"{CONFIGS}?x={'y' * 2048}", {}), f"{ONE}.path", "may not be more than 2048 bytes"),
    "a URL": (post(f"https://other{CONFIGS}", {}), f"{ONE}.path", "must begin with `/`"),
    "apply": (patch(f"{CONFIGS}/a", {}, APPLY), f"{ONE}.contentType", "Unsupported value"),
    "a patch as JSON": (patch(f"{CONFIGS}/a", {}, "application/json"), f"{ONE}.contentType", "Unsupported"),
    "YAML": (OK | {"contentType": "application/yaml"}, f"{ONE}.contentType", "Unsupported value"),
    "a dry run": (post(f"{CONFIGS}?dryRun=All", config("b")), f"{ONE}.path", "has no dry run"),
    "a collection": (delete(CONFIGS), f"{ONE}.path", "cannot deletecollection configmaps"),
    "an eviction": (
        post(path("pods", "p", sub="eviction"), {}),
        f"{ONE}.path",
        "cannot create pods/eviction",
    ),
    "a token": (
        post(path("serviceaccounts", "default", sub="token"), {}),
        f"{ONE}.path",
        "cannot create serviceaccounts/token",
    ),
    "a review": (post(REVIEWS, {}), f"{ONE}.path", "is not the path of an object"),
    "a transaction": (post(TRANSACTIONS_PATH, build(OK)), f"{ONE}.path", "is not the path of an object"),
    "no resource": (post("/dray/certificate", {}), f"{ONE}.path", "is not the path of an object"),
    "a quota": (post(path("resourcequotas"), {}), f"{ONE}.path", f"resourcequotas {ALONE}"),
    "a slice": (
        put(path("resourceslices", "s"), {}),
        f"{ONE}.path",
        f"resourceslices.resource.k8s.io {ALONE}",
    ),
    "a role": (
        delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/r"),
        f"{ONE}.path",
        f"clusterroles.rbac.authorization.k8s.io {ALONE}",
    ),
}


async def test_what_a_transaction_does_not_do_is_refused_with_its_field() -> None:
    async with serving() as api:
        for why, (bad, field, message) in INVALID.items():
            refused = await send(api, OK, bad)
            assert (refused.code, refused.reason) == (422, "Invalid"), why
            (cause,) = refused.document["details"]["causes"]
            assert cause["field"] == field, why
            assert message in cause["message"], why
            assert refused.message.startswith(f'Transaction.dray.dev "" is invalid: {field}: ')
        assert await api.names(CONFIGS) == []


NESTED = b'{"method": "POST", "path": "/api/v1/namespaces/default/configmaps", "body": %s}'
WHOLE = b'{"spec": {"requests": [%s]}}'
MALFORMED: dict[str, tuple[Any, str]] = {
    "no body": (b"", "the request has no body; expected a Transaction"),
    "no JSON": (b"{", "the object provided is unrecognized"),
    "a list": ([], "expected an object"),
    "another kind": ({"kind": "Pod"}, "the kind in the data (Pod) does not match"),
    "another version": ({"apiVersion": "v1"}, "the API version in the data (v1) does not match"),
    "requests of a wrong type": ({"spec": {"requests": {}}}, "spec.requests: expected a list"),
    "a method of a wrong type": (
        build(OK, {"method": 1, "path": CONFIGS}),
        f"{ONE}.method: expected a string, got a number",
    ),
    "an unknown field": (
        build(OK, {"method": "POST", "path": CONFIGS, "contenttype": "x"}),
        f'unknown field "{ONE}.contenttype"; did you mean `contentType`?',
    ),
    "two mistakes": (build({"method": 1, "url": ""}), 'unknown field "spec.requests[0].url"'),
    "a body that is no JSON": (WHOLE % (NESTED % b"{,}"), "unrecognized"),
    "a body nested too deeply": (WHOLE % (NESTED % (b"[" * 20_000 + b"]" * 20_000)), "nested too deeply"),
}


async def test_a_malformed_transaction_is_a_bad_request() -> None:
    async with serving() as api:
        for why, (body, message) in MALFORMED.items():
            refused = await api.ask("POST", TRANSACTIONS_PATH, body)
            assert (refused.code, refused.reason) == (400, "BadRequest"), why
            assert message in refused.message, why


async def test_nulls_are_absent_values() -> None:
    async with serving() as api:
        body = build(OK | {"contentType": None}, {"method": "DELETE", "path": f"{CONFIGS}/a", "body": None})
        reply = await api.ask("POST", TRANSACTIONS_PATH, body | {"metadata": None, "status": None})
        assert reply.code == 201, reply.document


async def test_the_number_of_requests_is_limited() -> None:
    async with serving() as api:
        most = limits.REQUESTS_PER_TRANSACTION
        requests = [post(CONFIGS, config(f"c{number}")) for number in range(most + 1)]
        for refused, message in (
            (
                await send(api, *requests),
                f"spec.requests: Too many: {most + 1}: must have at most {most} items",
            ),
            (await send(api), "spec.requests: Required value"),
        ):
            assert refused.code == 422
            assert message in refused.message
        assert (await send(api, *requests[:most])).code == 201
        assert len(await api.names(CONFIGS)) == most


async def test_a_transaction_has_no_dry_run() -> None:
    async with serving() as api:
        refused = await send(api, OK, dryRun="All")
        assert refused.code == 400
        assert "send its requests one by one" in refused.message
        by_options = await send(api, OK, delete(f"{CONFIGS}/a", {"dryRun": ["All"]}))
        assert by_options.code == 400
        assert "a transaction has no dry run" in by_options.message
        assert await api.names(CONFIGS) == []


async def test_only_json_is_read() -> None:
    async with serving() as api:
        for media in ("application/yaml", "application/vnd.kubernetes.protobuf"):
            headers = {"content-type": media}
            reply = await api.ask("POST", TRANSACTIONS_PATH, write_json(build(OK)), headers=headers)
            assert reply.code == 415


UNSERVED = (
    (post(path("nothings"), {}), 404),
    (post("/apis/none.example/v1/things", {}), 404),
    (post(path("pods", "p"), {}), 405),
    (put(CONFIGS, {}), 405),
    (patch(path("configmaps", "a", sub="status"), {}), 404),
)


async def test_a_path_that_is_not_served_is_answered_as_alone() -> None:
    async with serving() as api:
        for bad, code in UNSERVED:
            refused = await send(api, OK, bad)
            assert refused.code == code, refused.document
            assert find_failed_request(refused.document["details"]["causes"]) == 1


async def test_the_body_limit_is_that_of_one_request() -> None:
    async with serving() as api:
        large = config("a") | {"data": {"x": "y" * 1_000_000}}
        refused = await send(api, *(post(CONFIGS, large) for _ in range(4)))
        assert refused.code == 413


def test_a_status_without_the_cause_names_no_request() -> None:
    assert find_failed_request([]) is None
    assert find_failed_request([{"reason": "FieldValueInvalid", "field": "spec.requests[1]"}]) is None
    assert find_failed_request([{"reason": "TransactionRequestFailed", "field": "spec"}]) is None
