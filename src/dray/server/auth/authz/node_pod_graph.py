"""The graph of nodes, pods and the objects pods refer to, from which the rights of a node follow.

Theory of operation: the graph has every pod that is bound to a node, with the names it refers to, and for
each node the number of pods that refer to each name. So whether a node needs an object is one lookup.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from dray.api.kinds import get_kind
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

DEVICES, CLASSIC = "resource.k8s.io", "cdi.k8s.io"


class ReferencedObject(NamedTuple):
    """A name that a pod refers to, in the pod's own namespace."""

    group: str
    resource: str
    name: str


_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")

_REFERENCE_PATHS: tuple[tuple[str, str], ...] = (
    ("spec.serviceAccountName", "serviceaccounts"),
    ("spec.imagePullSecrets[].name", "secrets"),
    ("spec.volumes[].secret.secretName", "secrets"),
    ("spec.volumes[].projected.sources[].secret.name", "secrets"),
    ("spec.volumes[].csi.nodePublishSecretRef.name", "secrets"),
    ("spec.volumes[].configMap.name", "configmaps"),
    ("spec.volumes[].projected.sources[].configMap.name", "configmaps"),
    ("spec.volumes[].persistentVolumeClaim.claimName", "persistentvolumeclaims"),
    ("spec.resourceClaims[].resourceClaimName", "resourceclaims"),
    ("status.resourceClaimStatuses[].resourceClaimName", "resourceclaims"),
    ("status.extendedResourceClaimStatus.resourceClaimName", "resourceclaims"),
    *((f"spec.{where}[].env[].valueFrom.secretKeyRef.name", "secrets") for where in _CONTAINERS),
    *((f"spec.{where}[].env[].valueFrom.configMapKeyRef.name", "configmaps") for where in _CONTAINERS),
    *((f"spec.{where}[].envFrom[].secretRef.name", "secrets") for where in _CONTAINERS),
    *((f"spec.{where}[].envFrom[].configMapRef.name", "configmaps") for where in _CONTAINERS),
)
"""Paths of a pod that refer to other objects."""

_GROUPS: Mapping[str, tuple[str, ...]] = {"resourceclaims": (DEVICES, CLASSIC)}


class _PathStep(NamedTuple):
    """One field of a path: the fields below, or the resource that the value names."""

    field: str
    is_list: bool
    below: tuple[_PathStep, ...]
    resource: str


def _build_steps(paths: Iterable[tuple[list[str], str]]) -> tuple[_PathStep, ...]:
    """Build one tree of all paths, so that each pod is walked once."""
    by_field: dict[str, list[tuple[list[str], str]]] = {}
    for (first, *rest), resource in paths:
        by_field.setdefault(first, []).append((rest, resource))
    return tuple(
        _PathStep(
            field.removesuffix("[]"),
            field.endswith("[]"),
            _build_steps((rest, resource) for rest, resource in ways if rest),
            next((resource for rest, resource in ways if not rest), ""),
        )
        for field, ways in by_field.items()
    )


_PATH_TREE = _build_steps((path.split("."), resource) for path, resource in _REFERENCE_PATHS)

_CONTAINER_PATHS = tuple(f"spec.{where}[]." for where in _CONTAINERS)
_CONTAINER_MARKERS = (b'"valueFrom"', b'"envFrom"')
"""Field names without which no container of a pod refers to anything; most pods have none of them."""


def _build_reader() -> msgspec.json.Decoder[Any]:
    """Build a decoder that reads what may refer to objects outside of containers, and skips the rest."""
    fields: dict[str, set[str]] = {"spec": {"nodeName"}}
    for path, _ in _REFERENCE_PATHS:
        if not path.startswith(_CONTAINER_PATHS):
            part, field = path.split(".")[:2]
            fields.setdefault(part, set()).add(field.removesuffix("[]"))
    parts = [
        (part, msgspec.defstruct(part, [(name, Any, None) for name in sorted(names)]) | None, None)
        for part, names in fields.items()
    ]
    metadata = ("metadata", msgspec.defstruct("metadata", [("name", Any, None)]))
    return msgspec.json.Decoder(msgspec.defstruct("pod", [metadata, *parts]))


_FEW_FIELDS_READER = _build_reader()


