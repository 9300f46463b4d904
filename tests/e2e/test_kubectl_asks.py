"""kubectl asks what there is: discovery, explanations, rights, raw paths."""

from __future__ import annotations

import json

from tests.e2e.kubectl import Kubectl


def test_resources_and_versions_are_listed(kubectl: Kubectl) -> None:
    rows = kubectl("api-resources", "--api-group=resource.k8s.io").rows
    assert {row[0] for row in rows[1:]} >= {
        "deviceclasses",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourceslices",
    }
    wide = kubectl("api-resources", "--api-group=resource.k8s.io", "-o", "wide").out
    assert "create,delete,deletecollection,get,list,patch,update,watch" in wide
    names = kubectl("api-resources", "--namespaced=true", "--verbs=list", "-o", "name").out.split()
    assert "resourceclaims.resource.k8s.io" in names
    assert "resourceslices.resource.k8s.io" not in names
    versions = kubectl("api-versions").out.split()
    assert {"v1", "resource.k8s.io/v1", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"} <= set(versions)


def test_fields_are_explained(kubectl: Kubectl) -> None:
    told = kubectl("explain", "resourceclaim.spec.devices.requests").out
    assert "KIND:       ResourceClaim" in told
    assert "VERSION:    v1" in told
    assert "exactly" in told
    assert "firstAvailable" in told
    old = kubectl(
        "explain", "resourceclaim.spec.devices.requests", "--api-version=resource.k8s.io/v1beta1"
    ).out
    assert "deviceClassName" in old
    assert "sharedCounters" in kubectl("explain", "resourceslice.spec").out
    assert "reservedFor" in kubectl("explain", "resourceclaim", "--recursive").out
    assert "does not exist" in kubectl("explain", "resourceclaim.spec.nosuch", fails=True).err


def test_rights_are_told(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "resourceclaims").out.strip() == "yes"
    assert kubectl("auth", "can-i", "--list").rows[0][0] == "Resources"
    assert "dray-admin" in kubectl("auth", "whoami").out
    assert kubectl("auth", "whoami", "-o", "json").document["status"]["userInfo"]["username"] == "dray-admin"
    stranger = ("--as=stranger", "--as-group=system:authenticated")
    assert kubectl("auth", "can-i", "create", "resourceclaims", *stranger, fails=True).out.split()[0] == "no"
    assert "stranger" in kubectl("auth", "whoami", *stranger).out


def test_paths_answer_as_they_are(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/healthz").out == "ok"
    assert kubectl("get", "--raw", "/readyz").out == "ok"
    found = json.loads(kubectl("get", "--raw", "/apis/resource.k8s.io/v1").out)
    assert found["kind"] == "APIResourceList"
    assert json.loads(kubectl("get", "--raw", "/openapi/v2").out)["swagger"] == "2.0"
    assert "apiserver_request_total" in kubectl("get", "--raw", "/metrics").out


def test_the_cluster_tells_where_it_is(kubectl: Kubectl) -> None:
    assert "control plane" in kubectl("cluster-info").out
    assert kubectl("version", "-o", "json").document["serverVersion"]["major"] == "1"


def test_everything_of_a_category_is_listed(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=pause:3")
    assert "pod/p" in kubectl("get", "all").out
