"""Other representations: tables, partial metadata and YAML, and formats that are not offered."""

from __future__ import annotations

import pytest

from tests.contract.api import path, serving
from tests.contract.documents import claim, config, pod, resource_slice

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def test_tables_have_columns_and_rows() -> None:
    async with serving() as api:
        await api.create(claim("a"))
        response = await api.ask("GET", path("resourceclaims"), headers={"accept": TABLE})
        table = response.document
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        names = [column["name"] for column in table["columnDefinitions"]]
        assert names[:2] == ["Name", "State"]
        (row,) = table["rows"]
        assert row["cells"][:2] == ["a", "pending"]
        assert row["object"]["kind"] == "PartialObjectMetadata"
        assert table["metadata"]["resourceVersion"].isdigit()


@pytest.mark.parametrize(("include", "kind"), [("Object", "ResourceClaim"), ("None", None)])
async def test_rows_contain_the_requested_object(include: str, kind: str | None) -> None:
    async with serving() as api:
        await api.create(claim("a"))
        response = await api.ask(
            "GET", path("resourceclaims"), headers={"accept": TABLE}, includeObject=include
        )
        found = response.document["rows"][0].get("object")
        assert (found["kind"] if found else None) == kind


async def test_tables_come_in_pages_and_for_one_object() -> None:
    async with serving() as api:
        for name in ("a", "b", "c"):
            await api.create(pod(name))
        first = await api.ask("GET", path("pods"), headers={"accept": TABLE}, limit="2")
        assert len(first.document["rows"]) == 2
        token = first.document["metadata"]["continue"]
        rest = await api.ask("GET", path("pods"), headers={"accept": TABLE}, limit="2", continue_=token)
        assert [row["cells"][0] for row in rest.document["rows"]] == ["c"]
        one = await api.ask("GET", path("pods", "a"), headers={"accept": TABLE})
        assert [row["cells"][0] for row in one.document["rows"]] == ["a"]
        missing = await api.ask("GET", path("pods", "z"), headers={"accept": TABLE})
        assert (missing.code, missing.document["kind"]) == (404, "Status")


async def test_a_watch_of_tables_has_columns_once() -> None:
    async with serving() as api:
        await api.create(resource_slice("a"))
        async with api.watch(path("resourceslices"), TABLE) as watch:
            first = await watch.event()
            await api.create(resource_slice("b", "node-b"))
            second = await watch.event()
        assert first["object"]["kind"] == second["object"]["kind"] == "Table"
        assert first["object"]["columnDefinitions"]
        assert not second["object"]["columnDefinitions"]
        assert second["object"]["rows"][0]["cells"][0] == "b"


@pytest.mark.parametrize("plural", ["configmaps", "leases", "namespaces", "deviceclasses"])
async def test_every_kind_has_a_table(plural: str) -> None:
    async with serving() as api:
        response = await api.ask("GET", path(plural), headers={"accept": TABLE})
        assert response.document["columnDefinitions"][0]["name"] == "Name"


async def test_metadata_alone() -> None:
    async with serving() as api:
        made = await api.create(config("a", labels={"x": "y"}))
        one = await api.ask("GET", path("configmaps", "a"), headers={"accept": METADATA})
        assert one.document == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": made["metadata"],
        }
        for accept in (METADATA, METADATA_LIST):
            many = await api.ask("GET", path("configmaps"), headers={"accept": accept})
            assert many.document["kind"] == "PartialObjectMetadataList"
            assert [item["metadata"] for item in many.document["items"]] == [made["metadata"]]
        async with api.watch(path("configmaps"), METADATA) as watch:
            assert (await watch.event())["object"] == one.document


async def test_bodies_and_responses_may_be_yaml() -> None:
    async with serving() as api:
        body = b"metadata:\n  name: a\ndata:\n  x: 'yes'\n"
        response = await api.ask(
            "POST", path("configmaps"), body, headers={"content-type": "application/yaml"}
        )
        assert response.code == 201
        assert response.document["data"] == {"x": "yes"}
        response = await api.ask("GET", path("configmaps", "a"), headers={"accept": "application/yaml"})
        assert response.headers["content-type"].startswith("application/yaml")
        assert "kind: ConfigMap" in response.document


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("*/*", 200),
        ("application/*", 200),
        ("", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/vnd.kubernetes.protobuf, */*", 200),
        ("application/vnd.kubernetes.protobuf", 200),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406),
        ("application/json;as=Nothing;v=v1;g=meta.k8s.io", 406),
        ("text/html", 406),
    ],
)
async def test_the_accept_header_decides_the_format(accept: str, code: int) -> None:
    async with serving() as api:
        response = await api.ask("GET", path("configmaps"), headers={"accept": accept})
        assert response.code == code, response.document
