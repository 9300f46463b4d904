"""Transactions: several writes in one request, carried out together or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.transactions import TRANSACTIONS_PATH
from tests.contract.api import JSON_PATCH, Api, path, serving
from tests.contract.backends import Backend, numbers
from tests.contract.documents import allocation, claim, config, consumer, node, pod, resource_slice
from tests.contract.hooked import CLAIM_RULE, hooked
from tests.contract.transactions import (
    CLAIMS,
    CONFIGS,
    PODS,
    bind,
    commit,
    delete,
    patch,
    post,
    put,
    send,
    send_single,
    serving_on,
)

FINALIZER = "resource.kubernetes.io/delete-protection"


def allocate(name: str, device: str, *pods: dict[str, Any]) -> dict[str, Any]:
    status = {"allocation": allocation(device), "reservedFor": [consumer(each) for each in pods]}
    return patch(path("resourceclaims", name, sub="status"), {"status": status})


async def read_revision(api: Api) -> int:
    return await api.store.get_revision()


async def test_requests_are_carried_out_in_their_order(backend: Backend) -> None:
    async with serving_on(backend) as api:
        before = await read_revision(api)
        responses = await commit(
            api,
            post(CONFIGS, config("a")),
            patch(f"{CONFIGS}/a", {"data": {"more": "1"}}),
            post(CONFIGS, config("b")),
            delete(f"{CONFIGS}/b"),
        )
        assert [each["code"] for each in responses] == [201, 200, 201, 200]
        versions = [int(each["body"]["metadata"]["resourceVersion"]) for each in responses[:3]]
        assert versions == [before + 1, before + 2, before + 3]
        assert await read_revision(api) == before + 4
        assert await api.get(f"{CONFIGS}/a") == responses[1]["body"]
        assert responses[3]["body"]["status"] == "Success"
        assert await api.names(CONFIGS) == ["a"]


async def test_watchers_get_every_step_in_order(backend: Backend) -> None:
    async with serving_on(backend) as api, api.watch(CONFIGS) as watch:
        responses = await commit(
            api,
            post(CONFIGS, config("a")),
            patch(f"{CONFIGS}/a", {"data": {"more": "1"}}),
            delete(f"{CONFIGS}/a"),
        )
        events = [await watch.event() for _ in range(3)]
        assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert [each["object"] for each in events[:2]] == [each["body"] for each in responses[:2]]
        versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
        assert versions == [versions[0], versions[0] + 1, versions[0] + 2]


async def test_a_claim_is_created_and_recorded_in_its_pod(backend: Backend) -> None:
    async with serving_on(backend) as api:
        asked = pod("p")
        asked["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
        await api.create(asked)
        record = {"status": {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "p-g"}]}}
        made, recorded = await commit(
            api,
            post(CLAIMS, claim("p-g", finalizers=[FINALIZER])),
            patch(f"{PODS}/p/status", record, "application/strategic-merge-patch+json"),
        )
        assert await api.get(f"{CLAIMS}/p-g") == made["body"]
        stored = await api.get(f"{PODS}/p")
        assert stored == recorded["body"]
        assert stored["status"]["resourceClaimStatuses"] == record["status"]["resourceClaimStatuses"]


async def test_claims_are_allocated_and_reserved_and_the_pod_bound(backend: Backend) -> None:
    async with serving_on(backend) as api:
        await api.create(node())
        await api.create(resource_slice("s"))
        user = await api.create(pod("p"))
        for name in ("c0", "c1"):
            await api.create(claim(name))
        responses = await commit(api, allocate("c0", "gpu-0", user), allocate("c1", "gpu-1", user), bind("p"))
        assert [each["code"] for each in responses] == [200, 200, 201]
        assert (await api.get(f"{PODS}/p"))["spec"]["nodeName"] == "node-a"
        for name, response in zip(("c0", "c1"), responses, strict=False):
            assert await api.get(f"{CLAIMS}/{name}") == response["body"]
            assert response["body"]["status"]["reservedFor"] == [consumer(user)]


async def test_a_claim_is_released_and_deleted_with_its_finalizer(backend: Backend) -> None:
    async with serving_on(backend) as api:
        await api.create(resource_slice("s"))
        await api.create(claim("c", finalizers=[FINALIZER]))
        await api.create(claim("d"))
        await commit(api, allocate("c", "gpu-0", await api.create(pod("p"))))
        responses = await commit(
            api,
            patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": None, "allocation": None}}),
            delete(f"{CLAIMS}/c"),
            patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}}),
            allocate("d", "gpu-0"),
        )
        assert [each["code"] for each in responses] == [200, 200, 200, 200]
        assert responses[1]["body"]["metadata"]["deletionTimestamp"]
        assert (await api.ask("GET", f"{CLAIMS}/c")).code == 404


async def test_a_gang_starts_together_or_not_at_all(backend: Backend) -> None:
    """N pods and their claims; the last device is somebody else's."""
    async with serving_on(backend) as api:
        await api.create(node())
        await api.create(resource_slice("s", devices=4))
        gang = [await api.create(pod(f"p{number}")) for number in range(4)]
        for number in range(4):
            await api.create(claim(f"c{number}"))
        await api.create(claim("theirs"))
        await commit(api, allocate("theirs", "gpu-3"))
        requests = [
            request
            for number, member in enumerate(gang)
            for request in (allocate(f"c{number}", f"gpu-{number}", member), bind(f"p{number}"))
        ]
        before = await read_revision(api)
        refused = await send(api, *requests)
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert "request 7 of 8 (patch resourceclaims/status default/c3)" in refused.message
        assert "gpu.example.com/node-a/gpu-3" in refused.message
        assert "default/theirs" in refused.message
        assert await read_revision(api) == before
        pods = (await api.get(PODS))["items"]
        assert [each["spec"].get("nodeName") for each in pods] == [None] * 4
        await commit(api, delete(f"{CLAIMS}/theirs"), *requests)
        pods = (await api.get(PODS))["items"]
        assert [each["spec"].get("nodeName") for each in pods] == ["node-a"] * 4


