"""OpenAPI documents, compared with those of a Kubernetes server, and as `kubectl` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import KINDS
from dray.server.http.errors import ApiStatusError
from dray.server.openapi import OpenApiDocuments
from tests.unit.server.samples import sample

V1 = "/openapi/v3/apis/resource.k8s.io/v1"
PACKAGE = "io.k8s.api.resource.v1."


@pytest.fixture(scope="module")
def openapi() -> OpenApiDocuments:
    return OpenApiDocuments(KINDS, transactions=True)


def fetch_document(openapi: OpenApiDocuments, path: str, **query: str) -> Any:
    answer = openapi.answer(path, "application/json", {}, query)
    assert answer is not None
    assert answer.code == 200
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


@pytest.fixture(scope="module")
def every(openapi) -> dict[str, Any]:
    """All documents of version 3."""
    return {
        name: fetch_document(openapi, f"/openapi/v3/{name}")
        for name in fetch_document(openapi, "/openapi/v3")["paths"]
    }


def test_the_index_names_every_group_and_version_as_kubernetes_does(openapi, pytestconfig):
    ours, theirs = (
        fetch_document(openapi, "/openapi/v3")["paths"],
        sample(pytestconfig, "openapi_v3_root.json")["paths"],
    )
    places = {
        f"apis/{kind.group}/{one}" if kind.group else f"api/{one}" for kind in KINDS for one in kind.versions
    }
    reviews = {"apis/authentication.k8s.io/v1", "apis/authorization.k8s.io/v1"}
    assert ours.keys() == places | reviews
    for place in ours.keys() & theirs.keys():
        assert ours[place].keys() == theirs[place].keys()
        address, _, tag = ours[place]["serverRelativeURL"].partition("?hash=")
        assert address == f"/openapi/v3/{place}"
        assert tag


def test_published_schema_names_never_change(openapi):
    """Generated clients carry these names, so renaming a struct must not rename its schema."""
    published = Path(__file__).with_name("published_schema_names.txt").read_text().split()
    assert sorted(fetch_document(openapi, "/openapi/v2")["definitions"]) == published


def test_a_document_requested_by_its_hash_may_be_cached_for_ever(openapi):
    url = fetch_document(openapi, "/openapi/v3")["paths"]["apis/resource.k8s.io/v1"]["serverRelativeURL"]
    path, _, tag = url.partition("?hash=")
    kept = openapi.answer(path, "*/*", {}, {"hash": tag})
    assert "immutable" in dict(kept.headers)["cache-control"]
    for query in ({}, {"hash": "other"}):
        again = openapi.answer(path, "*/*", {}, query)
        assert "no-cache" in dict(again.headers)["cache-control"]


@pytest.mark.parametrize("path", ["/openapi/v3", V1, "/openapi/v2"])
def test_a_matching_etag_is_answered_with_304(openapi, path):
    first = openapi.answer(path, "*/*", {})
    tag = dict(first.headers)["etag"]
    again = openapi.answer(path, "*/*", {"if-none-match": tag})
    assert (again.code, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/openapi", "/openapi/v3/api", "/openapi/v3/apis/none/v1", "/openapi/v4"])
def test_other_paths_are_not_openapi(openapi, path):
    assert openapi.answer(path, "*/*", {}) is None


def test_documents_are_also_yaml_and_nothing_strange(openapi):
    answer = openapi.answer("/openapi/v3", "application/yaml", {})
    assert answer.body.startswith(b"paths:\n")
    with pytest.raises(ApiStatusError, match="Not Acceptable"):
        openapi.answer("/openapi/v3", "text/html", {})


NOT_THEIRS = {"DeviceAttribute.list", "ResourcePool.priority", "ResourceSliceSpec.priority"}
"""Fields of the specification that Kubernetes does not have."""

EXTENSIONS = (
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-map-type",
)


def _facts(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what clients use in the schema of a field."""
    references = [one["$ref"] for one in schema.get("allOf", ())]
    facts = {name: schema[name] for name in ("type", *EXTENSIONS) if name in schema}
    if "x-kubernetes-list-map-keys" in facts:
        facts["x-kubernetes-list-map-keys"] = sorted(facts["x-kubernetes-list-map-keys"])
    return facts | ({"$ref": references} if references else {})


OPEN_TYPES = {"meta.v1.Time", "runtime.RawExtension", "meta.v1.FieldsV1"}


def test_fields_have_the_types_and_merge_rules_of_kubernetes(openapi, pytestconfig):
    ours = fetch_document(openapi, V1)["components"]["schemas"]
    theirs = sample(pytestconfig, "openapi_v3_resource_v1.json")["components"]["schemas"]
    compared = 0
    for name in ours.keys() & theirs.keys():
        if not name.startswith(PACKAGE):
            continue
        for field, schema in ours[name]["properties"].items():
            if f"{name.removeprefix(PACKAGE)}.{field}" in NOT_THEIRS:
                continue
            expected = _facts(theirs[name]["properties"][field])
            if any(one.endswith(tuple(OPEN_TYPES)) for one in expected.get("$ref", ())):
                continue
            assert _facts(schema) == expected, (name, field)
            compared += 1
    assert compared > 100


