"""Deletes: preconditions, finalizers, grace, dependents, collections and namespaces."""

from __future__ import annotations

import pytest

from dray.claims.claim_names import FINALIZER
from dray.server.background import garbage_collector
from tests.contract.api import Api, ServerResponse, path, serving
from tests.contract.documents import claim, config, namespace, owner, pod


def _marked(response: ServerResponse) -> bool:
    return response.code == 200 and "deletionTimestamp" in response.document["metadata"]


async def test_an_object_without_finalizers_is_deleted_at_once() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        response = await api.delete(path("configmaps", "a"))
        assert (response["kind"], response["status"]) == ("Status", "Success")
        assert response["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
        assert (await api.ask("GET", path("configmaps", "a"))).code == 404
        assert (await api.ask("DELETE", path("configmaps", "a"))).code == 404


async def test_the_delete_of_a_claim_answers_the_claim() -> None:
    async with serving() as api:
        await api.create(claim("a"))
        response = await api.delete(path("resourceclaims", "a"))
        assert (response["kind"], response["metadata"]["name"]) == ("ResourceClaim", "a")


@pytest.mark.parametrize("what", ["uid", "resourceVersion"])
async def test_preconditions_of_a_delete_hold(what: str) -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        where = path("configmaps", "a")
        response = await api.ask("DELETE", where, {"preconditions": {what: "1"}})
        assert (response.code, response.reason) == (409, "Conflict")
        assert "precondition" in response.message.lower()
        await api.delete(where, {"preconditions": {what: made["metadata"][what]}})
        assert (await api.ask("GET", where)).code == 404


async def test_an_object_stays_until_its_last_finalizer_is_removed() -> None:
    async with serving() as api:
        where = path("resourceclaims", "a")
        await api.create(claim("a", finalizers=["example.com/one", "example.com/two"]))
        response = await api.delete(where)
        assert response["metadata"]["deletionTimestamp"]
        assert response["metadata"]["deletionGracePeriodSeconds"] == 0
        first = response["metadata"]["deletionTimestamp"]
        again = await api.delete(where)
        assert again["metadata"]["deletionTimestamp"] == first
        late = await api.ask(
            "PATCH",
            where,
            {"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}},
            headers={"content-type": "application/merge-patch+json"},
        )
        assert late.code == 422, "no finalizer may be added to an object that is being deleted"
        left = await api.patch(where, {"metadata": {"finalizers": ["example.com/two"]}})
        assert left["metadata"]["deletionTimestamp"] == first
        async with api.watch(path("resourceclaims")) as watch:
            await watch.tell(1)
            await api.patch(where, {"metadata": {"finalizers": None}})
            assert await watch.tell(1) == [("DELETED", "a")]
        assert (await api.ask("GET", where)).code == 404


async def test_a_pod_on_a_node_has_a_grace_period() -> None:
    async with serving() as api:
        where = path("pods", "p")
        await api.create(pod("p"))
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-a"}}
        await api.create(binding, path("pods", "p", sub="binding"))
        response = await api.delete(where)
        assert response["metadata"]["deletionGracePeriodSeconds"] == 30
        shorter = await api.delete(where, gracePeriodSeconds="5")
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
        same = await api.delete(where, gracePeriodSeconds="20")
        assert same["metadata"]["deletionGracePeriodSeconds"] == 5
        await api.delete(where, {"gracePeriodSeconds": 0})
        assert (await api.ask("GET", where)).code == 404
        await api.create(pod("q"))
        await api.delete(path("pods", "q"))
        assert (await api.ask("GET", path("pods", "q"))).code == 404


async def _family(api: Api, **reference: object) -> None:
    parent = await api.create(config("parent"))
    other = await api.create(config("other"))
    await api.create(config("child", ownerReferences=[owner(parent, **reference)]))
    await api.create(config("shared", ownerReferences=[owner(parent, **reference), owner(other)]))


async def _run_collector(api: Api) -> None:
    """Wait until the garbage collector has deleted an object that came to its queue after all others."""
    missing = {"apiVersion": "v1", "kind": "Pod", "name": "missing", "uid": "no-such-uid"}
    await api.create(config("marker", ownerReferences=[missing]))
    await api.gone(path("configmaps", "marker"))


async def test_dependents_are_deleted_with_their_owner() -> None:
    async with serving() as api:
        await _family(api)
        await api.delete(path("configmaps", "parent"), {"propagationPolicy": "Background"})
        await api.gone(path("configmaps", "child"))
        shared = await api.until(
            path("configmaps", "shared"),
            lambda response: len(response.document["metadata"]["ownerReferences"]) == 1,
        )
        assert shared["metadata"]["ownerReferences"][0]["name"] == "other"


async def test_dependents_of_dependents_are_deleted() -> None:
    async with serving() as api:
        last = await api.create(config("g0"))
        for number in range(1, 5):
            last = await api.create(config(f"g{number}", ownerReferences=[owner(last)]))
        await api.delete(path("configmaps", "g0"))
        await api.gone(path("configmaps", "g4"))
        assert await api.names(path("configmaps")) == []


async def test_orphaned_dependents_stay() -> None:
    async with serving() as api:
        await _family(api)
        await api.delete(path("configmaps", "parent"), {"propagationPolicy": "Orphan"})
        await api.gone(path("configmaps", "parent"))
        child = await api.get(path("configmaps", "child"))
        assert "ownerReferences" not in child["metadata"]
        await _run_collector(api)
        assert await api.names(path("configmaps")) == ["child", "other", "shared"]


async def test_a_foreground_delete_deletes_dependents_first() -> None:
    async with serving() as api:
        parent = await api.create(config("parent"))
        held = config("child", ownerReferences=[owner(parent, blockOwnerDeletion=True)])
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.create(held)
        response = await api.delete(path("configmaps", "parent"), propagationPolicy="Foreground")
        assert response["metadata"]["finalizers"] == ["foregroundDeletion"]
        await api.until(path("configmaps", "child"), _marked)
        await _run_collector(api)
        assert (await api.ask("GET", path("configmaps", "parent"))).code == 200
        await api.patch(path("configmaps", "child"), {"metadata": {"finalizers": None}})
        await api.gone(path("configmaps", "parent"))


async def test_a_dependent_of_an_owner_that_never_existed_is_deleted() -> None:
    async with serving() as api:
        nobody = {"apiVersion": "v1", "kind": "Pod", "name": "ghost", "uid": "no-such-uid"}
        await api.create(claim("a", ownerReferences=[nobody]))
        await api.gone(path("resourceclaims", "a"))


async def test_dependents_of_owners_of_unknown_kinds_stay() -> None:
    async with serving() as api:
        foreign = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "somewhere-else"}
        await api.create(config("a", ownerReferences=[foreign]))
        await _run_collector(api)
        assert (await api.get(path("configmaps", "a")))["metadata"]["ownerReferences"] == [foreign]


async def test_a_claim_from_a_template_is_deleted_with_its_pod() -> None:
    async with serving() as api:
        made = await api.create(pod("p"))
        await api.create(claim("p-g-abcde", ownerReferences=[owner(made, controller=True)]))
        await api.delete(path("pods", "p"))
        await api.gone(path("resourceclaims", "p-g-abcde"))


async def _delete_pod_of_claim(api: Api) -> None:
    made = await api.create(pod("p"))
    claims = {name: claim(name, ownerReferences=[owner(made, controller=True)]) for name in ("kept", "free")}
    claims["kept"]["metadata"]["finalizers"] = [FINALIZER]
    for each in claims.values():
        await api.create(each)
    await api.delete(path("pods", "p"))
    await api.gone(path("resourceclaims", "free"))


async def test_a_claim_that_only_a_controller_can_remove_is_left_to_it_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage_collector, "CLAIM_SECONDS", 600.0)
    async with serving() as api:
        await _delete_pod_of_claim(api)
        await _run_collector(api)
        left = await api.get(path("resourceclaims", "kept"))
        assert "deletionTimestamp" not in left["metadata"]
        await api.delete(path("resourceclaims", "kept"))
        await api.patch(path("resourceclaims", "kept"), {"metadata": {"finalizers": None}})
        await api.gone(path("resourceclaims", "kept"))


