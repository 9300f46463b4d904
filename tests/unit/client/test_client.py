"""Verbs of the client, where a correct server of our own would not show the difference."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.codec import decode_document
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.client.client import DeleteOptions
from dray.client.errors import (
    InternalServerError,
    KindNotServedError,
    NotFoundError,
    ResourceExpiredError,
    TooManyRequestsError,
)
from dray.client.object_refs import ObjectSelector, build_path, get_kind
from dray.client.patches import ApplyPatch, MergePatch
from dray.client.response_decoding import ResponseDecoder
from tests.unit.client.fakeapi import (
    CLAIMS,
    IN_DEFAULT,
    FakeApi,
    FakeResponse,
    claim,
    client_of,
    failed,
    listing,
    serves,
)

POD = get_kind("Pod")
OLD = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"

WANTED = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 2}}]}}
OLD_WANTED = {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu", "count": 2}]}}


def old_claim(name, version):
    return claim(name, version) | {"apiVersion": "resource.k8s.io/v1beta1", "spec": OLD_WANTED}


async def test_the_newest_version_that_both_speak_is_used_and_asked_for_once():
    api = serves(FakeApi(), "v1beta2", "v1beta1")
    api.answer("GET", CLAIMS.replace("v1", "v1beta2"), listing(3))
    client = client_of(api)
    assert await client.get_served_version(ResourceClaim) == "v1beta2"
    await client.list(ResourceClaim)
    assert [asked.path.rsplit("/", 1)[1] for asked in api.asked] == ["v1", "v1beta2", "resourceclaims"]


async def test_a_version_without_the_kind_is_not_it():
    api = FakeApi()
    api.answer("GET", "/apis/resource.k8s.io/v1", FakeResponse({"resources": [{"name": "deviceclasses"}]}))
    assert await client_of(serves(api, "v1beta1")).get_served_version(ResourceClaim) == "v1beta1"


async def test_a_server_without_the_kind_is_reported_with_what_was_expected():
    with pytest.raises(
        KindNotServedError, match=r"serves resourceclaims in none of `resource\.k8s\.io/v1`, .*1\.32"
    ):
        await client_of(FakeApi()).get(ResourceClaim, "a", "default")


async def test_what_an_older_server_says_arrives_in_the_internal_form():
    api = serves(FakeApi(), "v1beta1")
    api.answer("GET", f"{OLD}/a", FakeResponse(old_claim("a", 3)))
    bare = {key: value for key, value in old_claim("a", 3).items() if key not in ("kind", "apiVersion")}
    api.answer("GET", OLD, FakeResponse({"metadata": {"resourceVersion": "3"}, "items": [bare]}))
    client = client_of(api)
    got = await client.get(ResourceClaim, "a", "default")
    assert got == decode_document(claim("a", 3) | {"spec": WANTED}).object
    assert (await client.list(ResourceClaim, "default")).items == (got,)


async def test_what_is_written_to_an_older_server_is_in_its_version():
    api = serves(FakeApi(), "v1beta1")
    for method, path in (("POST", OLD), ("PUT", f"{OLD}/a"), ("PATCH", f"{OLD}/a")):
        api.answer(method, path, lambda asked: FakeResponse(old_claim("a", 4)))
    client = client_of(api)
    new = decode_document(claim("a", 3) | {"spec": WANTED}).object
    stored = await client.create(new)
    await client.update(new)
    await client.patch(ResourceClaim, "a", ApplyPatch(claim("a", 3) | {"spec": WANTED}, "me"), "default")
    assert stored.metadata.resource_version == "4"
    written = [asked.document for asked in api.asked if asked.method != "GET"]
    assert [document["apiVersion"] for document in written] == ["resource.k8s.io/v1beta1"] * 3
    assert [document["spec"] for document in written] == [OLD_WANTED] * 3


async def test_a_server_that_was_upgraded_is_asked_again():
    api = serves(FakeApi(), "v1beta1")
    client = client_of(api)
    with pytest.raises(NotFoundError):
        await client.get(ResourceClaim, "a", "default")  # the path is gone
    serves(api, "v1")
    api.answer("GET", f"{IN_DEFAULT}/a", FakeResponse(claim("a", 9)))
    assert (await client.get(ResourceClaim, "a", "default")).metadata.resource_version == "9"


async def test_fields_of_a_newer_server_are_noted_and_survive_an_amendment():
    newer = claim("a", 3) | {"spec": WANTED | {"tomorrow": True}}
    api = serves(FakeApi(), "v1")
    api.answer("GET", f"{IN_DEFAULT}/a", FakeResponse(newer))
    api.answer("PATCH", f"{IN_DEFAULT}/a", FakeResponse(newer))
    client = client_of(api)
    old = await client.get(ResourceClaim, "a", "default")
    assert client.get_unknown_fields(ResourceClaim) == {"spec.tomorrow"}
    labelled = msgspec.structs.replace(old.metadata, labels={"x": "y"})
    await client.patch_changes(old, msgspec.structs.replace(old, metadata=labelled))
    patch = api.asked[-1]
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert patch.document == {
        "metadata": {"labels": {"x": "y"}, "resourceVersion": "3", "uid": "uid-a"},
    }


async def test_an_amendment_that_changes_nothing_asks_nothing():
    api = serves(FakeApi(), "v1")
    client = client_of(api)
    old = decode_document(claim("a", 3)).object
    assert await client.patch_changes(old, old) is old
    assert [asked.method for asked in api.asked] == ["GET"]


async def test_open_objects_are_not_replaced_as_a_whole():
    with pytest.raises(TypeError, match="use `patch_changes` or `patch`"):
        await client_of(FakeApi()).update({"apiVersion": "v1", "kind": "Pod"})  # type: ignore[type-var]


async def test_a_list_is_read_page_by_page_at_one_version():
    api = serves(FakeApi(), "v1")
    api.answer("GET", IN_DEFAULT, listing(9, claim("a", 1), more="next"), listing(9, claim("b", 2)))
    got = await client_of(api).list(
        ResourceClaim, "default", ObjectSelector("app=x", "metadata.name!=z"), page_size=1
    )
    assert [item.metadata.name for item in got.items] == ["a", "b"]
    assert (got.resource_version, got.continue_token) == ("9", "")
    wanted = {"labelSelector": "app=x", "fieldSelector": "metadata.name!=z", "limit": "1"}
    assert [asked.query for asked in api.asked[1:]] == [wanted, wanted | {"continue": "next"}]


async def test_a_list_whose_pages_expire_is_read_at_once():
    api = serves(FakeApi(), "v1")
    api.answer(
        "GET",
        IN_DEFAULT,
        listing(9, claim("a", 1), more="next"),
        failed(410, "Expired", "The provided continue parameter is too old"),
        listing(12, claim("b", 11)),
    )
    got = await client_of(api).list(ResourceClaim, "default", page_size=1)
    assert ([item.metadata.name for item in got.items], got.resource_version) == (["b"], "12")
    assert "limit" not in api.asked[-1].query


async def test_a_list_that_expires_even_at_once_is_a_failure():
    api = serves(FakeApi(), "v1")
    api.answer("GET", IN_DEFAULT, failed(410, "Expired", "gone"))
    with pytest.raises(ResourceExpiredError):
        await client_of(api).list(ResourceClaim, "default")


async def test_items_of_lists_get_their_kind_and_version():
    api = FakeApi()
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"future": 1}}
    api.answer("GET", "/api/v1/pods", FakeResponse({"metadata": {}, "items": [pod]}))
    got = await client_of(api).list(POD)
    assert got.items == ({"apiVersion": "v1", "kind": "Pod"} | pod,)


async def test_lists_of_nothing():
    api = serves(FakeApi(), "v1")
    api.answer("GET", CLAIMS, FakeResponse({"metadata": {"resourceVersion": "5"}, "items": None}))
    assert (await client_of(api).list(ResourceClaim)).items == ()


async def test_an_eviction_that_a_budget_forbids_is_not_tried_again():
    api = FakeApi()
    path = "/api/v1/namespaces/default/pods/p/eviction"
    api.answer("POST", path, failed(429, "TooManyRequests", "budget", retry_after=10))
    with pytest.raises(TooManyRequestsError):
        await client_of(api).evict("p", "default", DeleteOptions(grace_seconds=0))
    assert len(api.asked) == 1
    assert api.asked[0].document["deleteOptions"]["gracePeriodSeconds"] == 0


async def test_delete_options_are_sent():
    api = FakeApi()
    success = FakeResponse({"kind": "Status", "status": "Success"})
    api.answer("DELETE", "/api/v1/namespaces/default/pods/p", success)
    api.answer("DELETE", "/api/v1/namespaces/default/pods", success)
    client = client_of(api)
    how = DeleteOptions(
        uid="u", resource_version="7", propagation="Foreground", grace_seconds=0, dry_run=True
    )
    assert await client.delete(POD, "p", "default", how) is None
    assert api.asked[0].document == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
        "gracePeriodSeconds": 0,
    }
    await client.delete_collection(POD, "default", ObjectSelector(labels="a=b"))
    assert api.asked[1].query == {"labelSelector": "a=b"}
    assert api.asked[1].document == {"apiVersion": "v1", "kind": "DeleteOptions"}


async def test_writers_say_who_they_are_and_whether_they_mean_it():
    api = FakeApi()
    api.answer("PATCH", "/api/v1/nodes/n/status", FakeResponse({"kind": "Node"}))
    await client_of(api, field_manager="me").patch(
        get_kind("Node"), "n", MergePatch({}), subresource="status", dry_run=True
    )
    assert api.asked[0].query == {"fieldManager": "me", "dryRun": "All"}


async def test_calls_that_make_no_sense_are_not_sent():
    api = serves(FakeApi(), "v1")
    client = client_of(api)
    with pytest.raises(ValueError, match=r"`metadata\.namespace` is missing"):
        await client.create(ResourceClaim())
    with pytest.raises(ValueError, match="ResourceClaim `a` is in a namespace"):
        await client.get(ResourceClaim, "a")
    with pytest.raises(ValueError, match="did you mean `Pod`"):
        get_kind("Pods")
    assert all(asked.path == "/apis/resource.k8s.io/v1" for asked in api.asked)


def test_names_cannot_leave_their_place_in_a_path():
    path = build_path(POD, "v1", "a/b", "../c?d")
    assert path == "/api/v1/namespaces/a%2Fb/pods/..%2Fc%3Fd"


async def test_faults_of_the_server_come_through():
    api = FakeApi()
    api.answer("GET", "/version", failed(500, "InternalError", "oops"))
    with pytest.raises(InternalServerError, match="oops"):
        await client_of(api).get_json("/version")


def test_nulls_as_kubernetes_writes_them_are_read():
    nulls = {"metadata": {"name": "s", "creationTimestamp": None}, "spec": {"devices": None}}
    slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"} | nulls
    read = ResponseDecoder(get_kind("ResourceSlice.resource.k8s.io"), "v1").decode_object(
        msgspec.json.encode(slice_)
    )
    assert isinstance(read, ResourceSlice)
    assert read.spec.devices == ()