def _read_referring_fields(stored: StoredObject) -> Mapping[str, Any]:
    """A pod with all fields that refer to objects, and its node."""
    value_from, env_from = _CONTAINER_MARKERS
    if value_from not in stored.value and env_from not in stored.value:
        with contextlib.suppress(msgspec.ValidationError):  # a malformed pod is read as it is
            pod: dict[str, Any] = msgspec.to_builtins(_FEW_FIELDS_READER.decode(stored.value))
            return pod
    return stored.document


def find_references(pod: Mapping[str, Any]) -> list[ReferencedObject]:
    """List everything a pod refers to."""
    found: dict[tuple[str, str], None] = {}
    _collect(pod, _PATH_TREE, found)
    mentioned = [
        ReferencedObject(group, resource, name)
        for resource, name in found
        for group in _GROUPS.get(resource, ("",))
    ]
    spec = pod.get("spec")
    for entry in (spec.get("resourceClaims") or ()) if isinstance(spec, Mapping) else ():
        if isinstance(entry, Mapping) and entry.get("template"):
            # A template inside the pod creates a classic claim of this name.
            name = f"{pod['metadata'].get('name')}-{entry.get('name')}"
            mentioned.append(ReferencedObject(CLASSIC, "resourceclaims", name))
    return mentioned


def _collect(node: Any, steps: tuple[_PathStep, ...], found: dict[tuple[str, str], None]) -> None:
    for field, many, below, resource in steps:
        value = node.get(field)
        if not value:
            continue
        for one in value if many and isinstance(value, list) else (value,):
            if resource and isinstance(one, str):
                found[resource, one] = None
            elif below and (type(one) is dict or isinstance(one, Mapping)):  # the first test is faster
                _collect(one, below, found)


class _StatusReferences(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a status that refer to objects, as JSON texts."""

    resource_claim_statuses: msgspec.Raw = msgspec.Raw()
    extended_resource_claim_status: msgspec.Raw = msgspec.Raw()


class _ReferringParts(msgspec.Struct, frozen=True):
    """The parts of a pod that refer to objects; those of the spec are not taken apart."""

    spec: msgspec.Raw = msgspec.Raw()
    status: _StatusReferences = _StatusReferences()


_PARTS_DECODER = msgspec.json.Decoder(_ReferringParts)


def have_same_references(old: StoredObject, new: StoredObject) -> bool:
    """Whether two states of a pod certainly refer to the same objects: most changes are of its status."""
    try:
        return _PARTS_DECODER.decode(old.value) == _PARTS_DECODER.decode(new.value)
    except msgspec.MsgspecError:
        return False


POD = get_kind("", "Pod")


class NodePodGraph:
    """The pods of every node and what they refer to."""

    def __init__(self, cache: WatchCache) -> None:
        self._pods: dict[tuple[str, str], tuple[str, tuple[ReferencedObject, ...]]] = {}
        self._references: dict[str, Counter[tuple[str, ReferencedObject]]] = {}
        cache.add_listener(POD, self._on_pod_change)

    def get_node(self, namespace: str, name: str) -> str | None:
        """Return the node a pod is bound to."""
        node, _ = self._pods.get((namespace, name), (None, ()))
        return node

    def has_reference(self, node: str, namespace: str, reference: ReferencedObject) -> bool:
        """Return whether a pod on the node refers to the name."""
        needs = self._references.get(node)
        return needs is not None and needs[namespace, reference] > 0

    def _on_pod_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        stored = new or old
        assert stored is not None
        place = (stored.namespace, stored.name)
        if old is not None and new is not None and place in self._pods and have_same_references(old, new):
            return
        self._remove_pod(place)
        # Most changes of pods come before they have a node; JSON without the field cannot have it.
        if new is None or b'"nodeName":"' not in new.value:
            return
        pod = _read_referring_fields(new)
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            return
        mentioned = tuple(dict.fromkeys(find_references(pod)))
        self._pods[place] = (node, mentioned)
        needs = self._references.setdefault(node, Counter())
        for one in mentioned:
            needs[place[0], one] += 1

    def _remove_pod(self, place: tuple[str, str]) -> None:
        node, mentioned = self._pods.pop(place, ("", ()))
        if not node:
            return
        needs = self._references[node]
        for one in mentioned:
            needs[place[0], one] -= 1
            if not needs[place[0], one]:
                del needs[place[0], one]
        if not needs:
            del self._references[node]
