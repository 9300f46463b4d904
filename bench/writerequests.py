"""The requests that `bench.writes` measures: single writes, and transactions of several of them.

Theory of operation: a sort of write says what must be there before (`prepare`) and which requests it is
(`build`). The requests of a transaction can also be sent one by one, so that both are compared.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench import serverobjects
from dray.api.json_text import write_json
from dray.api.transactions import GROUP, KIND, TRANSACTIONS_PATH, VERSION
from dray.claims.claim_names import FINALIZER, POD_CLAIM_NAME_ANNOTATION
from dray.server.http.application import ApiApplication, InProcessRequest
from dray.server.http.requests import AUTHENTICATED, MASTERS, ApiResponse, RequestUser

PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODE: Final = "node-0"
USER: Final = RequestUser("bench", (MASTERS, AUTHENTICATED))
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
NOW: Final = "2026-01-01T00:00:00Z"
DEVICES_PER_POOL: Final = 128
BATCH: Final = 8
"""Pods that are bound together."""

Document = dict[str, Any]


class Target:
    """A server in this process."""

    def __init__(self, app: ApiApplication) -> None:
        self._app = app

    async def send(
        self, method: str, path: str, document: Document | None = None, content_type: str = JSON
    ) -> ApiResponse:
        """Send a request; anything but success ends the measurement."""
        body = b"" if document is None else write_json(document)
        headers = {"accept": JSON, "user-agent": "bench/1", "content-type": content_type}
        response = await self._app.serve_in_process(InProcessRequest(method, path, {}, headers, body), USER)
        if response.code >= 400:
            raise SystemExit(f"{method} {path}: {response.code} {response.body!r}")
        return response

    async def create(self, path: str, document: Document | None) -> Document:
        """Create an object, and return it as it is stored."""
        response = await self.send("POST", path, document)
        assert isinstance(response.body, bytes)
        stored: Document = json.loads(response.body)
        return stored


Request = tuple[str, str, Document | None, str]
"""Method, path, body and its media type."""


@dataclass(frozen=True)
class MeasuredWrite:
    """A sort of write: what must be there before, and the requests."""

    prepare: Callable[[Target, str], Awaitable[Any]]
    build: Callable[[str, Any], Sequence[Request]]
    """Builds the requests for the object of a name; gets what `prepare` returned."""


def build_pod(name: str) -> Document:
    """A pod with two containers, a claim from a template, resources and labels, as a user writes it."""
    containers = [
        {
            "name": role,
            "image": f"registry.example/{role}:1",
            "env": [{"name": "RANK", "value": "0"}, {"name": "ROLE", "value": role}],
            "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi"},
                "limits": {"memory": "2Gi"},
                "claims": [{"name": "gpu"}],
            },
            "ports": [{"containerPort": 8080, "name": f"{role}-http"}],
        }
        for role in ("train", "sidecar")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "train", "queue": "research"}},
        "spec": {
            "containers": containers,
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        },
    }


def _build_status_patch(name: str) -> Document:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": NOW}
    containers = [
        {
            "name": role,
            "image": f"registry.example/{role}:1",
            "imageID": "sha256:0",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": NOW}},
        }
        for role in ("train", "sidecar")
    ]
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": NOW,
        "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}, ready],
        "containerStatuses": containers,
    }
    return {"metadata": {"name": name}, "status": status}


def _build_event(name: str) -> Document:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": f"Successfully assigned default/{name} to {NODE}",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": "1"},
    }


def _build_lease(name: str, version: str = "") -> Document:
    metadata = {"name": name, "namespace": "default"}
    if version:
        metadata["resourceVersion"] = version
    renewed = "2026-01-01T00:00:00.000000Z" if version else "2025-12-31T00:00:00.000000Z"
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _build_binding(name: str) -> Document:
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


async def _prepare_nothing(target: Target, name: str) -> None:
    """There is nothing to prepare."""


async def _prepare_pod(target: Target, name: str) -> None:
    await target.send("POST", PODS, build_pod(name))


async def _prepare_bound_pod(target: Target, name: str) -> None:
    await target.send("POST", PODS, build_pod(name))
    await target.send("POST", f"{PODS}/{name}/binding", _build_binding(name))


async def _prepare_claim(target: Target, name: str) -> str:
    claim = await target.send("POST", serverobjects.CLAIMS, serverobjects.claim_document(name))
    assert claim.stored is not None
    return str(claim.stored.revision)


async def _prepare_lease(target: Target, name: str) -> str:
    lease = await target.send("POST", LEASES, _build_lease(name))
    assert lease.stored is not None
    return str(lease.stored.revision)


def _allocate(name: str, version: str) -> Request:
    number = int(name.rpartition("-")[2])
    document = json.loads(serverobjects.allocated(name, version, number))
    return "PUT", f"{serverobjects.CLAIMS}/{name}/status", document, JSON


def _bind(name: str) -> Request:
    return "POST", f"{PODS}/{name}/binding", _build_binding(name), JSON


def _create_event(name: str) -> Request:
    return "POST", EVENTS, _build_event(name), JSON


WRITES: Final[dict[str, MeasuredWrite]] = {
    "create pod": MeasuredWrite(_prepare_nothing, lambda name, _: [("POST", PODS, build_pod(name), JSON)]),
    "bind pod": MeasuredWrite(_prepare_pod, lambda name, _: [_bind(name)]),
    "patch pod status": MeasuredWrite(
        _prepare_bound_pod,
        lambda name, _: [("PATCH", f"{PODS}/{name}/status", _build_status_patch(name), MERGE)],
    ),
    "patch pod as kubelet": MeasuredWrite(
        _prepare_bound_pod,
        lambda name, _: [("PATCH", f"{PODS}/{name}/status", _build_status_patch(name), STRATEGIC)],
    ),
    "delete pod": MeasuredWrite(_prepare_pod, lambda name, _: [("DELETE", f"{PODS}/{name}", None, JSON)]),
    "create claim": MeasuredWrite(
        _prepare_nothing,
        lambda name, _: [("POST", serverobjects.CLAIMS, serverobjects.claim_document(name), JSON)],
    ),
    "allocate claim": MeasuredWrite(_prepare_claim, lambda name, version: [_allocate(name, version)]),
    "create event": MeasuredWrite(_prepare_nothing, lambda name, _: [_create_event(name)]),
    "renew lease": MeasuredWrite(
        _prepare_lease,
        lambda name, version: [("PUT", f"{LEASES}/{name}", _build_lease(name, str(version)), JSON)],
    ),
}
"""The sorts of single writes that are measured."""

# --- what is written together ---


def _build_pod_claim(pod: Document) -> Document:
    """The claim of a pod as the controller creates it from a template."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    metadata = {
        "name": f"{name}-gpu",
        "namespace": "default",
        "annotations": {POD_CLAIM_NAME_ANNOTATION: "gpu"},
        "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        "finalizers": [FINALIZER],
    }
    return serverobjects.claim_document(name) | {"metadata": metadata}


