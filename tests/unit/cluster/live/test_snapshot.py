"""Snapshots of a server that does not let its user read everything.

The answers are those of kube-apiserver 1.37: rights are checked before it is known whether a kind is served,
so that a kind of another product is forbidden and not missing.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.client.client import Client
from dray.client.object_refs import resolve_kind
from dray.client.transport import TransportRequest, TransportResponse, TransportStream
from dray.cluster.live.access import describe_unserved
from dray.cluster.live.documents import read_device_documents
from dray.cluster.live.snapshot import LiveSnapshot, read_snapshot

DEVICES = ("deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslices")


def status(code: int, reason: str, **details: str) -> tuple[int, Any]:
    return code, {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "details": details,
    }


class RecordedServer:
    """A server that answers from a table; what is not in it is forbidden, as for a user without rights."""

    address = "https://127.0.0.1:6443"

    def __init__(self, answers: dict[str, Any], served: tuple[str, ...] = ("v1",)) -> None:
        self.answers = {path: (200, answer) for path, answer in answers.items()}
        self.asked: list[tuple[str, str]] = []
        for version in ("v1", "v1beta2", "v1beta1"):
            rows = [{"name": name} for name in DEVICES]
            self.answers[f"/apis/resource.k8s.io/{version}"] = (
                (200, {"resources": rows}) if version in served else status(404, "NotFound")
            )
        versions = [{"version": version} for version in served]
        self.answers["/apis/resource.k8s.io"] = (
            (200, {"kind": "APIGroup", "versions": versions}) if served else status(404, "NotFound")
        )
        self.answers["/api/v1"] = (200, {"resources": [{"name": "nodes"}, {"name": "pods"}]})
        self.answers["/apis/cdi.k8s.io/v1alpha1"] = status(404, "NotFound")

    async def request(self, request: TransportRequest, *, timeout: float = 0.0) -> TransportResponse:
        self.asked.append((request.method, request.path))
        code, body = self.answers.get(request.path) or status(403, "Forbidden", kind="x")
        return TransportResponse(code, {}, json.dumps(body).encode())

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        raise AssertionError("nothing is watched")

    async def close(self) -> None:
        pass


def listed(kind: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": f"{kind}List", "metadata": {"resourceVersion": "7"}, "items": list(items)}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}}


POD = {**named("p", namespace="ml"), "spec": {"containers": [{"name": "c"}]}}
CLAIM = {**named("c", namespace="ml"), "spec": {"devices": {}}}
IN_NAMESPACE = {
    "/api/v1/namespaces/ml/pods": listed("Pod", POD),
    "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims": listed("ResourceClaim", CLAIM),
    "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates": listed("ResourceClaimTemplate"),
}
SLICE = {
    **named("s"),
    "spec": {
        "driver": "x.example.com",
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d"}],
    },
}


def read(server: RecordedServer, *namespaces: str) -> LiveSnapshot:
    return asyncio.run(read_snapshot(Client(server), namespaces))


def test_rights_in_one_namespace_give_what_is_there_and_one_line_about_the_rest() -> None:
    server = RecordedServer(IN_NAMESPACE)
    snapshot = read(server, "ml", "other")
    assert [pod.metadata.name for pod in snapshot.bundle.pods] == ["p"]
    assert [claim.metadata.name for claim in snapshot.bundle.claims] == ["c"]
    assert snapshot.bundle.remarks == (
        "not allowed to read nodes, resourceslices.resource.k8s.io, deviceclasses.resource.k8s.io, "
        "devicetaintrules.resource.k8s.io; resourceclaims.resource.k8s.io, "
        "resourceclaimtemplates.resource.k8s.io, pods outside of namespace `ml`: "
        "the answer comes from the rest",
        "hint: the role `dray:viewer` (deploy/viewer.yaml) allows reading all of it",
    )
    assert snapshot.is_readable(Pod, "ml")
    assert snapshot.is_readable(ResourceClaim, "ml")
    assert not snapshot.is_readable(Pod)
    assert not snapshot.is_readable(Pod, "other")
    assert not snapshot.can_list_devices
    assert {method for method, _ in server.asked} == {"GET"}


def test_a_kind_that_is_forbidden_because_it_is_not_served_is_no_gap() -> None:
    snapshot = read(RecordedServer(IN_NAMESPACE), "ml")
    assert "cdi.k8s.io" not in " ".join(snapshot.bundle.remarks)


def test_without_rights_to_nodes_they_are_those_that_slices_name() -> None:
    readable = {
        "/apis/resource.k8s.io/v1/resourceslices": listed("ResourceSlice", SLICE),
        "/apis/resource.k8s.io/v1/deviceclasses": listed("DeviceClass"),
    }
    snapshot = read(RecordedServer({**IN_NAMESPACE, **readable}), "ml")
    assert [node.metadata.name for node in snapshot.bundle.nodes] == ["node-a"]
    assert not snapshot.is_readable(Node)
    assert snapshot.shows_devices
    assert "(devices of unseen claims look free; what unseen pods need" in snapshot.bundle.remarks[0]
    assert snapshot.bundle.remarks[-1].startswith("nodes are those that slices name")


@pytest.mark.parametrize(
    ("served", "words"),
    [
        ((), "the server does not serve the API group `resource.k8s.io`, so there are no devices; expected"),
        (("v1alpha3",), "the server serves `resource.k8s.io` only as `v1alpha3`, so no devices can be read"),
    ],
)
def test_a_server_without_the_versions_that_are_read(served: tuple[str, ...], words: str) -> None:
    rights = {"/api/v1/nodes": listed("Node"), "/api/v1/pods": listed("Pod")}
    snapshot = read(RecordedServer(rights, served))
    assert not snapshot.serves_devices
    (remark,) = snapshot.bundle.remarks
    assert remark.startswith(words)
    assert remark == describe_unserved(resolve_kind(ResourceSlice), served)


def test_documents_are_what_people_wrote_as_the_server_sends_it() -> None:
    generated = {**CLAIM, **named("p-c", namespace="ml", ownerReferences=[{"kind": "Pod", "name": "p"}])}
    managed = {"spec": {"devices": {}}, **named("c", namespace="ml", managedFields=[{"manager": "kubectl"}])}
    claiming = {**POD, **named("q", namespace="ml"), "spec": {"resourceClaims": [{"name": "d"}]}}
    path = "/apis/resource.k8s.io/v1beta1"
    server = RecordedServer(
        {
            "/api/v1/namespaces/ml/pods": listed("Pod", POD, claiming),
            f"{path}/namespaces/ml/resourceclaims": listed("ResourceClaim", managed, generated),
            f"{path}/namespaces/ml/resourceclaimtemplates": listed("ResourceClaimTemplate"),
        },
        served=("v1beta1",),
    )
    found = asyncio.run(read_device_documents(Client(server), ["ml"]))
    assert [each.name for each in found.documents] == ["resourceclaims/ml/c", "pods/ml/q"]
    assert found.documents[0].document == {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml"},
        "spec": {"devices": {}},
    }
    assert [gap.resource for gap in found.gaps if not gap.namespaces] == [
        "deviceclasses.resource.k8s.io",
        "resourceslices.resource.k8s.io",
    ]
