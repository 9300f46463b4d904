"""Which requests admission webhooks are asked about, where they are found, and who may configure them."""

from __future__ import annotations

import asyncio
import base64

from dray.store.memory import MemoryStore
from tests.contract.api import path
from tests.contract.documents import claim, config, namespace, node, old_claim, pod
from tests.contract.hooked import CONFIG_RULE, SERVICE, home, hooked, labelled, patched, tried

CLAIMS = path("resourceclaims")
CONFIGS = path("configmaps")


def test_an_older_version_is_asked_about_in_the_version_that_a_rule_names():
    async def story() -> None:
        async with hooked() as world:
            count = {"op": "replace", "path": "/spec/devices/requests/0/exactly/count", "value": 3}
            world.hook.on("/change", lambda _asked: patched(count))
            await world.configure("mutating", "m", world.entry("/change"))
            await world.configure(
                "validating", "v", world.entry(), world.entry("/exact", matchPolicy="Exact")
            )
            said = await tried(world, old_claim("a"))
            assert said.code == 201
            assert said.document["apiVersion"] == "resource.k8s.io/v1beta1"
            assert said.document["spec"]["devices"]["requests"][0]["count"] == 3
            assert world.hook.order == ["/change", "/check"]
            (asked,) = world.hook.requests("/check")
            assert asked["object"]["apiVersion"] == "resource.k8s.io/v1"
            assert asked["object"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 3
            assert (asked["resource"]["version"], asked["requestResource"]["version"]) == ("v1", "v1beta1")
            assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v1", "v1beta1")

    asyncio.run(story())


def test_subresources_are_asked_about_where_rules_name_them():
    async def story() -> None:
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
            said = await world.api.ask("POST", f"{where}/eviction", eviction)
            assert "denied the request" in said.message
            told = [
                (asked["operation"], asked["subResource"], asked["kind"]["kind"], asked["name"])
                for asked in world.hook.requests("/check")
            ]
            assert told == [
                ("UPDATE", "status", "Pod", "p"),
                ("CREATE", "binding", "Binding", "p"),
                ("CREATE", "eviction", "Eviction", "p"),
            ]

    asyncio.run(story())


def test_a_pod_that_a_webhook_changed_is_as_important_as_its_class_says():
    async def story() -> None:
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

    asyncio.run(story())


def test_selectors_choose_by_labels_of_namespace_and_object():
    async def story() -> None:
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

    asyncio.run(story())


def test_conditions_decide_by_request_and_object():
    async def story() -> None:
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

    asyncio.run(story())


def test_a_condition_that_fails_refuses_or_is_ignored_as_configured():
    async def story() -> None:
        async with hooked() as world:
            broken = [{"name": "broken", "expression": "object.nothing == 1"}]
            lax = world.entry("/lax", matchConditions=broken, failurePolicy="Ignore")
            await world.configure("validating", "a", lax)
            assert (await tried(world, claim("a"))).code == 201
            await world.configure("validating", "b", world.entry(matchConditions=broken))
            said = await tried(world, claim("b"))
            assert (said.code, said.reason) == (500, "InternalError")
            assert (
                'failed calling webhook "check.example.com": match condition `broken`: no such key'
                in said.message
            )
            assert world.hook.order == []

    asyncio.run(story())


def test_configurations_are_in_force_when_acknowledged_and_out_of_force_when_gone():
    async def story() -> None:
        async with hooked() as world:
            world.hook.on("/check", lambda _asked: {"allowed": False})
            for name in ("a", "b", "c"):
                await world.configure("validating", name, world.entry())
                assert (await tried(world, claim(name))).code == 400
                await world.api.delete(home("validating", name))
                assert (await tried(world, claim(name))).code == 201

    asyncio.run(story())


def test_another_server_on_the_same_store_asks_at_once():
    async def story() -> None:
        store = MemoryStore()
        async with hooked(store) as one, hooked(store) as other:
            one.hook.on("/check", lambda _asked: {"allowed": False})
            await one.configure("validating", "c", one.entry())
            assert (await tried(other, claim("a"))).code == 400
        await store.close()

    asyncio.run(story())


def test_nobody_is_asked_about_configurations_so_that_a_mistake_can_be_mended():
    async def story() -> None:
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

    asyncio.run(story())


def test_what_the_server_collects_by_itself_is_not_asked_about():
    async def story() -> None:
        async with hooked() as world:
            await world.api.create(namespace("gone"))
            await world.api.create(config("c", "gone"))
            world.hook.on("/check", lambda _asked: {"allowed": False})
            await world.configure("validating", "c", world.entry(rules=[CONFIG_RULE]))
            await world.api.delete("/api/v1/namespaces/gone")
            await world.api.gone("/api/v1/namespaces/gone")
            assert world.hook.asked == []

    asyncio.run(story())


def test_a_webhook_behind_a_service_is_found_where_the_server_was_told():
    async def story() -> None:
        reference = {"namespace": SERVICE[0], "name": SERVICE[1], "path": "/check"}
        async with hooked(services={SERVICE: ""}) as world:
            entry = world.entry()
            bundle = entry["clientConfig"]["caBundle"]
            said = await world.configure(
                "validating", "c", {**entry, "clientConfig": {"service": reference, "caBundle": bundle}}
            )
            assert said.warnings == ""
            assert (await tried(world, claim("a"))).code == 201
            assert world.hook.order == ["/check"]

    asyncio.run(story())


def test_the_certificate_of_a_service_must_name_it():
    async def story() -> None:
        async with hooked(services={("system", "other"): ""}) as world:
            client = {**world.entry()["clientConfig"], "service": {"namespace": "system", "name": "other"}}
            del client["url"]
            await world.configure("validating", "c", world.entry(clientConfig=client))
            said = await tried(world, claim("a"))
            assert said.code == 500
            assert "service other.system.svc at" in said.message
            assert "shows a certificate that is not trusted" in said.message

    asyncio.run(story())


def test_a_service_that_nobody_told_of_says_what_to_do():
    async def story() -> None:
        reference = {"namespace": "gpu", "name": "hook"}
        async with hooked() as world:
            entry = {**world.entry(), "clientConfig": {"service": reference}}
            said = await world.configure("validating", "c", entry)
            assert "--webhook-service gpu/hook=HOST:PORT" in said.warnings
            said = await tried(world, claim("a"))
            assert (said.code, said.reason) == (500, "InternalError")
            assert said.message == (
                'Internal error occurred: failed calling webhook "check.example.com": this server does not '
                "know where service gpu/hook is: start it with `--webhook-service gpu/hook=HOST:PORT`, "
                "or give a `url` in clientConfig"
            )

    asyncio.run(story())


def test_only_administrators_write_configurations():
    async def story() -> None:
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
            await ed.until(CLAIMS, lambda said: said.code == 200)
            assert (await ed.ask("POST", CLAIMS, claim("a"))).code == 201
            for sort in ("validating", "mutating"):
                for method in ("GET", "POST", "DELETE"):
                    assert (await ed.ask(method, home(sort), {})).code == 403

    asyncio.run(story())


def test_a_field_that_no_configuration_has_is_told():
    async def story() -> None:
        async with hooked() as world:
            said = await world.configure("validating", "c", {**world.entry(), "failurepolicy": "Ignore"})
            assert "webhooks[0].failurepolicy" in said.warnings
            assert "did you mean `failurePolicy`?" in said.warnings
            bad = {**world.entry(), "sideEffects": "Some", "clientConfig": {"url": "http://a"}}
            document = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "d"},
                "webhooks": [bad],
            }
            said = await world.api.ask("POST", home("validating"), document)
            assert (said.code, said.reason) == (422, "Invalid")
            fields = {cause["field"] for cause in said.document["details"]["causes"]}
            assert fields == {"webhooks[0].clientConfig.url", "webhooks[0].sideEffects"}

    asyncio.run(story())


def test_a_bundle_is_kept_as_it_was_written():
    async def story() -> None:
        async with hooked() as world:
            await world.configure("validating", "c", world.entry())
            stored = await world.api.get(home("validating", "c"))
            bundle = stored["webhooks"][0]["clientConfig"]["caBundle"]
            assert base64.b64decode(bundle).startswith(b"-----BEGIN CERTIFICATE-----")
            assert stored["metadata"]["generation"] == 1

    asyncio.run(story())