async def test_two_claims_of_one_transaction_do_not_share_a_device(backend: Backend) -> None:
    async with serving_on(backend) as api:
        await api.create(resource_slice("s"))
        refused = await send(
            api,
            post(CLAIMS, claim("a")),
            post(CLAIMS, claim("b")),
            allocate("a", "gpu-0"),
            allocate("b", "gpu-0"),
        )
        assert refused.code == 409
        assert "request 4 of 4" in refused.message
        assert "default/a" in refused.message
        assert await api.names(CLAIMS) == []


REFUSED = {
    "not found": (404, delete(f"{CONFIGS}/none")),
    "exists": (409, post(CONFIGS, config("there"))),
    "invalid": (
        422,
        post(CLAIMS, claim("bad", requests=[{"name": "Bad_Name", "exactly": {"deviceClassName": "x"}}])),
    ),
    "wrong type": (422, patch(f"{CONFIGS}/there", {"data": {"n": 1}})),
    "unknown field": (400, post(f"{CONFIGS}?fieldValidation=Strict", config("b") | {"unknown": 1})),
    "no namespace": (404, post(path("configmaps", namespace="none"), config("b", "none"))),
    "field manager": (422, post(f"{CONFIGS}?fieldManager={'x' * 200}", config("b"))),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_refused_request_refuses_the_transaction(backend: Backend, why: str) -> None:
    code, bad = REFUSED[why]
    async with serving_on(backend) as api:
        await api.create(config("there"))
        alone = await send_single(api, bad)
        refused = await send(api, post(CONFIGS, config("a")), bad, post(CONFIGS, config("c")))
        assert (refused.code, refused.reason) == (code, alone.reason)
        assert refused.message.startswith("request 2 of 3 (")
        assert refused.message.endswith(f"): {alone.message}")
        details = refused.document["details"]
        causes = details.pop("causes")
        assert causes[-1]["reason"] == "TransactionRequestFailed"
        assert causes[-1]["field"] == "spec.requests[1]"
        expected = alone.document.get("details") or {}
        assert (details, causes[:-1]) == (
            {name: value for name, value in expected.items() if name != "causes"},
            expected.get("causes", []),
        )
        assert await api.names(CONFIGS) == ["there"]


async def test_a_precondition_holds_for_what_was_before_the_transaction(backend: Backend) -> None:
    async with serving_on(backend) as api:
        made = await api.create(config("a"))
        version, uid = made["metadata"]["resourceVersion"], made["metadata"]["uid"]
        guarded = patch(f"{CONFIGS}/a", {"metadata": {"resourceVersion": version}, "data": {"x": "1"}})
        unguarded = patch(f"{CONFIGS}/a", {"data": {"y": "1"}})
        stale = await send(api, unguarded, guarded)
        assert (stale.code, stale.reason) == (409, "Conflict")
        by_uid = delete(f"{CONFIGS}/a", {"preconditions": {"uid": uid}})
        await commit(api, guarded, unguarded, by_uid)
        assert await api.names(CONFIGS) == []


async def test_a_request_that_changes_nothing_is_answered_with_the_object(backend: Backend) -> None:
    async with serving_on(backend) as api:
        made = await api.create(config("a"))
        same, changed, again = await commit(
            api,
            patch(f"{CONFIGS}/a", {"data": {"key": "value"}}),
            patch(f"{CONFIGS}/a", {"data": {"key": "other"}}),
            patch(f"{CONFIGS}/a", {"data": {"key": "other"}}),
        )
        assert same["body"] == made
        assert again["body"] == changed["body"]
        assert int(changed["body"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_names_are_generated_and_patches_have_every_form(backend: Backend) -> None:
    async with serving_on(backend) as api:
        unnamed = config("") | {"metadata": {"generateName": "g-"}}
        responses = await commit(
            api,
            post(CONFIGS, unnamed),
            post(CONFIGS, config("a")),
            patch(f"{CONFIGS}/a", [{"op": "add", "path": "/data/x", "value": "1"}], JSON_PATCH),
            put(f"{CONFIGS}/a", config("a") | {"data": {"new": "1"}}),
        )
        assert responses[0]["body"]["metadata"]["name"].startswith("g-")
        assert responses[2]["body"]["data"] == {"key": "value", "x": "1"}
        assert responses[3]["body"]["data"] == {"new": "1"}


async def test_fields_have_the_managers_of_single_writes(backend: Backend) -> None:
    async with serving_on(backend) as api:
        requests = [
            post(f"{CONFIGS}?fieldManager=one", config("a")),
            patch(f"{CONFIGS}/a?fieldManager=two", {"data": {"x": "1"}}),
        ]
        together = (await commit(api, *requests))[1]["body"]
        await api.delete(f"{CONFIGS}/a")
        alone = [await send_single(api, each) for each in requests][1].document

        def read_managers(document: dict[str, Any]) -> list[dict[str, Any]]:
            return [entry | {"time": ""} for entry in document["metadata"]["managedFields"]]

        assert read_managers(together) == read_managers(alone)
        assert [entry["manager"] for entry in read_managers(together)] == ["one", "two"]


async def test_a_quota_counts_every_object_of_a_transaction(backend: Backend) -> None:
    async with serving_on(backend) as api:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "2"}},
        }
        await api.create(quota, path("resourcequotas"))
        refused = await send(api, *(post(CLAIMS, claim(name)) for name in "abc"))
        assert refused.code == 403
        assert "exceeded quota" in refused.message
        assert await api.names(CLAIMS) == []
        await commit(api, *(post(CLAIMS, claim(name)) for name in "ab"))
        status = (await api.get(path("resourcequotas", "q")))["status"]
        assert status["used"] == {"count/resourceclaims.resource.k8s.io": "2"}
        await commit(api, delete(f"{CLAIMS}/a"), post(CLAIMS, claim("c")))


