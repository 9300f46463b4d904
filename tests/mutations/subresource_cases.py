"""Cases of subresources: binding, eviction, resize, ephemeral containers, token, finalize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.mutations.case import Base, Case, Document
from tests.mutations.field_paths import REMOVED, format_path, set_value
from tests.mutations.patch_cases import JSON_PATCH, STRATEGIC
from tests.mutations.request_cases import DRY
from tests.mutations.values import choose, list_values, walk


def list_subresource_cases(bases: Mapping[str, Base]) -> Iterator[Case]:
    """Yield all cases of subresources."""
    pod, bound = bases["pod"], bases["pod-bound"]
    yield from _list_posts(pod, "binding", _build_binding("pod"))
    yield Case(
        "pod-bound/binding/as it is", bound, "POST", f"{bound.path}/binding", _build_binding("pod-bound")
    )
    yield from _list_posts(pod, "eviction", _build_eviction("pod"))
    yield from _list_posts(bases["service-account"], "token", _TOKEN)
    yield from _list_bindings(pod)
    yield from _list_ephemeral_containers(bound)
    yield from _list_resizes(bound)
    yield from _list_finalizes(bases["namespace"])


def _build_binding(name: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": "mutations"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    }


def _build_eviction(name: str) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "mutations"},
        "deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": "@uid"}, "dryRun": ["All"]},
    }


_TOKEN: Document = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    "spec": {
        "audiences": ["https://kubernetes.default.svc"],
        "expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "secret"},
    },
}


def _list_posts(base: Base, subresource: str, good: Document) -> Iterator[Case]:
    target = f"{base.path}/{subresource}"
    label = f"{base.name}/{subresource}"
    yield Case(f"{label}/as it is", base, "POST", target, good)
    for path, value in walk(good):
        place = format_path(path)
        for name, bad in choose(list_values(value), 4, f"{label}/{place}"):
            yield Case(f"{label}/{place}: {name}", base, "POST", target, set_value(good, path, bad))
        if isinstance(value, dict):
            body = set_value(good, (*path, "unknownField"), 1)
            yield Case(f"{label}/{place}.unknownField", base, "POST", target, body)
    for name, body in {"no body": None, "truncated": '{"kind": ', "empty object": {}}.items():
        yield Case(f"{label}/{name}", base, "POST", target, body)
    for method in ("GET", "PUT", "DELETE"):
        body = good if method == "PUT" else None
        yield Case(f"{label}/by {method}", base, method, target, body)
    missing = f"{base.collection}/missing/{subresource}"
    renamed = set_value(good, ("metadata", "name"), "missing")
    yield Case(f"{label}/of what is missing", base, "POST", missing, renamed)


def _list_bindings(pod: Base) -> Iterator[Case]:
    good = _build_binding("pod")
    collection = "/api/v1/namespaces/mutations/bindings"
    yield Case("pod/bindings/as it is", pod, "POST", collection, good)
    changes: dict[str, Document] = {
        "target of another kind": {"target": {"kind": "Pod", "name": "node"}},
        "target without name": {"target": {"kind": "Node"}},
        "no target": {"target": REMOVED},
        "pod that is missing": {"metadata": {"name": "missing"}},
        "no name": {"metadata": {}},
        "namespace of another": {"metadata": {"name": "pod", "namespace": "admin"}},
    }
    for name, change in changes.items():
        body = {key: value for key, value in {**good, **change}.items() if value != REMOVED}
        yield Case(f"pod/bindings/{name}", pod, "POST", collection, body)


def _list_ephemeral_containers(pod: Base) -> Iterator[Case]:
    target = f"{pod.path}/ephemeralcontainers"
    debug = {"name": "debug", "image": "registry.example.com/debug:1", "targetContainerName": "app"}
    for name, changed in {
        "one": debug,
        "no name": {**debug, "name": ""},
        "bad name": {**debug, "name": "Not_Valid"},
        "name of a container": {**debug, "name": "app"},
        "no image": {**debug, "image": ""},
        "unknown target": {**debug, "targetContainerName": "missing"},
        "ports": {**debug, "ports": [{"containerPort": 80}]},
        "resources": {**debug, "resources": {"limits": {"cpu": "1"}}},
        "probe": {**debug, "livenessProbe": {"tcpSocket": {"port": 80}}},
        "lifecycle": {**debug, "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}},
        "mount of a missing volume": {**debug, "volumeMounts": [{"name": "none", "mountPath": "/x"}]},
        "bad pull policy": {**debug, "imagePullPolicy": "Sometimes"},
        "name as number": {**debug, "name": 7},
        "unknown field": {**debug, "unknownField": 1},
    }.items():
        patch = {"spec": {"ephemeralContainers": [changed]}}
        yield Case(
            f"pod-bound/ephemeralcontainers/patch: {name}",
            pod,
            "PATCH",
            target,
            patch,
            content_type=STRATEGIC,
            query=DRY,
        )
        body = set_value(pod.build_update(), ("spec", "ephemeralContainers"), [changed])
        yield Case(f"pod-bound/ephemeralcontainers/update: {name}", pod, "PUT", target, body)
    more = set_value(pod.build_update(), ("spec", "ephemeralContainers"), [debug])
    yield Case("pod-bound/update/with ephemeral containers", pod, "PUT", pod.path, more)
    yield Case("pod-bound/ephemeralcontainers/read", pod, "GET", target, query={})
    yield Case("pod-bound/ephemeralcontainers/created", pod, "POST", target, pod.build_update())


def _list_resizes(pod: Base) -> Iterator[Case]:
    target = f"{pod.path}/resize"
    resources: dict[str, Any] = {
        "more": {"requests": {"cpu": "300m"}},
        "less": {"requests": {"cpu": "100m"}},
        "bad amount": {"requests": {"cpu": "many"}},
        "negative amount": {"requests": {"cpu": "-1"}},
        "request above limit": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        "limits added": {"requests": {"cpu": "200m"}, "limits": {"cpu": "1"}},
        "nothing": {},
        "another resource": {"requests": {"cpu": "200m", "example.com/gpu": "1"}},
        "storage": {"requests": {"cpu": "200m", "ephemeral-storage": "1Gi"}},
        "claims": {"requests": {"cpu": "200m"}, "claims": [{"name": "gpu"}]},
    }
    for name, changed in resources.items():
        patch = {"spec": {"containers": [{"name": "app", "resources": changed}]}}
        yield Case(
            f"pod-bound/resize/patch: {name}", pod, "PATCH", target, patch, content_type=STRATEGIC, query=DRY
        )
        body = set_value(pod.build_update(), ("spec", "containers", 0, "resources"), changed)
        yield Case(f"pod-bound/resize/update: {name}", pod, "PUT", target, body)
        yield Case(f"pod-bound/update/resources: {name}", pod, "PUT", pod.path, body)
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example.com/other:1"}]
    yield Case(
        "pod-bound/resize/patch: image", pod, "PATCH", target, image, content_type=JSON_PATCH, query=DRY
    )
    policy = set_value(
        pod.build_update(),
        ("spec", "containers", 0, "resizePolicy"),
        [{"resourceName": "cpu", "restartPolicy": "Never"}],
    )
    yield Case("pod-bound/resize/update: bad policy", pod, "PUT", target, policy)
    yield Case("pod-bound/resize/read", pod, "GET", target, query={})


def _list_finalizes(namespace: Base) -> Iterator[Case]:
    target = f"{namespace.path}/finalize"
    for name, finalizers in {
        "same": ["kubernetes"],
        "none": [],
        "with domain": ["kubernetes", "example.com/mine"],
        "without domain": ["mine"],
        "bad": ["example.com/not valid"],
        "text": "kubernetes",
        "number": [7],
        "null": None,
    }.items():
        body = set_value(namespace.build_update(), ("spec", "finalizers"), finalizers)
        yield Case(f"namespace/finalize/{name}", namespace, "PUT", target, body)
    renamed = set_value(namespace.build_update(), ("metadata", "name"), "another")
    yield Case("namespace/finalize/name of another", namespace, "PUT", target, renamed)
    yield Case("namespace/finalize/created", namespace, "POST", target, namespace.build_update())
