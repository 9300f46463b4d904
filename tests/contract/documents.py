"""Objects for the tests of the API, each as small as it can be."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def config(name: str, namespace: str = "default", **metadata: Any) -> Document:
    """A config map: an object without any rules of its own."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "data": {"key": "value"},
    }


def request(name: str = "gpu", **fields: Any) -> Document:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **fields}}


def claim(name: str, namespace: str = "default", *, requests: Any = None, **metadata: Any) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"devices": {"requests": requests or [request()]}},
    }


def old_claim(name: str, version: str = "v1beta1") -> Document:
    """The same claim as beta versions write it: v1beta1 has the request's fields one level higher."""
    fields = {"deviceClassName": "gpu.example.com", "count": 2, "allocationMode": "ExactCount"}
    asked = {"name": "gpu", **fields} if version == "v1beta1" else {"name": "gpu", "exactly": fields}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [asked]}},
    }


def template(name: str) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request()]}}},
    }


def device_class(name: str = "gpu.example.com") -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
    }


def resource_slice(name: str, node: str = "node-a", devices: int = 2, **device: Any) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}", **device} for number in range(devices)],
        },
    }


def node(name: str = "node-a") -> Document:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def pod(name: str, namespace: str = "default", claim_name: str = "", **metadata: Any) -> Document:
    spec: Document = {"containers": [{"name": "c", "image": "pause:3"}]}
    if claim_name:
        spec["containers"][0]["resources"] = {"claims": [{"name": "g"}]}
        spec["resourceClaims"] = [{"name": "g", "resourceClaimName": claim_name}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def owner(document: Document, **more: Any) -> Document:
    """A reference to an object that was stored."""
    metadata = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


def allocation(device: str = "gpu-0", *, node: str = "node-a", request: str = "gpu", **more: Any) -> Document:
    """The allocation of one device, as a scheduler writes it."""
    result = {"request": request, "driver": "gpu.example.com", "pool": node, "device": device, **more}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def consumer(pod: Document) -> Document:
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
