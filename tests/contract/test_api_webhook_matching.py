"""Which requests admission webhooks review, where they are called, and who may configure them."""

from __future__ import annotations

import asyncio
import base64

from dray.store.memory import MemoryStore
from tests.contract.api import path
from tests.contract.documents import claim, config, namespace, node, old_claim, pod
from tests.contract.hooked import CONFIG_RULE, SERVICE, home, hooked, labelled, patched, tried

CLAIMS = path("resourceclaims")
CONFIGS = path("configmaps")


def test_a_webhook_gets_the_object_in_the_version_of_its_rule():
    async def scenario() -> None:
        async with hooked() as world:
            count = {"op": "replace", "path": "/spec/devices/requests/0/exactly/count", "value": 3}
            world.hook.on("/change", lambda _asked: patched(count))
            await world.configure("mutating", "m", world.entry("/change"))
            await world.configure(
                "validating", "v", world.entry(), world.entry("/exact", matchPolicy="Exact")
            )
            response = await tried(world, old_claim("a"))
            assert response.code == 201
            assert response.document["apiVersion"] == "resource.k8s.io/v1beta1"
            assert response.document["spec"]["devices"]["requests"][0]["count"] == 3
            assert world.hook.order == ["/change", "/check"]
            (asked,) = world.hook.requests("/check")
            assert asked["object"]["apiVersion"] == "resource.k8s.io/v1"
            assert asked["object"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 3
            assert (asked["resource"]["version"], asked["requestResource"]["version"]) == ("v1", "v1beta1")
            assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v1", "v1beta1")

    asyncio.run(scenario())


def test_webhooks_review_subresources_that_their_rules_name():
    async def scenario() -> None:
        async with hooked() as world:
            rule = {**CONFIG_RULE, "resources": ["pods/status", "pods/binding", "pods/eviction"]}
            await world.configure("validating", "c", world.entry(rules=[rule]))
            await world.api.create(node())
            await world.api.create(pod("p"))
            where = path("pods", "p")
            await world.api.patch(f"{where}/status", {"status": {"message": "m"}})
            binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node-a"}}
            await world.api.create(binding | {"metadata": {"name": "p"}}, f"{where}/binding")
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
            world.hook.on("/check", lambda asked: {"allowed": asked["subResource"] != "eviction"})
            response = await world.api.ask("POST", f"{where}/eviction", eviction)
            assert "denied the request" in response.message
            reviewed = [
                (asked["operation"], asked["subResource"], asked["kind"]["kind"], asked["name"])
                for asked in world.hook.requests("/check")
            ]
            assert reviewed == [
                ("UPDATE", "status", "Pod", "p"),
                ("CREATE", "binding", "Binding", "p"),
                ("CREATE", "eviction", "Eviction", "p"),
            ]

    asyncio.run(scenario())


def test_a_pod_that_a_webhook_changed_gets_the_priority_of_its_class():
    async def scenario() -> None:
        async with hooked() as world:
            high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
            where = "/apis/scheduling.k8s.io/v1/priorityclasses"
            await world.api.create({**high, "metadata": {"name": "high"}}, where)
            world.hook.on("/add", lambda asked: labelled(asked, "seen"))
            rule = {**CONFIG_RULE, "resources": ["pods"]}
            await world.configure("mutating", "c", world.entry("/add", rules=[rule]))
            wanted = pod("p")
            wanted["spec"]["priorityClassName"] = "high"
            made = await world.api.create(wanted)
            assert (made["spec"]["priority"], made["metadata"]["labels"]) == (1000, {"seen": "yes"})
            (asked,) = world.hook.requests("/add")
            assert asked["object"]["spec"]["priority"] == 1000
            assert asked["object"]["spec"]["restartPolicy"] == "Always"

    asyncio.run(scenario())


def test_webhooks_match_labels_of_namespace_and_object():
    async def scenario() -> None:
        async with hooked() as world:
            await world.api.create(
                {**namespace("ours"), "metadata": {"name": "ours", "labels": {"team": "a"}}}
            )
            await world.configure(
                "validating",
                "c",
                world.entry("/there", namespaceSelector={"matchLabels": {"team": "a"}}, rules=[CONFIG_RULE]),
                world.entry("/those", objectSelector={"matchLabels": {"app": "x"}}, rules=[CONFIG_RULE]),
            )
            await world.api.create(config("plain"))
            assert world.hook.order == []
            await world.api.create(config("plain", "ours"))
            assert world.hook.order == ["/there"]
            await world.api.create(config("chosen", labels={"app": "x"}))
            assert world.hook.order == ["/there", "/those"]
            # it was chosen until now
            await world.api.patch(f"{CONFIGS}/chosen", {"metadata": {"labels": None}})
            assert world.hook.order == ["/there", "/those", "/those"]

    asyncio.run(scenario())


def test_match_conditions_read_request_and_object():
    async def scenario() -> None:
        async with hooked() as world:
            mine = {
                "name": "not-the-system",
                "expression": "!request.userInfo.username.startsWith('system:')",
            }
            small = {"name": "large", "expression": "object.spec.devices.requests[0].exactly.count > 1"}
            await world.configure("validating", "c", world.entry(matchConditions=[mine, small]))
            many = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}]
            await world.api.as_user("system:kube-scheduler", "system:masters").create(
                claim("a", requests=many)
            )
            assert (await tried(world, claim("b"))).code == 201
            assert world.hook.order == []
            # asked in the version of the rule, and judged in it
            assert (await tried(world, old_claim("c"))).code == 201
            assert world.hook.order == ["/check"]

    asyncio.run(scenario())


