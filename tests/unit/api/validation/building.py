"""Valid objects of every kind, and errors in a form that suits tables of test cases.

Objects are decoded from documents, as users write them. A test takes a valid one and makes it invalid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.api.codec import decode_document
from dray.api.fields import FieldError

Document = dict[str, Any]

UID = "6e4a5b1c-3f0d-4c1e-9b7a-0d9f8c7b6a51"
OTHER_UID = "6e4a5b1c-3f0d-4c1e-9b7a-0d9f8c7b6a52"


def made(document: Document) -> Any:
    """The object a document stands for; it must hold nothing unknown."""
    decoded = decode_document(document)
    assert not decoded.unknown_fields, decoded.unknown_fields
    return decoded.object


def found(errors: Iterable[FieldError]) -> list[str]:
    """Errors as `Invalid spec.driver`, sorted."""
    return sorted(f"{error.type.value.removeprefix('FieldValue')} {error.path}" for error in errors)


def metadata(**fields: Any) -> Document:
    return {"name": "thing", "namespace": "ns", **fields}


def cluster_metadata(**fields: Any) -> Document:
    return {"name": "thing", **fields}


# --- resource.k8s.io ---


def ask(**fields: Any) -> Document:
    """An exact request or an alternative."""
    return {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1, **fields}


def request(name: str = "gpu", **fields: Any) -> Document:
    return {"name": name, "exactly": ask(**fields)}


def choice(name: str, *alternatives: Document) -> Document:
    return {"name": name, "firstAvailable": list(alternatives)}


def claim_document(*requests: Document, meta: Document | None = None, **devices: Any) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta or metadata(),
        "spec": {"devices": {"requests": list(requests or (request(),)), **devices}},
    }


def claim(*requests: Document, meta: Document | None = None, **devices: Any) -> Any:
    return made(claim_document(*requests, meta=meta, **devices))


def opaque(driver: str = "gpu.example.com", parameters: Any = None) -> Document:
    return {"driver": driver, "parameters": {"mode": "fast"} if parameters is None else parameters}


def template(*requests: Document, meta: Document | None = None, inner: Document | None = None) -> Any:
    spec: Document = {"spec": {"devices": {"requests": list(requests or (request(),))}}}
    if inner is not None:
        spec["metadata"] = inner
    kind = "ResourceClaimTemplate"
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": meta or metadata(),
        "spec": spec,
    }
    return made(document)


def device_class(meta: Document | None = None, **spec: Any) -> Any:
    envelope = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    return made({**envelope, "metadata": meta or cluster_metadata(), "spec": spec})


def device(name: str = "gpu-0", **fields: Any) -> Document:
    return {"name": name, **fields}


def slice_of(*devices: Document, meta: Document | None = None, **spec: Any) -> Any:
    """A slice on a node; a keyword that is None takes a field out."""
    fields = {
        "driver": "gpu.example.com",
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
        **spec,
    }
    return made(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": meta or cluster_metadata(),
            "spec": {name: value for name, value in fields.items() if value is not None},
        }
    )


def result(**fields: Any) -> Document:
    return {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0", **fields}


def allocation(*results: Document, **fields: Any) -> Document:
    return {"devices": {"results": list(results or (result(),))}, **fields}


def with_status(*requests: Document, meta: Document | None = None, **status: Any) -> Any:
    """A claim with a status."""
    return made({**claim_document(*requests, meta=meta), "status": status})


def consumer(uid: str = UID, **fields: Any) -> Document:
    return {"resource": "pods", "name": "train-0", "uid": uid, **fields}


# --- cdi.k8s.io ---


def classic_class(meta: Document | None = None, **fields: Any) -> Any:
    document = {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClass",
        "metadata": meta or cluster_metadata(),
    }
    return made({**document, "driverName": "gpu.example.com", **fields})


def classic_claim(meta: Document | None = None, status: Document | None = None, **spec: Any) -> Any:
    document: Document = {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": meta or metadata(),
        "spec": {"resourceClassName": "gpu.example.com", "allocationMode": "Delayed", **spec},
    }
    return made(document if status is None else {**document, "status": status})


def user(uid: str = UID) -> Document:
    return {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": uid}


# --- pods ---


def pod_document(
    *entries: Document, uses: Iterable[Any] = (), meta: Document | None = None, **fields: Any
) -> Document:
    """A pod with claims, and one container that uses some of them."""
    container = {"name": "main", "image": "web", "resources": {"claims": list(uses)}}
    spec = {"resourceClaims": list(entries), "containers": [container], **fields.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta or metadata(), "spec": spec, **fields}


def pod(*entries: Document, **fields: Any) -> Any:
    return made(pod_document(*entries, **fields))