async def test_a_claim_that_no_controller_removes_is_marked_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collector, "CLAIM_SECONDS", 0.1)
    async with serving() as api:
        await _delete_pod_of_claim(api)
        await api.until(path("resourceclaims", "kept"), _marked)


async def test_collections_are_deleted_by_selector() -> None:
    async with serving() as api:
        for number in range(6):
            await api.create(config(f"c{number}", labels={"odd": str(number % 2)}))
        await api.create(config("elsewhere", "kube-public"))
        gone = await api.delete(path("configmaps"), labelSelector="odd=1")
        assert gone["kind"] == "ConfigMapList"
        assert [item["metadata"]["name"] for item in gone["items"]] == ["c1", "c3", "c5"]
        assert await api.names(path("configmaps")) == ["c0", "c2", "c4"]
        await api.delete(path("configmaps"), fieldSelector="metadata.name=c2")
        assert await api.names(path("configmaps")) == ["c0", "c4"]
        await api.delete(path("configmaps"), {"dryRun": ["All"]})
        assert await api.names(path("configmaps")) == ["c0", "c4"]
        await api.delete(path("configmaps"))
        assert await api.names(path("configmaps")) == []
        assert await api.names(path("configmaps", namespace="kube-public")) == ["elsewhere"]


async def test_a_namespace_is_deleted_with_its_contents() -> None:
    async with serving() as api:
        await api.create(namespace("n"))
        await api.create(config("a", "n"))
        await api.create(claim("c", "n", finalizers=["example.com/hold"]))
        await api.create(pod("p", "n"))
        response = await api.delete(path("namespaces", "n"))
        assert response["status"]["phase"] == "Terminating"
        await api.gone(path("pods", "p", namespace="n"))
        await api.until(path("resourceclaims", "c", namespace="n"), _marked)
        refused = await api.ask("POST", path("configmaps", namespace="n"), config("late", "n"))
        assert (refused.code, refused.reason) == (403, "Forbidden")
        assert "being terminated" in refused.message
        (cause,) = refused.document["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("NamespaceTerminating", "metadata.namespace")
        assert (await api.ask("GET", path("namespaces", "n"))).code == 200
        await api.patch(path("resourceclaims", "c", namespace="n"), {"metadata": {"finalizers": None}})
        await api.gone(path("namespaces", "n"))
        assert await api.names(path("configmaps", namespace="n")) == []
        await api.create(namespace("n"))
        await api.create(config("new", "n"))


async def test_permanent_namespaces_cannot_be_deleted() -> None:
    async with serving() as api:
        for name in ("default", "kube-system", "kube-public"):
            response = await api.ask("DELETE", path("namespaces", name))
            assert (response.code, response.reason) == (403, "Forbidden")


async def test_a_namespace_can_be_finalized_by_a_controller() -> None:
    async with serving() as api:
        made = await api.create(namespace("n") | {"spec": {"finalizers": ["example.com/mine"]}})
        assert made["spec"]["finalizers"] == ["example.com/mine", "kubernetes"]
        await api.delete(path("namespaces", "n"))
        emptied = lambda response: response.document["spec"]["finalizers"] == ["example.com/mine"]  # noqa: E731
        marked = await api.until(path("namespaces", "n"), emptied)
        marked["spec"]["finalizers"] = []
        await api.put(marked, path("namespaces", "n", sub="finalize"))
        await api.gone(path("namespaces", "n"))


async def test_evictions_respect_budgets() -> None:
    async with serving() as api:
        await api.create(pod("p", labels={"app": "x"}))
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await api.create(budget, path("poddisruptionbudgets"))
        where = path("poddisruptionbudgets", "b", sub="status")
        await api.patch(where, {"status": {"disruptionsAllowed": 0}})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        response = await api.ask("POST", path("pods", "p", sub="eviction"), eviction)
        assert (response.code, response.reason) == (429, "TooManyRequests")
        await api.patch(where, {"status": {"disruptionsAllowed": 1}})
        response = await api.ask("POST", path("pods", "p", sub="eviction"), eviction)
        assert response.code == 201
        assert (await api.ask("GET", path("pods", "p"))).code == 404


async def test_an_object_created_again_has_a_new_uid() -> None:
    async with serving() as api:
        first = await api.create(config("a"))
        await api.delete(path("configmaps", "a"))
        second = await api.create(config("a"))
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        response = await api.ask("PUT", path("configmaps", "a"), first)
        assert response.code == 409


def _renewed_lease() -> dict[str, object]:
    metadata = {"name": "kube-controller-manager", "namespace": "kube-system"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return {**lease, "spec": {"holderIdentity": "one"}}


async def test_garbage_is_left_to_kube_controller_manager_while_it_leads() -> None:
    """Its collector deletes the dependent and then removes the finalizer: it must not find the owner gone."""
    async with serving() as api:
        await api.create(_renewed_lease())
        first = await api.create(config("owner"))
        await api.create(config("dependent", ownerReferences=[owner(first, blockOwnerDeletion=True)]))
        await api.delete(path("configmaps", "owner"), {"propagationPolicy": "Foreground"})
        await api.delete(path("configmaps", "dependent"))
        await api.gone(path("configmaps", "dependent"))
        await api.patch(path("configmaps", "owner"), {"metadata": {"finalizers": None}})
        await api.gone(path("configmaps", "owner"))


async def test_garbage_that_kube_controller_manager_leaves_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage_collector, "DEFERRED_SECONDS", 0.1)
    async with serving() as api:
        await api.create(_renewed_lease())
        first = await api.create(config("owner"))
        await api.create(config("dependent", ownerReferences=[owner(first)]))
        await api.delete(path("configmaps", "owner"))
        await api.gone(path("configmaps", "dependent"))
