"""Admission webhooks: reviews, mutations, denials, and what clients and the audit log get of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.api import APPLY, MERGE, path
from tests.contract.documents import allocation, claim, config, resource_slice
from tests.contract.hooked import CLAIM_RULE, CONFIG_RULE, hanging, hooked, labelled, patched, soon, tried

CLAIMS = path("resourceclaims")
CONFIGS = path("configmaps")


def test_an_admission_review_is_complete():
    async def scenario() -> None:
        async with hooked() as world:
            await world.configure("validating", "c", world.entry())
            caller = world.api.as_user("ann", "system:masters", "staff")
            await caller.create(claim("a", labels={"x": "y"}), fieldManager="me")
            (asked,) = world.hook.requests("/check")
            uid, new = asked.pop("uid"), asked.pop("object")
            assert uid
            assert (new["metadata"]["name"], new["metadata"]["labels"]) == ("a", {"x": "y"})
            assert new["metadata"]["uid"]
            # as it will be stored, with its defaults
            assert new["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
            asked["userInfo"]["groups"].sort()
            kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
            resource = {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"}
            assert asked == {
                "kind": kind,
                "resource": resource,
                "requestKind": kind,
                "requestResource": resource,
                "name": "a",
                "namespace": "default",
                "operation": "CREATE",
                "userInfo": {
                    "username": "ann",
                    "groups": ["staff", "system:authenticated", "system:masters"],
                },
                "oldObject": None,
                "dryRun": False,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"},
            }

    asyncio.run(scenario())


def test_a_denial_has_the_message_and_code_of_the_webhook():
    async def scenario() -> None:
        async with hooked() as world:
            status = {"code": 422, "reason": "Invalid", "message": "speed: must be at most 9"}
            world.hook.on(
                "/check", lambda _asked: {"allowed": False, "status": status, "warnings": ["mind it"]}
            )
            await world.configure("validating", "c", world.entry())
            response = await tried(world, claim("a"))
            assert (response.code, response.reason) == (422, "Invalid")
            assert response.message == (
                'admission webhook "check.example.com" denied the request: speed: must be at most 9'
            )
            assert "mind it" in response.warnings
            assert (await world.api.ask("GET", f"{CLAIMS}/a")).code == 404
            labels = ('webhook="check.example.com"', 'type="validating"', 'outcome="denied"')
            assert await world.metric("dray_webhook_requests_total", *labels, 'operation="CREATE"') == 1
            assert await world.metric("dray_webhook_duration_seconds_count", *labels) == 1

    asyncio.run(scenario())


def test_warnings_go_to_the_client_and_annotations_into_the_audit_log():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on(
                "/check",
                lambda _asked: {
                    "allowed": True,
                    "warnings": ["deprecated\r\nx-evil: 1", "and more"],
                    "auditAnnotations": {"policy": "seven"},
                },
            )
            await world.configure("validating", "c", world.entry())
            response = await tried(world, claim("a"))
            assert response.code == 201
            assert '299 - "deprecated x-evil: 1"' in response.warnings
            assert "and more" in response.warnings
            assert "x-evil" not in response.headers
            lines = world.recorded()
            (noted,) = [line for line in lines if line["event"] == "annotated"]
            assert noted["annotations"] == {"check.example.com/policy": "seven"}
            (done,) = [line for line in lines if line["event"] == "complete" and line["id"] == noted["id"]]
            assert (done["verb"], done["resource"]) == ("create", "resourceclaims")

    asyncio.run(scenario())


def test_a_mutated_object_gets_defaults_and_is_validated():
    async def scenario() -> None:
        async with hooked() as world:
            more = {"name": "more", "exactly": {"deviceClassName": "gpu.example.com"}}
            world.hook.on("/add", lambda asked: labelled(asked, "team"))
            world.hook.on(
                "/grow",
                lambda _asked: patched({"op": "add", "path": "/spec/devices/requests/-", "value": more}),
            )
            await world.configure("mutating", "c", world.entry("/add"), world.entry("/grow"))
            made = await world.api.create(claim("a"))
            assert made["metadata"]["labels"] == {"team": "yes"}
            assert [each["exactly"]["count"] for each in made["spec"]["devices"]["requests"]] == [1, 1]
            # the second saw what the first did
            assert world.hook.requests("/grow")[0]["object"]["metadata"]["labels"] == {"team": "yes"}
            world.hook.on(
                "/grow",
                lambda _asked: patched({"op": "add", "path": "/spec/devices/requests/0/name", "value": "X"}),
            )
            response = await tried(world, claim("b"))
            assert (response.code, response.reason) == (422, "Invalid")
            assert "spec.devices.requests[0].name" in response.message

    asyncio.run(scenario())


def test_a_webhook_may_correct_an_invalid_object():
    async def scenario() -> None:
        async with hooked() as world:
            name = {"op": "add", "path": "/spec/devices/requests/0/name", "value": "gpu"}
            world.hook.on("/mend", lambda _asked: patched(name))
            await world.configure("mutating", "c", world.entry("/mend"))
            asked = [{"name": "", "exactly": {"deviceClassName": "gpu.example.com"}}]
            made = await world.api.create(claim("a", requests=asked))
            assert made["spec"]["devices"]["requests"][0]["name"] == "gpu"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ({"op": "replace", "path": "/metadata/name", "value": "z"}, "may not change `metadata.name`"),
        ({"op": "replace", "path": "/kind", "value": "Pod"}, "may not change `kind`"),
        ({"op": "remove", "path": "/metadata"}, "may not change `metadata.name`"),
        ({"op": "remove", "path": "/nowhere"}, "sent a patch that cannot be used"),
        ({"op": "add", "path": "/spec/devices", "value": 7}, "sent a patch that cannot be used"),
    ],
)
def test_a_patch_that_makes_another_object_or_none_is_refused_whatever_the_policy(operation, text):
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/spoil", lambda _asked: patched(operation))
            await world.configure("mutating", "c", world.entry("/spoil", failurePolicy="Ignore"))
            response = await tried(world, claim("a"))
            assert (response.code, response.reason) == (500, "InternalError")
            assert 'admission webhook "spoil.example.com"' in response.message
            assert text in response.message

    asyncio.run(scenario())


def test_an_allocation_by_a_webhook_is_reviewed_by_the_ledger():
    async def scenario() -> None:
        async with hooked() as world:
            await world.api.create(resource_slice("s"))
            for name in ("a", "b"):
                await world.api.create(claim(name))
            given = {"status": {"allocation": allocation("gpu-0")}}
            await world.api.patch(f"{CLAIMS}/a/status", given)
            place = "/status/allocation/devices/results/0/device"
            world.hook.on(
                "/steal", lambda _asked: patched({"op": "replace", "path": place, "value": "gpu-0"})
            )
            rule = {**CLAIM_RULE, "resources": ["resourceclaims/status"]}
            await world.configure("mutating", "c", world.entry("/steal", rules=[rule]))
            other = {"status": {"allocation": allocation("gpu-1")}}
            response = await world.api.ask(
                "PATCH", f"{CLAIMS}/b/status", other, headers={"content-type": MERGE}
            )
            assert (response.code, response.reason) == (409, "Conflict")
            assert "gpu-0" in response.message
            assert "status" not in await world.api.get(f"{CLAIMS}/b")

    asyncio.run(scenario())


def test_mutating_webhooks_run_first_in_the_order_of_configurations():
    async def scenario() -> None:
        async with hooked() as world:
            await world.configure("validating", "a", world.entry("/v1"))
            await world.configure("mutating", "z", world.entry("/z1"), world.entry("/z2"))
            await world.configure("mutating", "m", world.entry("/m1"))
            await world.api.create(claim("a"))
            assert world.hook.order == ["/m1", "/z1", "/z2", "/v1"]

    asyncio.run(scenario())


def test_validating_webhooks_run_concurrently():
    async def scenario() -> None:
        async with hooked() as world:
            both = asyncio.Barrier(2)

            async def meet(_asked: Any) -> dict[str, Any]:
                await both.wait()
                return {"allowed": True}

            world.hook.on("/one", meet)
            world.hook.on("/two", meet)
            await world.configure("validating", "c", world.entry("/one"), world.entry("/two"))
            assert (await tried(world, claim("a"))).code == 201

    asyncio.run(scenario())


def test_reinvocation_calls_a_webhook_once_more():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/late", lambda asked: labelled(asked, "late"))
            await world.configure(
                "mutating",
                "c",
                world.entry("/curious", reinvocationPolicy="IfNeeded"),
                world.entry("/plain"),
                world.entry("/late"),
            )
            await world.api.create(claim("a"))
            assert world.hook.order == ["/curious", "/plain", "/late", "/curious"]
            first, second = world.hook.requests("/curious")
            assert "labels" not in first["object"]["metadata"]
            assert second["object"]["metadata"]["labels"] == {"late": "yes"}

    asyncio.run(scenario())


def test_reviews_of_updates_patches_and_deletes_have_the_old_object():
    async def scenario() -> None:
        async with hooked() as world:
            await world.api.create(claim("a"))
            await world.configure("validating", "c", world.entry())
            where = f"{CLAIMS}/a"
            await world.api.patch(where, {"metadata": {"labels": {"a": "b"}}})
            stored = await world.api.get(where)
            await world.api.put({**stored, "metadata": {**stored["metadata"], "labels": {"a": "c"}}}, where)
            await world.api.delete(where)
            reviewed = [
                (
                    asked["operation"],
                    ((asked["oldObject"] or {}).get("metadata") or {}).get("labels"),
                    ((asked["object"] or {}).get("metadata") or {}).get("labels"),
                    asked["options"]["kind"],
                )
                for asked in world.hook.requests("/check")
            ]
            assert reviewed == [
                ("UPDATE", None, {"a": "b"}, "UpdateOptions"),
                ("UPDATE", {"a": "b"}, {"a": "c"}, "UpdateOptions"),
                ("DELETE", {"a": "c"}, None, "DeleteOptions"),
            ]

    asyncio.run(scenario())


def test_deletes_and_collection_deletes_may_be_denied_and_reads_are_not_reviewed():
    async def scenario() -> None:
        async with hooked() as world:
            await world.api.create(claim("a"))
            world.hook.on("/check", lambda asked: {"allowed": asked["operation"] != "DELETE"})
            await world.configure("validating", "c", world.entry())
            response = await world.api.ask("DELETE", f"{CLAIMS}/a")
            assert response.code == 400
            assert (
                response.message
                == 'admission webhook "check.example.com" denied the request without explanation'
            )
            assert (await world.api.ask("DELETE", CLAIMS)).code == 400
            assert await world.api.names(CLAIMS) == ["a"]
            assert [asked["name"] for asked in world.hook.requests("/check")] == ["a", "a"]

    asyncio.run(scenario())


def test_apply_creates_and_changes_through_webhooks():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/add", lambda asked: labelled(asked, asked["operation"].lower()))
            await world.configure("mutating", "c", world.entry("/add"))
            for _ in range(2):
                await world.api.patch(f"{CLAIMS}/a", claim("a"), APPLY, fieldManager="me")
            stored = await world.api.get(f"{CLAIMS}/a")
            assert stored["metadata"]["labels"] == {"create": "yes", "update": "yes"}

    asyncio.run(scenario())


def test_the_review_of_a_dry_run_says_so_and_nothing_is_stored():
    async def scenario() -> None:
        async with hooked() as world:
            await world.configure("validating", "c", world.entry())
            assert (await tried(world, claim("a"), dryRun="All")).code == 201
            (asked,) = world.hook.requests("/check")
            assert asked["dryRun"] is True
            assert asked["options"]["dryRun"] == ["All"]
            assert (await world.api.ask("GET", f"{CLAIMS}/a")).code == 404

    asyncio.run(scenario())


def test_a_conflict_on_the_object_calls_the_webhook_again():
    async def scenario() -> None:
        async with hooked() as world:
            await world.api.create(config("c"))
            await world.configure("validating", "c", world.entry(rules=[CONFIG_RULE]))
            seen, go = asyncio.Event(), asyncio.Event()

            async def slow(asked: dict[str, Any]) -> dict[str, Any]:
                if (asked["object"]["metadata"].get("labels") or {}).get("who") == "slow" and not go.is_set():
                    seen.set()
                    await go.wait()
                return {"allowed": True}

            world.hook.on("/check", slow)
            where = f"{CONFIGS}/c"
            first = asyncio.create_task(world.api.patch(where, {"metadata": {"labels": {"who": "slow"}}}))
            await seen.wait()
            await world.api.patch(where, {"metadata": {"labels": {"other": "one"}}})
            go.set()
            assert (await first)["metadata"]["labels"] == {"who": "slow", "other": "one"}
            final = world.hook.requests("/check")[-1]
            # it saw the object that was stored, beside the one that stood there
            assert final["object"]["metadata"]["labels"] == {"who": "slow", "other": "one"}
            assert final["oldObject"]["metadata"]["labels"] == {"other": "one"}

    asyncio.run(scenario())


def test_other_writes_do_not_wait_for_a_webhook_call():
    async def scenario() -> None:
        async with hooked() as world:
            never = asyncio.Event()
            world.hook.on("/check", hanging(never))
            await world.configure("validating", "c", world.entry())
            waiting = asyncio.create_task(tried(world, claim("a")))
            await soon(lambda: world.hook.order == ["/check"])
            await world.api.create(config("c"))
            assert (await world.api.get(CLAIMS))["items"] == []
            assert not waiting.done()
            never.set()
            assert (await waiting).code == 201

    asyncio.run(scenario())


def test_the_largest_objects_are_reviewed():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/add", lambda asked: labelled(asked, "seen"))
            await world.configure("mutating", "m", world.entry("/add", rules=[CONFIG_RULE]))
            await world.configure("validating", "v", world.entry(rules=[CONFIG_RULE]))
            large = {**config("large"), "data": {"key": "x" * (1024 * 1024)}}
            response = await tried(world, large)
            assert (response.code, response.document["metadata"].get("labels")) == (201, {"seen": "yes"})
            (asked,) = world.hook.requests("/check")
            assert asked["object"]["data"] == large["data"]

    asyncio.run(scenario())


def test_webhook_connections_are_reused():
    async def scenario() -> None:
        async with hooked() as world:
            await world.configure("validating", "c", world.entry())
            for number in range(5):
                await world.api.create(claim(f"c-{number}"))
            assert len(world.hook.connections) == 1

    asyncio.run(scenario())