def test_a_failing_match_condition_follows_the_failure_policy():
    async def scenario() -> None:
        async with hooked() as world:
            broken = [{"name": "broken", "expression": "object.nothing == 1"}]
            lax = world.entry("/lax", matchConditions=broken, failurePolicy="Ignore")
            await world.configure("validating", "a", lax)
            assert (await tried(world, claim("a"))).code == 201
            await world.configure("validating", "b", world.entry(matchConditions=broken))
            response = await tried(world, claim("b"))
            assert (response.code, response.reason) == (500, "InternalError")
            assert (
                'failed calling webhook "check.example.com": match condition `broken`: no such key'
                in response.message
            )
            assert world.hook.order == []

    asyncio.run(scenario())


def test_configurations_apply_once_acknowledged_and_until_deleted():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/check", lambda _asked: {"allowed": False})
            for name in ("a", "b", "c"):
                await world.configure("validating", name, world.entry())
                assert (await tried(world, claim(name))).code == 400
                await world.api.delete(home("validating", name))
                assert (await tried(world, claim(name))).code == 201

    asyncio.run(scenario())


def test_another_server_on_the_same_store_calls_the_webhook_at_once():
    async def scenario() -> None:
        store = MemoryStore()
        async with hooked(store) as one, hooked(store) as other:
            one.hook.on("/check", lambda _asked: {"allowed": False})
            await one.configure("validating", "c", one.entry())
            assert (await tried(other, claim("a"))).code == 400
        await store.close()

    asyncio.run(scenario())


def test_webhook_configurations_are_not_reviewed_by_webhooks():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/check", lambda _asked: {"allowed": False})
            everything = {name: ["*"] for name in ("apiGroups", "apiVersions", "operations")}
            await world.configure(
                "validating", "c", world.entry(rules=[{**everything, "resources": ["*/*"]}])
            )
            assert (await tried(world, claim("a"))).code == 400
            await world.configure("mutating", "d", world.entry())
            await world.api.delete(home("validating", "c"))
            assert {asked["resource"]["resource"] for _, asked in world.hook.asked} == {"resourceclaims"}

    asyncio.run(scenario())


def test_writes_of_the_garbage_collector_are_not_reviewed():
    async def scenario() -> None:
        async with hooked() as world:
            await world.api.create(namespace("gone"))
            await world.api.create(config("c", "gone"))
            world.hook.on("/check", lambda _asked: {"allowed": False})
            await world.configure("validating", "c", world.entry(rules=[CONFIG_RULE]))
            await world.api.delete("/api/v1/namespaces/gone")
            await world.api.gone("/api/v1/namespaces/gone")
            assert world.hook.asked == []

    asyncio.run(scenario())


