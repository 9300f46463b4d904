"""Discovery documents, compared with those of a Kubernetes server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.api.kinds import KINDS
from dray.server.discovery.documents import DiscoveryEndpoints
from dray.server.http.errors import ApiStatusError
from tests.unit.server.samples import sample

GROUPS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{GROUPS},{GROUPS.replace('v2', 'v2beta1')},application/json"


@pytest.fixture(scope="module")
def discovery() -> DiscoveryEndpoints:
    return DiscoveryEndpoints(KINDS, "127.0.0.1:6443")


def fetch_document(discovery: DiscoveryEndpoints, path: str, accept: str = "application/json") -> Any:
    answer = discovery.answer(path, accept, {})
    assert answer is not None
    assert answer.code == 200
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def rows(document: dict[str, Any]) -> dict[str, Any]:
    """The rows of a resource list; the hash of the stored version differs between servers."""
    return {
        row["name"]: {field: value for field, value in row.items() if field != "storageVersionHash"}
        for row in document["resources"]
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1", "apiresourcelist_core_v1.json"),
        ("/apis/resource.k8s.io/v1", "apiresourcelist_resource_v1.json"),
    ],
)
def test_every_row_of_legacy_discovery_is_as_in_kubernetes(discovery, pytestconfig, path, name):
    ours, theirs = fetch_document(discovery, path), sample(pytestconfig, name)
    theirs_by_name = rows(theirs)
    assert rows(ours) == {row: theirs_by_name[row] for row in rows(ours)}
    # The core group's own list goes without `apiVersion` there; no client minds that ours has it.
    assert {**ours, "resources": 0} == {"apiVersion": "v1", **theirs, "resources": 0}
    assert all("storageVersionHash" in row for row in ours["resources"] if "list" in row["verbs"])


def test_the_versions_of_the_core_group(discovery, pytestconfig):
    theirs = sample(pytestconfig, "apiversions.json")
    theirs["serverAddressByClientCIDRs"][0]["serverAddress"] = "127.0.0.1:6443"
    assert fetch_document(discovery, "/api") == theirs


def test_groups_have_the_form_and_the_preference_kubernetes_gives_them(discovery, pytestconfig):
    theirs = {group["name"]: group for group in sample(pytestconfig, "apigrouplist.json")["groups"]}
    ours = {group["name"]: group for group in fetch_document(discovery, "/apis")["groups"]}
    for name in ours.keys() & theirs.keys():
        assert ours[name].keys() == theirs[name].keys()
        assert ours[name]["preferredVersion"] == theirs[name]["preferredVersion"]
    assert ours.keys() - theirs.keys() == {"cdi.k8s.io", "dray.dev"}


def test_the_preferred_version_of_every_group_is_the_most_stable(discovery):
    versions = {
        group["name"]: [version["version"] for version in group["versions"]]
        for group in fetch_document(discovery, "/apis")["groups"]
    }
    assert versions["resource.k8s.io"] == ["v1", "v1beta2", "v1beta1"]
    assert versions["scheduling.k8s.io"] == ["v1", "v1beta1"]
    assert versions["coordination.k8s.io"] == ["v1", "v1beta1"]


def test_resource_k8s_io_precedes_cdi_k8s_io(discovery):
    names = [group["name"] for group in fetch_document(discovery, "/apis")["groups"]]
    assert names.index("resource.k8s.io") < names.index("cdi.k8s.io")


def test_a_group_has_its_own_document(discovery):
    listed = {group["name"]: group for group in fetch_document(discovery, "/apis")["groups"]}
    group = fetch_document(discovery, "/apis/resource.k8s.io")
    assert group == {"kind": "APIGroup", "apiVersion": "v1", **listed["resource.k8s.io"]}


@pytest.mark.parametrize(
    ("path", "name"), [("/api", "aggregated_discovery_api.json"), ("/apis", "aggregated_discovery_apis.json")]
)
def test_aggregated_discovery_is_as_in_kubernetes(discovery, pytestconfig, path, name):
    ours, theirs = fetch_document(discovery, path, KUBECTL), sample(pytestconfig, name)
    assert {**ours, "items": 0} == {**theirs, "items": 0}
    known = _flat(theirs)
    compared = 0
    for place, row in _flat(ours).items():
        if place not in known:
            assert place[0] in ("cdi.k8s.io", "dray.dev", "scheduling.k8s.io"), place
            continue
        theirs_row = dict(known[place])
        if "subresources" in theirs_row:
            served = [sub["subresource"] for sub in row.get("subresources", ())]
            theirs_row["subresources"] = [
                sub for sub in theirs_row["subresources"] if sub["subresource"] in served
            ]
        if not theirs_row.get("subresources"):
            theirs_row.pop("subresources", None)
        assert row == theirs_row
        compared += 1
    assert compared > 10


def _flat(document: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    return {
        (group["metadata"].get("name", ""), version["version"], row["resource"]): row
        for group in document["items"]
        for version in group["versions"]
        for row in version["resources"]
    }


def test_legacy_and_aggregated_discovery_list_the_same_resources(discovery):
    for path in ("/api", "/apis"):
        for (group, version, name), row in _flat(fetch_document(discovery, path, KUBECTL)).items():
            older = rows(
                fetch_document(discovery, f"/apis/{group}/{version}" if group else f"/api/{version}")
            )
            subs = {f"{name}/{sub['subresource']}" for sub in row.get("subresources", ())}
            assert {name, *subs} == {other for other in older if other.partition("/")[0] == name}


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_aggregated_discovery_has_its_content_type_and_varies_with_accept(discovery, version):
    answer = discovery.answer("/apis", GROUPS.replace("v2", version), {})
    assert answer is not None
    assert answer.content_type == GROUPS.replace("v2", version)
    assert ("vary", "Accept") in answer.headers
    assert json.loads(answer.body)["apiVersion"] == f"apidiscovery.k8s.io/{version}"


@pytest.mark.parametrize("accept", [KUBECTL, "application/json"])
@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
def test_a_matching_etag_is_answered_with_304(discovery, accept, form):
    first = discovery.answer("/apis", accept, {})
    assert first is not None
    tag = dict(first.headers)["etag"]
    again = discovery.answer("/apis", accept, {"if-none-match": form.format(tag)})
    assert again is not None
    assert (again.code, again.body, dict(again.headers)["etag"]) == (304, b"", tag)
    other = discovery.answer("/apis", accept, {"if-none-match": '"other"'})
    assert other is not None
    assert other.code == 200


def test_legacy_and_aggregated_documents_have_different_etags(discovery):
    tags = {dict(discovery.answer("/apis", accept, {}).headers)["etag"] for accept in (KUBECTL, "*/*")}
    assert len(tags) == 2


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"])
def test_slashes_at_the_end_do_not_matter(discovery, path):
    assert fetch_document(discovery, path + "/") == fetch_document(discovery, path)


@pytest.mark.parametrize(
    "path", ["/", "", "/apis/none", "/apis/apps/v9", "/api/v1/pods", "/healthz", "/apiss"]
)
def test_other_paths_are_not_discovery(discovery, path):
    assert discovery.answer(path, "*/*", {}) is None


def test_only_protobuf_is_refused(discovery):
    with pytest.raises(ApiStatusError, match="Not Acceptable"):
        discovery.answer("/apis", "application/vnd.kubernetes.protobuf", {})


def test_the_version_has_the_fields_clients_read(discovery, pytestconfig):
    ours, theirs = fetch_document(discovery, "/version"), sample(pytestconfig, "version.json")
    assert ours.keys() == theirs.keys()
    assert ours["gitVersion"].startswith("v1.37.0+dray-")
    for field in ("major", "minor", "emulationMinor", "minCompatibilityMinor"):
        assert ours[field] == theirs[field]


def test_reviews_are_discoverable_though_they_are_not_stored(discovery):
    reviews = rows(fetch_document(discovery, "/apis/authorization.k8s.io/v1"))
    assert reviews["localsubjectaccessreviews"]["namespaced"] is True
    assert reviews["selfsubjectrulesreviews"]["verbs"] == ["create"]
    assert rows(fetch_document(discovery, "/apis/authentication.k8s.io/v1")).keys() == {
        "selfsubjectreviews",
        "tokenreviews",
    }
