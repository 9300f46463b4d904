"""Which pods are on which node, and what they refer to: the reason why a node may see something.

Theory of operation: every pod that is bound to a node is remembered with the names it refers to; for each
node, how many pods refer to each name. So the question whether a node needs something is one look into a
table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dray.api.kinds import Kind, kind_named
from dray.server.cache import Cache
from dray.server.held import Held

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
    *((f"spec.{where}[].env[].valueFrom.secretKeyRef.name", "secrets") for where in _CONTAINERS),
    *((f"spec.{where}[].env[].valueFrom.configMapKeyRef.name", "configmaps") for where in _CONTAINERS),
    *((f"spec.{where}[].envFrom[].secretRef.name", "secrets") for where in _CONTAINERS),
    *((f"spec.{where}[].envFrom[].configMapRef.name", "configmaps") for where in _CONTAINERS),
)
"""Where a pod mentions other objects."""

_GROUPS: Mapping[str, tuple[str, ...]] = {"resourceclaims": (DEVICES, CLASSIC)}
_STEPS = tuple((path.split("."), resource) for path, resource in _MENTIONS)


def references(pod: Mapping[str, Any]) -> Iterator[Reference]:
    """Everything a pod mentions."""
    for steps, resource in _STEPS:
        for name in _values(pod, steps):
            if isinstance(name, str) and name:
                for group in _GROUPS.get(resource, ("",)):
                    yield Reference(group, resource, name)
    for entry in _values(pod, ["spec", "resourceClaims[]"]):
        if isinstance(entry, dict) and entry.get("template"):
            # A template written inside the pod makes a classic claim of this name.
            yield Reference(CLASSIC, "resourceclaims", f"{pod['metadata'].get('name')}-{entry.get('name')}")


def _values(node: Any, steps: list[str]) -> Iterator[Any]:
    if not steps:
        yield node
        return
    if not isinstance(node, Mapping):
        return
    step, rest = steps[0], steps[1:]
    if step.endswith("[]"):
        items = node.get(step[:-2])
        for item in items if isinstance(items, list | tuple) else ():
            yield from _values(item, rest)
    else:
        yield from _values(node.get(step), rest)


def _kind(name: str) -> Kind:
    kind = kind_named("", name)
    assert kind is not None
    return kind


POD = _kind("Pod")


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
        if new is None:
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