def test_a_webhook_service_is_called_at_its_configured_address():
    async def scenario() -> None:
        reference = {"namespace": SERVICE[0], "name": SERVICE[1], "path": "/check"}
        async with hooked(services={SERVICE: ""}) as world:
            entry = world.entry()
            bundle = entry["clientConfig"]["caBundle"]
            response = await world.configure(
                "validating", "c", {**entry, "clientConfig": {"service": reference, "caBundle": bundle}}
            )
            assert response.warnings == ""
            assert (await tried(world, claim("a"))).code == 201
            assert world.hook.order == ["/check"]

    asyncio.run(scenario())


def test_the_certificate_of_a_service_must_name_it():
    async def scenario() -> None:
        async with hooked(services={("system", "other"): ""}) as world:
            client = {**world.entry()["clientConfig"], "service": {"namespace": "system", "name": "other"}}
            del client["url"]
            await world.configure("validating", "c", world.entry(clientConfig=client))
            response = await tried(world, claim("a"))
            assert response.code == 500
            assert "service other.system.svc at" in response.message
            assert "shows a certificate that is not trusted" in response.message

    asyncio.run(scenario())


def test_a_service_without_an_address_has_a_hint():
    async def scenario() -> None:
        reference = {"namespace": "gpu", "name": "hook"}
        async with hooked() as world:
            entry = {**world.entry(), "clientConfig": {"service": reference}}
            response = await world.configure("validating", "c", entry)
            assert "--webhook-service gpu/hook=HOST:PORT" in response.warnings
            response = await tried(world, claim("a"))
            assert (response.code, response.reason) == (500, "InternalError")
            assert response.message == (
                'Internal error occurred: failed calling webhook "check.example.com": this server does not '
                "know where service gpu/hook is: start it with `--webhook-service gpu/hook=HOST:PORT`, "
                "or give a `url` in clientConfig"
            )

    asyncio.run(scenario())


def test_only_administrators_write_configurations():
    async def scenario() -> None:
        async with hooked() as world:
            editor = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "ed"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ed"}],
            }
            await world.api.create(editor, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
            ed = world.api.as_user("ed")
            await ed.until(CLAIMS, lambda response: response.code == 200)
            assert (await ed.ask("POST", CLAIMS, claim("a"))).code == 201
            for sort in ("validating", "mutating"):
                for method in ("GET", "POST", "DELETE"):
                    assert (await ed.ask(method, home(sort), {})).code == 403

    asyncio.run(scenario())


def test_unknown_fields_of_configurations_are_reported():
    async def scenario() -> None:
        async with hooked() as world:
            response = await world.configure("validating", "c", {**world.entry(), "failurepolicy": "Ignore"})
            assert "webhooks[0].failurepolicy" in response.warnings
            assert "did you mean `failurePolicy`?" in response.warnings
            bad = {**world.entry(), "sideEffects": "Some", "clientConfig": {"url": "http://a"}}
            document = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "d"},
                "webhooks": [bad],
            }
            response = await world.api.ask("POST", home("validating"), document)
            assert (response.code, response.reason) == (422, "Invalid")
            fields = {cause["field"] for cause in response.document["details"]["causes"]}
            assert fields == {"webhooks[0].clientConfig.url", "webhooks[0].sideEffects"}

    asyncio.run(scenario())


def test_a_ca_bundle_is_stored_as_written():
    async def scenario() -> None:
        async with hooked() as world:
            await world.configure("validating", "c", world.entry())
            stored = await world.api.get(home("validating", "c"))
            bundle = stored["webhooks"][0]["clientConfig"]["caBundle"]
            assert base64.b64decode(bundle).startswith(b"-----BEGIN CERTIFICATE-----")
            assert stored["metadata"]["generation"] == 1

    asyncio.run(scenario())
