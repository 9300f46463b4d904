"""Create and update: fields that the server sets, subresources, preconditions and races."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.contract.api import MERGE, STRATEGIC, path, serving
from tests.contract.documents import (
    allocation,
    claim,
    config,
    consumer,
    device_class,
    namespace,
    node,
    pod,
    resource_slice,
    template,
)


async def test_a_new_object_gets_a_uid_and_managed_fields() -> None:
    async with serving() as api:
        made = await api.create(config("a", labels={"x": "y"}), fieldManager="me")
        metadata = made["metadata"]
        assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
        assert metadata["resourceVersion"].isdigit()
        (fields,) = metadata["managedFields"]
        assert (fields["manager"], fields["operation"], fields["apiVersion"]) == ("me", "Update", "v1")
        assert fields["fieldsV1"]["f:data"] == {".": {}, "f:key": {}}
        assert metadata["labels"] == {"x": "y"}


async def test_server_owned_fields_of_clients_are_ignored() -> None:
    async with serving() as api:
        forged: dict = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 77}
        made = await api.create(claim("a", **forged))
        assert made["metadata"]["uid"] != "mine"
        assert not made["metadata"]["creationTimestamp"].startswith("2001")
        made_slice = resource_slice("s")
        made_slice["metadata"] |= forged
        assert (await api.create(made_slice))["metadata"]["generation"] == 1


async def test_names_are_generated() -> None:
    async with serving() as api:
        document = claim("")
        document["metadata"] = {"generateName": "p-template-g-"}
        names = [(await api.create(document))["metadata"]["name"] for _ in range(3)]
        assert len(set(names)) == 3
        assert all(re.fullmatch(r"p-template-g-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
        document["metadata"] = {"generateName": "x" * 100}
        assert len((await api.create(document))["metadata"]["name"]) == 63


@pytest.mark.parametrize("document", [device_class(), claim("a"), template("t"), resource_slice("s")])
async def test_objects_of_resource_k8s_io_can_be_written_and_read(document: dict) -> None:
    async with serving() as api:
        made = await api.create(document)
        assert made["apiVersion"] == "resource.k8s.io/v1"
        plural = {"DeviceClass": "deviceclasses"}.get(made["kind"], made["kind"].lower() + "s")
        where = path(plural, made["metadata"]["name"])
        assert await api.put(made, where) == made


async def test_defaults_are_stored() -> None:
    async with serving() as api:
        made = await api.create(claim("a"))
        asked = made["spec"]["devices"]["requests"][0]["exactly"]
        assert (asked["allocationMode"], asked["count"]) == ("ExactCount", 1)
        made = await api.create(pod("p"))
        assert made["status"]["phase"] == "Pending"
        assert made["spec"]["restartPolicy"] == "Always"
        made = await api.create(namespace("n"))
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
        assert (made["status"]["phase"], made["spec"]["finalizers"]) == ("Active", ["kubernetes"])


async def test_a_new_claim_has_no_status() -> None:
    async with serving() as api:
        document = claim("a") | {"status": {"allocation": allocation()}}
        made = await api.create(document)
        assert not made.get("status")
        document = pod("p") | {"status": {"phase": "Running"}}
        assert (await api.create(document))["status"]["phase"] == "Pending"
        with_status = node("n") | {"status": {"capacity": {"cpu": "4"}}}
        assert (await api.create(with_status))["status"]["capacity"] == {"cpu": "4"}


@pytest.mark.req("K3063-030")
async def test_spec_and_status_are_written_separately() -> None:
    async with serving() as api:
        await api.create(device_class())
        await api.create(resource_slice("s"))
        made, user = await api.create(claim("a")), await api.create(pod("p", claim_name="a"))
        status = {"allocation": allocation(), "reservedFor": [consumer(user)]}
        changed = made | {"status": status}
        changed["metadata"] = {**made["metadata"], "labels": {"sneaked": "in"}}
        whole = await api.put(changed, path("resourceclaims", "a"))
        assert not whole.get("status")
        assert whole["metadata"]["labels"] == {"sneaked": "in"}
        written = await api.put(
            whole | {"status": status, "spec": {"devices": {}}}, path("resourceclaims", "a", sub="status")
        )
        assert written["spec"] == made["spec"]
        assert written["status"]["reservedFor"] == [consumer(user)]
        assert written["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        again = await api.put(written | {"status": {}}, path("resourceclaims", "a"))
        assert again["status"] == written["status"]


async def test_the_status_subresource_does_not_write_metadata() -> None:
    async with serving() as api:
        made = await api.create(pod("p"))
        changed = made | {"status": {"phase": "Running"}}
        changed["metadata"] = {**made["metadata"], "labels": {"a": "b"}, "finalizers": ["x.example.com/y"]}
        written = await api.put(changed, path("pods", "p", sub="status"))
        assert written["status"]["phase"] == "Running"
        assert "labels" not in written["metadata"]
        assert "finalizers" not in written["metadata"]


async def test_the_generation_counts_changes_of_the_spec() -> None:
    async with serving() as api:
        made = await api.create(resource_slice("s"))
        where = path("resourceslices", "s")
        labelled = await api.patch(where, {"metadata": {"labels": {"a": "b"}}})
        assert labelled["metadata"]["generation"] == 1
        more = resource_slice("s", devices=3)
        more["metadata"]["resourceVersion"] = labelled["metadata"]["resourceVersion"]
        assert (await api.put(more, where))["metadata"]["generation"] == 2
        assert made["metadata"]["generation"] == 1


async def test_a_write_that_changes_nothing_writes_nothing() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        where = path("configmaps", "a")
        assert await api.put(made, where) == made
        assert await api.patch(where, {"data": {"key": "value"}}) == made
        assert (await api.get(where))["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_resource_version_and_uid_are_preconditions() -> None:
    async with serving() as api:
        where = path("configmaps", "a")
        made = await api.create(config("a"))
        await api.patch(where, {"data": {"key": "other"}})
        stale = await api.ask("PUT", where, made)
        assert (stale.code, stale.reason) == (409, "Conflict")
        other = {**made, "metadata": {**made["metadata"], "uid": "another", "resourceVersion": ""}}
        refused = await api.ask("PUT", where, other)
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert "UID in precondition: another" in refused.message
        blind = await api.put(config("a"), where)
        assert blind["metadata"]["uid"] == made["metadata"]["uid"]
        assert blind["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
        late = await api.ask(
            "PATCH",
            where,
            {"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}},
            headers={"content-type": "application/merge-patch+json"},
        )
        assert late.code == 409


async def test_one_of_many_updates_at_a_version_wins() -> None:
    async with serving() as api:
        made = await api.create(config("a"))
        where = path("configmaps", "a")
        tries = [api.ask("PUT", where, made | {"data": {"winner": str(number)}}) for number in range(20)]
        answers = await asyncio.gather(*tries)
        assert sorted(response.code for response in answers) == [200] + [409] * 19
        (won,) = (response.document for response in answers if response.code == 200)
        assert await api.get(where) == won


async def test_concurrent_patches_are_all_applied() -> None:
    async with serving() as api:
        await api.create(config("a"))
        where = path("configmaps", "a")
        await asyncio.gather(*(api.patch(where, {"data": {f"k{n}": "v"}}) for n in range(20)))
        assert len((await api.get(where))["data"]) == 21


async def test_one_of_many_creates_wins() -> None:
    async with serving() as api:
        answers = await asyncio.gather(*(api.ask("POST", path("configmaps"), config("a")) for _ in range(20)))
        assert sorted(response.code for response in answers) == [201] + [409] * 19
        assert {response.reason for response in answers if response.code == 409} == {"AlreadyExists"}


async def test_an_update_creates_leases_and_events_and_no_other_kind() -> None:
    async with serving() as api:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l", "namespace": "kube-system"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
        }
        response = await api.ask("PUT", path("leases", "l", namespace="kube-system"), lease)
        assert response.code == 201
        response = await api.ask("PUT", path("configmaps", "a"), config("a"))
        assert (response.code, response.reason) == (404, "NotFound")


async def test_objects_need_an_existing_namespace() -> None:
    async with serving() as api:
        response = await api.ask("POST", path("configmaps", namespace="no"), config("a", "no"))
        assert (response.code, response.reason) == (404, "NotFound")
        assert response.message == 'namespaces "no" not found'


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_dry_run_stores_nothing(method: str) -> None:
    async with serving() as api:
        before = await api.create(config("a"))
        where = path("configmaps") if method == "POST" else path("configmaps", "a")
        body = {"POST": config("b"), "PUT": config("a") | {"data": {}}, "PATCH": {"data": {"x": "y"}}}
        headers = {"content-type": "application/merge-patch+json"} if method == "PATCH" else {}
        response = await api.ask(method, where, body.get(method), headers=headers, dryRun="All")
        assert response.code in (200, 201)
        if method == "PATCH":
            assert response.document["data"] == {"key": "value", "x": "y"}
        if method == "POST":
            assert response.document["metadata"]["uid"]
        assert (await api.get(path("configmaps")))["items"] == [before]
        refused = await api.ask(method, where, body.get(method), headers=headers, dryRun="Some")
        assert refused.code in (400, 422), refused.document
        assert (await api.get(path("configmaps")))["items"] == [before]


async def test_a_dry_run_is_validated_like_a_write() -> None:
    async with serving() as api:
        await api.create(config("a"))
        response = await api.ask("POST", path("configmaps"), config("a"), dryRun="All")
        assert (response.code, response.reason) == (409, "AlreadyExists")
        response = await api.ask(
            "POST", path("resourceclaims"), claim("bad", requests=[{"name": "r"}]), dryRun="All"
        )
        assert response.code == 422


async def test_the_body_of_a_delete_may_request_a_dry_run() -> None:
    async with serving() as api:
        await api.create(config("a"))
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
        await api.delete(path("configmaps", "a"), options)
        assert await api.names(path("configmaps")) == ["a"]


async def test_immutable_fields_cannot_change() -> None:
    async with serving() as api:
        made = await api.create(claim("a"))
        made["spec"]["devices"]["requests"][0]["exactly"]["count"] = 3
        response = await api.ask("PUT", path("resourceclaims", "a"), made)
        assert response.code == 422
        assert response.document["details"]["causes"][0]["field"] == "spec"
        assert "immutable" in response.message


async def test_a_pod_is_bound_once() -> None:
    async with serving() as api:
        made = await api.create(pod("p"))
        where = path("pods", "p", sub="binding")
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": "p", "namespace": "default", "uid": made["metadata"]["uid"]},
            "target": {"kind": "Node", "name": "node-a"},
        }
        wrong = {**binding, "metadata": {"name": "p", "uid": "another"}}
        assert (await api.ask("POST", where, wrong)).code == 409
        response = await api.ask("POST", where, binding)
        assert (response.code, response.document["kind"], response.document["status"]) == (
            201,
            "Status",
            "Success",
        )
        bound = await api.get(path("pods", "p"))
        assert bound["spec"]["nodeName"] == "node-a"
        assert [c["status"] for c in bound["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]
        again = await api.ask("POST", where, binding)
        assert (again.code, again.reason) == (409, "Conflict")
        assert "already assigned" in again.message
        assert (
            await api.ask("POST", path("pods", "q", sub="binding"), {**binding, "metadata": {"name": "q"}})
        ).code == 404
        assert (await api.ask("POST", path("pods", "q", sub="binding"), binding)).code == 400


async def test_a_pod_can_be_bound_through_the_legacy_bindings_resource() -> None:
    async with serving() as api:
        await api.create(pod("p"))
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-a"}}
        assert (await api.ask("POST", path("bindings"), binding)).code == 201
        assert (await api.get(path("pods", "p")))["spec"]["nodeName"] == "node-a"
        assert (await api.ask("POST", path("bindings"), binding)).code == 409
        assert (await api.ask("POST", path("bindings"), {"target": binding["target"]})).code == 400
        assert (await api.ask("GET", path("bindings"))).code == 405
        assert (await api.ask("DELETE", path("bindings"))).code == 405
        assert (await api.ask("GET", path("bindings", "p"))).code == 404
        stranger = api.as_user("stranger")
        assert (await stranger.ask("POST", path("bindings"), binding)).code == 403


async def test_server_owned_fields_survive_updates() -> None:
    async with serving() as api:
        made = await api.create(claim("a"))
        where = path("resourceclaims", "a")
        forged = {"generation": 77, "selfLink": "/forged", "creationTimestamp": "2001-01-01T00:00:00Z"}
        response = await api.patch(where, {"metadata": forged})
        assert response["metadata"] == made["metadata"]
        for moved in ({"metadata": {"namespace": "kube-system"}}, {"metadata": {"name": "b"}}):
            assert (await api.ask("PATCH", where, moved, headers={"content-type": MERGE})).code == 400
        for field, value in (
            ("deletionTimestamp", "2001-01-01T00:00:00Z"),
            ("deletionGracePeriodSeconds", 5),
            ("uid", "5d1cd0a6-7d9c-4d2b-a0a4-2d9d4e5c6f01"),
        ):
            body = {"metadata": {field: value}}
            refused = await api.ask("PATCH", where, body, headers={"content-type": MERGE})
            assert refused.code == 422, field
            assert refused.document["details"]["causes"][0]["field"] == f"metadata.{field}"


async def test_a_new_pod_has_defaults_and_a_status() -> None:
    async with serving() as api:
        made = await api.create(pod("p"))
        where = path("pods", "p")
        refusals: list[dict] = [
            {"nodeName": "node-a"},
            {"serviceAccountName": "other"},
            {"containers": [{"name": "c", "image": "pause:3", "command": ["sh"]}]},
            {"hostNetwork": True},
        ]
        for spec in refusals:
            body = {"spec": spec}
            response = await api.ask("PATCH", where, body, headers={"content-type": STRATEGIC})
            assert response.code == 422, spec
            assert f"`{next(iter(spec))}`" in response.message
        changes: list[dict] = [
            {"containers": [{"name": "c", "image": "pause:4"}]},
            {"activeDeadlineSeconds": 60},
            {"tolerations": [{"key": "x", "operator": "Exists"}, *made["spec"]["tolerations"]]},
        ]
        for spec in changes:
            await api.patch(where, {"spec": spec}, STRATEGIC)
        plain = pod("p")
        plain["spec"]["containers"][0]["image"] = "pause:5"
        plain["spec"] |= {"activeDeadlineSeconds": 30, "tolerations": [{"key": "x", "operator": "Exists"}]}
        replaced = await api.put(plain | {"status": {}}, where)
        assert replaced["spec"]["restartPolicy"] == "Always"
        assert replaced["status"]["phase"] == "Pending"


async def test_string_data_of_secrets_is_stored_encoded() -> None:
    async with serving() as api:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        made = await api.create(secret | {"stringData": {"a": "b"}, "data": {"c": "ZA=="}})
        assert (made["data"], "stringData" in made) == ({"a": "Yg==", "c": "ZA=="}, False)
        changed = await api.patch(path("secrets", "s"), {"stringData": {"a": "x"}})
        assert changed["data"] == {"a": "eA==", "c": "ZA=="}


async def test_empty_values_of_go_clients_are_dropped() -> None:
    async with serving() as api:
        empty: dict = {"labels": None, "annotations": None, "finalizers": None, "ownerReferences": None}
        document = claim("a", creationTimestamp=None, managedFields=None, **empty)
        document["spec"]["devices"] |= {"constraints": None, "config": None}
        document["spec"]["devices"]["requests"][0]["exactly"] |= {"selectors": None, "tolerations": None}
        response = await api.ask("POST", path("resourceclaims"), document, fieldValidation="Strict")
        assert response.code == 201, response.document
        assert "constraints" not in response.document["spec"]["devices"]
        document = pod("p", creationTimestamp=None, **empty)
        document["spec"] |= {"volumes": None, "resourceClaims": None, "nodeSelector": None}
        document["spec"]["containers"][0] |= {"resources": {"claims": None}, "env": None}
        response = await api.ask("POST", path("pods"), document, fieldValidation="Strict")
        assert response.code == 201, response.document


async def test_a_certificate_request_names_who_created_it() -> None:
    where = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": "", "signerName": "example.com/s", "usages": ["client auth"]}
    asked = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr"},
        "spec": {**spec, "username": "system:node:other", "groups": ["system:nodes"], "extra": {"a": ["b"]}},
    }
    async with serving() as api:
        created = await api.as_user("ann", "system:masters").create(asked, where)
        groups = ["system:masters", "system:authenticated"]
        assert created["spec"] == {**spec, "username": "ann", "groups": groups}
        kept = await api.put({**asked, "metadata": created["metadata"]}, f"{where}/csr")
        assert kept["spec"] == created["spec"]
