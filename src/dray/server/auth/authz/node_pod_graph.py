"""Which pods are on which node, and what they refer to: the reason why a node may see something.

Theory of operation: every pod that is bound to a node is remembered with the names it refers to; for each
node, how many pods refer to each name. So the question whether a node needs something is one look into a
table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dray.api.kinds import known_kind
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache

DEVICES, CLASSIC = "resource.k8s.io", "cdi.k8s.io"


class Reference(NamedTuple):
    """A name that a pod mentions, in the pod's own namespace."""

    group: str
    resource: str
    name: str


_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")

_MENTIONS: tuple[tuple[str, str], ...] = (
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
"""Where a pod mentions other objects."""

_GROUPS: Mapping[str, tuple[str, ...]] = {"resourceclaims": (DEVICES, CLASSIC)}


class _Step(NamedTuple):
    """A field of the way to a name: where it leads, or what the name is of."""

    field: str
    many: bool
    below: tuple[_Step, ...]
    resource: str


def _steps(mentions: Iterable[tuple[list[str], str]]) -> tuple[_Step, ...]:
    """All ways as one tree, so that a pod is walked through once."""
    by_field: dict[str, list[tuple[list[str], str]]] = {}
    for (first, *rest), resource in mentions:
        by_field.setdefault(first, []).append((rest, resource))
    return tuple(
        _Step(
            field.removesuffix("[]"),
            field.endswith("[]"),
            _steps((rest, resource) for rest, resource in ways if rest),
            next((resource for rest, resource in ways if not rest), ""),
        )
        for field, ways in by_field.items()
    )


_TREE = _steps((path.split("."), resource) for path, resource in _MENTIONS)


def references(pod: Mapping[str, Any]) -> list[Reference]:
    """Everything a pod mentions."""
    found: dict[tuple[str, str], None] = {}
    _collect(pod, _TREE, found)
    mentioned = [
        Reference(group, resource, name) for resource, name in found for group in _GROUPS.get(resource, ("",))
    ]
    spec = pod.get("spec")
    for entry in (spec.get("resourceClaims") or ()) if isinstance(spec, Mapping) else ():
        if isinstance(entry, Mapping) and entry.get("template"):
            # A template written inside the pod makes a classic claim of this name.
            name = f"{pod['metadata'].get('name')}-{entry.get('name')}"
            mentioned.append(Reference(CLASSIC, "resourceclaims", name))
    return mentioned


def _collect(node: Any, steps: tuple[_Step, ...], found: dict[tuple[str, str], None]) -> None:
    for field, many, below, resource in steps:
        value = node.get(field)
        if not value:
            continue
        for one in value if many and isinstance(value, list) else (value,):
            if resource and isinstance(one, str):
                found[resource, one] = None
            elif below and (type(one) is dict or isinstance(one, Mapping)):  # the first is quick
                _collect(one, below, found)


POD = known_kind("", "Pod")


class Placed:
    """The pods of every node and what they refer to."""

    def __init__(self, cache: Cache) -> None:
        self._pods: dict[tuple[str, str], tuple[str, tuple[Reference, ...]]] = {}
        self._needs: dict[str, Counter[tuple[str, Reference]]] = {}
        cache.listen(POD, self._changed)

    def node_of(self, namespace: str, name: str) -> str | None:
        """The node a pod is bound to."""
        node, _ = self._pods.get((namespace, name), (None, ()))
        return node

    def needs(self, node: str, namespace: str, reference: Reference) -> bool:
        """Whether a pod on the node refers to the name."""
        needs = self._needs.get(node)
        return needs is not None and needs[namespace, reference] > 0

    def _changed(self, old: Held | None, new: Held | None) -> None:
        held = new or old
        assert held is not None
        place = (held.namespace, held.name)
        self._forget(place)
        # Most changes of pods come before they have a node; what does not name the field cannot have it.
        if new is None or b'"nodeName":"' not in new.value:
            return
        document = new.document
        node = (document.get("spec") or {}).get("nodeName")
        if not node:
            return
        mentioned = tuple(dict.fromkeys(references(document)))
        self._pods[place] = (node, mentioned)
        self._needs.setdefault(node, Counter()).update((place[0], one) for one in mentioned)

    def _forget(self, place: tuple[str, str]) -> None:
        node, mentioned = self._pods.pop(place, ("", ()))
        if not node:
            return
        needs = self._needs[node]
        for one in mentioned:
            needs[place[0], one] -= 1
            if not needs[place[0], one]:
                del needs[place[0], one]
        if not needs:
            del self._needs[node]
