"""Every verb of the client against a real server, over both transports."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.client.client import DeleteOptions
from dray.client.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
)
from dray.client.object_refs import ObjectSelector, get_kind
from dray.client.patches import ApplyPatch, JsonPatch, MergePatch, StrategicMergePatch
from dray.client.rest_client import ClientOptions
from tests.contract.servers import reaching, way

__all__ = ["way"]

POD, NODE, CONFIG = get_kind("Pod"), get_kind("Node"), get_kind("ConfigMap")


def claim(name: str, **labels: str) -> ResourceClaim:
    document = {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    return msgspec.convert(document, ResourceClaim)


def pod(name: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x"}], "subdomain": "kept"},
    }


async def test_an_object_is_created_read_changed_and_deleted(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        made = await client.create(claim("a"))
        assert made.metadata.uid
        assert made.metadata.resource_version
        asked = made.spec.devices.requests[0].exactly
        assert asked is not None
        assert asked.count == 1  # what the server stored, with defaults
        assert await client.get(ResourceClaim, "a", "default") == made
        labelled = msgspec.structs.replace(made.metadata, labels={"x": "y"})
        changed = await client.update(msgspec.structs.replace(made, metadata=labelled))
        assert changed.metadata.labels == {"x": "y"}
        with pytest.raises(ConflictError, match="the object has been modified"):
            await client.update(made)
        await client.delete(ResourceClaim, "a", "default")
        with pytest.raises(NotFoundError) as gone:
            await client.get(ResourceClaim, "a", "default")
        assert not gone.value.is_unknown_resource


async def test_amendments_write_what_differs_and_insist_on_what_was_read(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        made = await client.create(pod("p"))
        wanted = {**made, "metadata": {**made["metadata"], "labels": {"x": "y"}}}
        changed = await client.patch_changes(made, wanted)
        assert changed["metadata"]["labels"] == {"x": "y"}
        assert changed["spec"]["subdomain"] == "kept"
        with pytest.raises(ConflictError):
            await client.patch_changes(made, wanted)
        stored = await client.patch_changes(
            changed, {**changed, "status": {"phase": "Running"}}, subresource="status"
        )
        assert stored["status"]["phase"] == "Running"


async def test_status_is_written_apart(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        made = await client.create(claim("a"))
        reserved = msgspec.convert(
            {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
            type(made.status),
        )
        stored = await client.update_status(msgspec.structs.replace(made, status=reserved))
        assert stored.status.reserved_for[0].name == "p"
        untouched = await client.update(
            msgspec.structs.replace(
                stored,
                metadata=msgspec.structs.replace(stored.metadata, labels={"a": "b"}),
                status=made.status,
            )
        )
        assert untouched.status == stored.status


async def test_patches_of_every_sort(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        await client.create(pod("p"))
        change = JsonPatch([{"op": "add", "path": "/metadata/labels", "value": {"json": "yes"}}])
        got = await client.patch(POD, "p", change, "default")
        assert got["metadata"]["labels"] == {"json": "yes"}
        merge = MergePatch({"metadata": {"labels": {"json": None, "merge": "yes"}}})
        got = await client.patch(POD, "p", merge, "default")
        assert got["metadata"]["labels"] == {"merge": "yes"}
        for kind in ("PodScheduled", "Ready"):
            strategic = StrategicMergePatch({"status": {"conditions": [{"type": kind, "status": "False"}]}})
            got = await client.patch(POD, "p", strategic, "default", subresource="status")
        assert sorted(row["type"] for row in got["status"]["conditions"]) == ["PodScheduled", "Ready"]
        stale = MergePatch({"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}})
        with pytest.raises(ConflictError):
            await client.patch(POD, "p", stale, "default")


async def test_applied_fields_belong_to_their_manager(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "default"},
            "data": {"a": "1"},
        }
        made = await client.patch(CONFIG, "c", ApplyPatch(config, "ann"), "default")
        assert made["data"] == {"a": "1"}
        other = ApplyPatch(config | {"data": {"a": "2"}}, "bob")
        with pytest.raises(ConflictError) as refused:
            await client.patch(CONFIG, "c", other, "default")
        assert [cause.field for cause in refused.value.causes] == [".data.a"]
        forced = ApplyPatch(other.document, "bob", force=True)
        assert (await client.patch(CONFIG, "c", forced, "default"))["data"] == {"a": "2"}


async def test_lists_are_paged_and_chosen(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        for number in range(7):
            await client.create(claim(f"c{number}", odd=str(number % 2)))
        pages = [
            part
            async for part in client.iterate_pages(get_kind("ResourceClaim.resource.k8s.io"), page_size=3)
        ]
        assert [len(part.items) for part in pages] == [3, 3, 1]
        assert len({part.resource_version for part in pages}) == 1
        whole = await client.list(ResourceClaim, page_size=3)
        assert [item.metadata.name for item in whole.items] == [f"c{number}" for number in range(7)]
        odd = await client.list(ResourceClaim, "default", ObjectSelector(labels="odd=1"), page_size=2)
        assert [item.metadata.name for item in odd.items] == ["c1", "c3", "c5"]
        one = await client.list(ResourceClaim, "default", ObjectSelector(fields="metadata.name=c4"))
        assert [item.metadata.name for item in one.items] == ["c4"]
        assert (await client.list(ResourceClaim, "elsewhere")).items == ()


async def test_a_list_is_one_moment_however_many_pages_it_has(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        for name in "abcd":
            await client.create(claim(name))
        seen = []
        async for part in client.iterate_pages(get_kind("ResourceClaim.resource.k8s.io"), page_size=2):
            seen += [item.metadata.name for item in part.items]
            if len(seen) == 2:
                await client.delete(ResourceClaim, "d", "default")
                await client.create(claim("e"))
        assert seen == ["a", "b", "c", "d"]


async def test_deleting_with_preconditions_and_a_grace_period(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        made = await client.create(claim("a"))
        with pytest.raises(ConflictError):
            await client.delete(ResourceClaim, "a", "default", DeleteOptions(uid="another"))
        held = MergePatch({"metadata": {"finalizers": ["example.com/wait"]}})
        await client.patch(ResourceClaim, "a", held, "default")
        left = await client.delete(ResourceClaim, "a", "default", DeleteOptions(uid=made.metadata.uid))
        assert isinstance(left, ResourceClaim)
        assert left.metadata.deletion_timestamp is not None
        await client.patch(ResourceClaim, "a", MergePatch({"metadata": {"finalizers": []}}), "default")
        with pytest.raises(NotFoundError):
            await client.get(ResourceClaim, "a", "default")


async def test_deleting_many(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        for number in range(4):
            await client.create(claim(f"c{number}", odd=str(number % 2)))
        await client.delete_collection(ResourceClaim, "default", ObjectSelector(labels="odd=1"))
        left = await client.list(ResourceClaim, "default")
        assert [item.metadata.name for item in left.items] == ["c0", "c2"]


async def test_binding_and_evicting_a_pod(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        made = await client.create(pod("p"))
        await client.bind("p", "default", "n", uid=made["metadata"]["uid"])
        assert (await client.get(POD, "p", "default"))["spec"]["nodeName"] == "n"
        with pytest.raises(ConflictError):
            await client.bind("p", "default", "other")
        await client.evict("p", "default", DeleteOptions(grace_seconds=0))
        with pytest.raises(NotFoundError):
            await client.get(POD, "p", "default")


async def test_failures_say_what_and_where(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        await client.create(claim("a"))
        with pytest.raises(AlreadyExistsError, match=r'resourceclaims\.resource\.k8s\.io "a" already exists'):
            await client.create(claim("a"))
        bad = ResourceSlice(metadata=ObjectMeta(name="BAD"))
        with pytest.raises(InvalidObjectError) as invalid:
            await client.create(bad)
        assert "metadata.name" in {cause.field for cause in invalid.value.causes}
        with pytest.raises(ForbiddenError, match="nobody-special"):
            await reach.client(user="nobody-special").list(ResourceClaim)


async def test_a_dry_run_leaves_no_trace(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        would = await client.create(claim("a"), dry_run=True)
        assert would.metadata.uid
        with pytest.raises(NotFoundError):
            await client.get(ResourceClaim, "a", "default")


async def test_fields_that_the_server_dropped_are_reported(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        heard: list[str] = []
        client = reach.client(ClientOptions(on_warning=heard.append))
        unknown = claim("a")
        document = msgspec.to_builtins(unknown) | {"surprise": 1}
        stored = await client.create(document)
        assert isinstance(stored, ResourceClaim)
        assert any("surprise" in text for text in heard)


async def test_the_version_is_negotiated(way, tmp_path):
    async with reaching(way, tmp_path) as reach:
        client = reach.client()
        assert await client.get_served_version(DeviceClass) == "v1"
        assert "gitVersion" in await client.get_json("/version")
