"""Patches of every type through the whole server: changes, errors and managed fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, ServerResponse, path, serving
from tests.contract.documents import allocation, claim, config, consumer, node, pod, resource_slice


async def _tried(api: Api, where: str, patch: Any, kind: str, **query: Any) -> ServerResponse:
    return await api.ask("PATCH", where, patch, headers={"content-type": kind}, **query)


async def test_a_merge_patch_sets_and_removes_fields() -> None:
    async with serving() as api:
        await api.create(config("a"))
        changed = await api.patch(path("configmaps", "a"), {"data": {"key": None, "new": "1"}})
        assert changed["data"] == {"new": "1"}
        assert [each["manager"] for each in changed["metadata"]["managedFields"]] == ["unknown"]


async def test_a_json_patch_is_all_or_nothing() -> None:
    async with serving() as api:
        await api.create(config("a"))
        where = path("configmaps", "a")
        patch = [
            {"op": "test", "path": "/data/key", "value": "value"},
            {"op": "move", "from": "/data/key", "path": "/data/moved"},
        ]
        assert (await api.patch(where, patch, JSON_PATCH))["data"] == {"moved": "value"}
        refused = await _tried(api, where, patch, JSON_PATCH)
        assert refused.code == 422
        assert (await api.get(where))["data"] == {"moved": "value"}
        broken = await _tried(api, where, {"not": "a list"}, JSON_PATCH)
        assert broken.code == 400


async def test_a_strategic_patch_merges_lists_by_key() -> None:
    async with serving() as api:
        await api.create(pod("p"))
        where = path("pods", "p")
        second = {"spec": {"containers": [{"name": "c", "image": "pause:4"}]}}
        changed = await api.patch(where, second, STRATEGIC)
        assert [each["image"] for each in changed["spec"]["containers"]] == ["pause:4"]
        status = path("pods", "p", sub="status")
        for type_ in ("Ready", "PodScheduled", "Ready"):
            condition = {"type": type_, "status": "True"}
            changed = await api.patch(status, {"status": {"conditions": [condition]}}, STRATEGIC)
        assert sorted(each["type"] for each in changed["status"]["conditions"]) == ["PodScheduled", "Ready"]
        removal = {"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}
        changed = await api.patch(status, removal, STRATEGIC)
        assert [each["type"] for each in changed["status"]["conditions"]] == ["PodScheduled"]
        await api.create(node("n"))
        taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
        await api.patch(path("nodes", "n"), taint, STRATEGIC)
        taint["spec"]["taints"][0]["key"] = "b"
        changed = await api.patch(path("nodes", "n"), taint, STRATEGIC)
        assert [each["key"] for each in changed["spec"]["taints"]] == ["b"], "taints are replaced as a whole"


async def test_a_strategic_patch_merges_finalizers_as_a_set() -> None:
    async with serving() as api:
        await api.create(claim("c", finalizers=["example.com/a"]))
        where = path("resourceclaims", "c")
        changed = await api.patch(where, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
        assert sorted(changed["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
        removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
        changed = await api.patch(where, removal, STRATEGIC)
        assert changed["metadata"]["finalizers"] == ["example.com/b"]


async def test_several_writers_patch_the_status_of_a_claim() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        await api.create(claim("c"))
        users = [await api.create(pod(f"p{number}")) for number in range(3)]
        where = path("resourceclaims", "c", sub="status")
        await api.patch(where, {"status": {"allocation": allocation()}})
        for user in users:
            await api.patch(where, {"status": {"reservedFor": [consumer(user)]}}, STRATEGIC)
        stored = await api.get(path("resourceclaims", "c"))
        assert sorted(each["name"] for each in stored["status"]["reservedFor"]) == ["p0", "p1", "p2"]
        device = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0", "data": {"a": 1}}
        status = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        applied = await api.patch(
            where, status | {"status": {"devices": [device]}}, APPLY, fieldManager="driver", force="true"
        )
        assert applied["status"]["devices"] == [device]
        assert applied["status"]["allocation"] == stored["status"]["allocation"]


async def test_a_patch_that_makes_an_invalid_object_is_refused() -> None:
    async with serving() as api:
        await api.create(claim("c"))
        where = path("resourceclaims", "c")
        for patch, code in (
            ({"spec": {"devices": {"requests": 7}}}, (400, 422)),
            ({"metadata": {"name": "other"}}, (400, 422)),
            ({"metadata": {"labels": {"not ok": "x"}}}, (422,)),
            ({"kind": "Pod"}, (400, 422)),
            ([], (400,)),
            ("text", (400,)),
        ):
            response = await _tried(api, where, patch, MERGE)
            assert response.code in code, (patch, response.document)


async def test_unknown_fields_in_patches_are_warned_about() -> None:
    async with serving() as api:
        await api.create(claim("c"))
        where = path("resourceclaims", "c")
        warned = await _tried(api, where, {"spec": {"nosuch": 1}}, MERGE)
        assert warned.code == 200
        assert "nosuch" in warned.warnings
        strict = await _tried(api, where, {"spec": {"nosuch": 1}}, MERGE, fieldValidation="Strict")
        assert (strict.code, strict.reason) == (422, "Invalid")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/strategic"])
async def test_patches_of_no_known_type_are_refused(kind: str) -> None:
    async with serving() as api:
        await api.create(config("a"))
        response = await _tried(api, path("configmaps", "a"), {}, kind)
        assert (response.code, response.reason) == (415, "UnsupportedMediaType")
        assert MERGE in response.message


async def test_only_an_apply_creates() -> None:
    async with serving() as api:
        for kind, patch in ((MERGE, {}), (STRATEGIC, {}), (JSON_PATCH, [])):
            assert (await _tried(api, path("configmaps", "a"), patch, kind)).code == 404
        without = await _tried(api, path("configmaps", "a"), config("a"), APPLY)
        assert without.code in (400, 422)
        assert "fieldManager" in without.message
        response = await _tried(api, path("configmaps", "a"), config("a"), APPLY, fieldManager="me")
        assert response.code == 201
        again = await _tried(api, path("configmaps", "a"), config("a"), APPLY, fieldManager="me")
        assert again.code == 200


async def test_an_apply_names_the_object_of_its_path() -> None:
    async with serving() as api:
        response = await _tried(api, path("configmaps", "a"), config("b"), APPLY, fieldManager="me")
        assert response.code == 400
        assert await api.names(path("configmaps")) == []
        long = await _tried(api, path("configmaps", "a"), config("a"), APPLY, fieldManager="x" * 129)
        assert long.code == 422
        assert "fieldManager" in long.message


async def test_an_apply_may_be_yaml() -> None:
    async with serving() as api:
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'y'\n"
        response = await _tried(api, path("configmaps", "a"), body, APPLY, fieldManager="me")
        assert response.code == 201
        assert response.document["data"] == {"x": "y"}


async def test_fields_have_owners_and_conflicts_name_them() -> None:
    async with serving() as api:
        where = path("configmaps", "a")
        await api.patch(where, config("a") | {"data": {"a": "1", "b": "1"}}, APPLY, fieldManager="first")
        other = config("a") | {"data": {"a": "2"}}
        response = await _tried(api, where, other, APPLY, fieldManager="second")
        assert (response.code, response.reason) == (409, "Conflict")
        (cause,) = response.document["details"]["causes"]
        assert cause == {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "first"',
            "field": ".data.a",
        }
        forced = await api.patch(where, other, APPLY, fieldManager="second", force="true")
        assert forced["data"] == {"a": "2", "b": "1"}
        left = await api.patch(where, config("a") | {"data": {}}, APPLY, fieldManager="first")
        assert left["data"] == {"a": "2"}, "what only the first one owned goes when it lets go"


async def test_managed_fields_can_be_removed() -> None:
    async with serving() as api:
        where = path("configmaps", "a")
        await api.patch(where, config("a"), APPLY, fieldManager="me")
        bare = await api.patch(where, {"metadata": {"managedFields": [{}]}})
        assert "managedFields" not in bare["metadata"]


async def test_an_apply_keeps_the_status_of_other_managers() -> None:
    async with serving() as api:
        made = await api.create(pod("p", claim_name="c"))
        name = {"name": "g", "resourceClaimName": "c"}
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
        query = {"fieldManager": "ResourceClaimController", "force": "true"}
        status = path("pods", "p", sub="status")
        changed = await api.patch(
            status, applied | {"status": {"resourceClaimStatuses": [name]}}, APPLY, **query
        )
        assert changed["status"] == made["status"] | {"resourceClaimStatuses": [name]}
        missing = applied | {"metadata": {"name": "q"}}
        absent = await _tried(api, path("pods", "q", sub="status"), missing, APPLY, **query)
        assert absent.code == 404