async def test_warnings_of_all_requests_are_sent(backend: Backend) -> None:
    async with serving_on(backend) as api:
        reply = await send(
            api,
            post(CONFIGS, config("a") | {"first": 1}),
            post(CONFIGS, config("b") | {"second": 1}),
        )
        assert reply.code == 201
        assert 'unknown field \\"first\\"' in reply.warnings


async def test_a_webhook_that_reviews_a_request_leaves_it_to_single_writes() -> None:
    async with hooked() as world:
        await world.configure("validating", "c", world.entry(rules=[CLAIM_RULE]))
        refused = await send(world.api, post(CONFIGS, config("a")), post(CLAIMS, claim("c")))
        assert (refused.code, refused.reason) == (501, "NotImplemented")
        assert "send the requests one by one" in refused.message
        assert world.hook.requests("/check") == []
        assert await world.api.names(CONFIGS) == []
        await commit(world.api, post(CONFIGS, config("a")), post(CONFIGS, config("b")))


async def test_a_webhook_that_reviews_bindings_leaves_them_to_single_writes() -> None:
    async with hooked() as world:
        await world.api.create(pod("p"))
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods/binding"]}
        await world.configure("validating", "c", world.entry(rules=[rule]))
        assert (await send(world.api, bind("p"))).code == 501


async def test_discovery_lists_transactions_of_stores_that_commit_them(backend: Backend) -> None:
    async with serving_on(backend) as api:
        resources = (await api.get("/apis/dray.dev/v1alpha1"))["resources"]
        (row,) = [each for each in resources if each["name"] == "transactions"]
        assert (row["kind"], row["namespaced"], row["verbs"]) == ("Transaction", False, ["create"])
        schemas = (await api.get("/openapi/v3/apis/dray.dev/v1alpha1"))["components"]["schemas"]
        assert "dev.dray.v1alpha1.Transaction" in schemas


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_transactions_are_only_created(method: str) -> None:
    async with serving() as api:
        assert (await api.ask(method, TRANSACTIONS_PATH)).code == 405
        assert (await api.ask(method, f"{TRANSACTIONS_PATH}/a")).code == 404


async def test_a_server_on_etcd_has_no_transactions(etcd: tuple[str, ...]) -> None:
    from dray.store.etcd.store import EtcdStore

    prefix = f"/no-transactions-{next(numbers)}/".encode()
    store = await EtcdStore.open(etcd, prefix=prefix, timeout=20)
    try:
        async with serving(store) as api:
            resources = (await api.get("/apis/dray.dev/v1alpha1"))["resources"]
            assert [each["name"] for each in resources] == ["preparations"]
            assert (await send(api, post(CONFIGS, config("a")))).code == 404
    finally:
        await store.close()