def test_schemas_have_group_version_and_kind_as_in_kubernetes(openapi, pytestconfig):
    ours = fetch_document(openapi, V1)["components"]["schemas"]
    theirs = sample(pytestconfig, "openapi_v3_resource_v1.json")["components"]["schemas"]
    for name in ("ResourceClaim", "ResourceClaimList", "ResourceSlice", "DeviceClass", "DeviceTaintRule"):
        gvk = "x-kubernetes-group-version-kind"
        assert ours[PACKAGE + name][gvk] == theirs[PACKAGE + name][gvk]


def test_paths_have_the_operations_of_kubernetes(openapi, pytestconfig):
    ours = fetch_document(openapi, V1)["paths"]
    theirs = sample(pytestconfig, "openapi_v3_resource_v1.json")["paths"]
    assert ours.keys() == {path for path in theirs if "/watch/" not in path}
    for path, item in ours.items():
        assert item.keys() == theirs[path].keys()
        for method, operation in item.items():
            if method == "parameters":
                continue
            # Which of them stand at the path and which at the operation means nothing.
            assert _taken(item, method) <= _taken(theirs[path], method), (path, method)
            for field in ("x-kubernetes-action", "x-kubernetes-group-version-kind"):
                assert operation.get(field) == theirs[path][method].get(field), (path, method)


def _taken(item: dict[str, Any], method: str) -> set[tuple[str, str]]:
    every = (*item.get("parameters", ()), *item[method].get("parameters", ()))
    return {(one["name"], one["in"]) for one in every}


def test_every_patch_takes_what_kubectl_looks_for(every):
    patches = [
        operation
        for document in every.values()
        for item in document["paths"].values()
        for method, operation in item.items()
        if method == "patch"
    ]
    assert len(patches) > 60
    for operation in patches:
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
        assert names >= {"fieldValidation", "dryRun", "fieldManager", "force"}


def test_strategic_patches_are_offered_where_the_schema_is_whole(every):
    strategic = "application/strategic-merge-patch+json"

    def forms(place: str, path: str) -> Any:
        return every[place]["paths"][path]["patch"]["requestBody"]["content"]

    claims = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
    assert strategic in forms("apis/resource.k8s.io/v1", claims)
    assert strategic not in forms("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}")


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_references, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if "$ref" in value else set()
    return own.union(*map(_references, value.values()))


def test_every_reference_leads_somewhere(openapi, every):
    for document in every.values():
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert _references(document) <= known
    older = fetch_document(openapi, "/openapi/v2")
    assert _references(older) <= {f"#/definitions/{name}" for name in older["definitions"]}


def test_operations_have_names_of_their_own(every):
    for document in every.values():
        names = [
            operation["operationId"]
            for item in document["paths"].values()
            for method, operation in item.items()
            if method != "parameters"
        ]
        assert len(names) == len(set(names))


def test_every_kind_is_found_by_its_group_version_and_kind(every):
    for kind in KINDS:
        for version in kind.versions:
            place = f"apis/{kind.group}/{version}" if kind.group else f"api/{version}"
            wanted = {"group": kind.group, "version": version, "kind": kind.name}
            found = [
                schema
                for schema in every[place]["components"]["schemas"].values()
                if wanted in schema.get("x-kubernetes-group-version-kind", ())
            ]
            assert len(found) == 1
            assert found[0]["properties"].keys() >= {"apiVersion", "kind", "metadata"}
            assert found[0].get("x-kubernetes-preserve-unknown-fields", False) is kind.open


def test_every_field_is_described(every):
    for place, document in every.items():
        for name, schema in document["components"]["schemas"].items():
            assert schema["description"], (place, name)
            for field, part in schema.get("properties", {}).items():
                assert part["description"], (place, name, field)


def test_the_older_version_of_a_claim_has_its_own_schema(every):
    schemas = every["apis/resource.k8s.io/v1beta1"]["components"]["schemas"]
    request = schemas["io.k8s.api.resource.v1beta1.DeviceRequest"]["properties"]
    assert {"name", "deviceClassName", "count", "firstAvailable"} <= request.keys()
    assert "exactly" not in request
    device = schemas["io.k8s.api.resource.v1beta1.Device"]["properties"]
    assert device.keys() == {"name", "basic"}
    basic = schemas["io.k8s.api.resource.v1beta1.BasicDevice"]["properties"]
    assert "attributes" in basic
    assert "name" not in basic


def test_version_2_describes_the_same_as_version_3(openapi, every):
    older = fetch_document(openapi, "/openapi/v2")
    assert older["swagger"] == "2.0"
    assert older["paths"].keys() == set().union(*(document["paths"] for document in every.values()))
    claim = older["definitions"]["io.k8s.api.resource.v1.ResourceClaim"]
    assert claim["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.resource.v1.ResourceClaimSpec"
    path = older["paths"]["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"]
    assert path["post"]["parameters"][0]["in"] == "body"
    assert {"name": "dryRun", "in": "query"}.items() <= path["post"]["parameters"][1].items()


@pytest.mark.parametrize("mark", ["spec.v2@v1.0", "spec.v2.v1.0"])
def test_version_2_in_protobuf_is_a_document_that_defines_nothing(openapi, mark):
    answer = openapi.answer("/openapi/v2", f"application/com.github.proto-openapi.{mark}+protobuf", {})
    assert answer.content_type.endswith("protobuf")
    assert answer.body.startswith(b"\x0a\x032.0")