def _create_and_record(name: str, pod: Document) -> Sequence[Request]:
    """The claim controller's writes for a new pod."""
    statuses = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    pins = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    patch = {"metadata": pins, "status": {"resourceClaimStatuses": statuses}}
    return [
        ("POST", serverobjects.CLAIMS, _build_pod_claim(pod), JSON),
        ("PATCH", f"{PODS}/{name}/status", patch, STRATEGIC),
    ]


async def _prepare_pending_pod(target: Target, name: str) -> Document:
    """A pod whose claim is recorded, and devices for it; the claim."""
    sort, _, number = name.rpartition("-")
    if int(number) % DEVICES_PER_POOL == 1:
        await target.send("POST", serverobjects.SLICES, _build_slice(f"{sort}-{int(number)}"))
    pod = await target.create(PODS, build_pod(name))
    create, record = _create_and_record(name, pod)
    claim = await target.create(create[1], create[2])
    await target.send(*record)
    return claim


def _build_slice(pool: str) -> Document:
    document: Document = json.loads(serverobjects.slice_of(0))
    document["metadata"]["name"] = pool
    document["spec"]["pool"]["name"] = pool
    device = document["spec"]["devices"][0]
    document["spec"]["devices"] = [device | {"name": f"gpu-{number}"} for number in range(DEVICES_PER_POOL)]
    return document


def _allocate_and_bind(name: str, claim: Document) -> list[Request]:
    """The scheduler's writes for a pod with one claim."""
    sort, _, number = name.rpartition("-")
    place = (int(number) - 1) % DEVICES_PER_POOL
    result = {
        "request": "gpu",
        "driver": serverobjects.DRIVER,
        "pool": f"{sort}-{int(number) - place}",
        "device": f"gpu-{place}",
    }
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    owner = claim["metadata"]["ownerReferences"][0]
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
            "allocationTimestamp": NOW,
        },
        "reservedFor": [{"resource": "pods", "name": owner["name"], "uid": owner["uid"]}],
    }
    path = f"{serverobjects.CLAIMS}/{claim['metadata']['name']}/status"
    return [("PUT", path, claim | {"status": status}, JSON), _bind(name)]


async def _prepare_pending_pods(target: Target, name: str) -> list[Document]:
    return [await _prepare_pending_pod(target, each) for each in _name_batch(name, BATCH)]


def _allocate_and_bind_all(name: str, claims: list[Document]) -> list[Request]:
    pairs = zip(_name_batch(name, BATCH), claims, strict=True)
    return [request for pod, claim in pairs for request in _allocate_and_bind(pod, claim)]


def _name_batch(name: str, count: int) -> list[str]:
    sort, _, number = name.rpartition("-")
    return [f"{sort}-{(int(number) - 1) * count + each}" for each in range(1, count + 1)]


async def _prepare_bound_claim(target: Target, name: str) -> Document:
    claim = await _prepare_pending_pod(target, name)
    for request in _allocate_and_bind(name, claim):
        await target.send(*request)
    return claim


def _delete_and_finish(name: str, claim: Document) -> list[Request]:
    """The claim controller's writes for the claim of a pod that is gone."""
    path, uid = f"{serverobjects.CLAIMS}/{claim['metadata']['name']}", claim["metadata"]["uid"]
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    return [
        ("DELETE", path, options, JSON),
        ("PATCH", path, {"metadata": {"uid": uid, "finalizers": None}}, MERGE),
    ]


TRANSACTIONS: Final[dict[str, MeasuredWrite]] = {
    "create + record claim": MeasuredWrite(
        lambda target, name: target.create(PODS, build_pod(name)), _create_and_record
    ),
    "allocate + bind": MeasuredWrite(_prepare_pending_pod, _allocate_and_bind),
    "delete + finish claim": MeasuredWrite(_prepare_bound_claim, _delete_and_finish),
    "16 events": MeasuredWrite(
        _prepare_nothing, lambda name, _: [_create_event(each) for each in _name_batch(name, 16)]
    ),
    "8 x allocate + bind": MeasuredWrite(_prepare_pending_pods, _allocate_and_bind_all),
}
"""Writes that belong together: sent one by one, and as one transaction."""


def build_transaction(requests: Sequence[Request]) -> Request:
    """The transaction of several requests."""
    given = [
        {"method": method, "path": path, "contentType": content_type}
        | ({} if document is None else {"body": document})
        for method, path, document, content_type in requests
    ]
    document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "spec": {"requests": given}}
    return "POST", TRANSACTIONS_PATH, document, JSON
