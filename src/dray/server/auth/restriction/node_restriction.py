"""What a node may write: its own objects, and nothing in them that would show it the secrets of others.

Theory of operation: what a node can read follows from what the pods on it refer to. So a node that could
write such references could read anything. It may therefore create only pods that mirror what it runs by
itself, bound to itself and without any reference; and it may never set which claims belong to a pod, neither
when the pod is created nor with its status (CVE-2025-4563). Everything else it writes must say that it is the
node's own, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dray.server.admission.change import CREATE, DELETE, NOTHING, UPDATE, Change, Extra
from dray.server.auth.authz.node_authorizer import HEARTBEATS, PREPARATION, node_name
from dray.server.auth.authz.node_pod_graph import CLASSIC, DEVICES, Placed, Reference, references
from dray.server.http.errors import forbidden

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that shows what a node runs by itself."""

_RESERVED = "node-restriction.kubernetes.io"
_GUARDED = ("kubernetes.io", "k8s.io")
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_OWN_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")

_CLAIMS_OF_POD = (
    ("spec", "resourceClaims"),
    ("status", "resourceClaimStatuses"),
    ("status", "extendedResourceClaimStatus"),
)

Complaints = Iterator[str]


def _part(document: Mapping[str, Any] | None, *steps: str) -> Any:
    """A part of a document; None where there is none."""
    part: Any = document
    for step in steps:
        part = part.get(step) if isinstance(part, Mapping) else None
    return part or None


# --- pods ---


def _pod(change: Change, node: str) -> Complaints:
    if change.operation == CREATE:
        yield from _mirror(change.document or {}, node)
        return
    if node_name(change.old_document or {}) != node:
        yield f'node "{node}" can only {change.operation} pods bound to itself'
    # A delete that leaves a pod its time of grace is a change of the pod, made by the server.
    if change.operation == UPDATE and change.request.call.verb != "delete":
        yield from _pod_update(change, node)


def _mirror(pod: Mapping[str, Any], node: str) -> Complaints:
    if MIRROR not in (_part(pod, "metadata", "annotations") or {}):
        yield f'pod does not have the annotation `{MIRROR}`, node "{node}" can only create mirror pods'
    if node_name(pod) != node:
        yield f'node "{node}" can only create pods with spec.nodeName set to itself'
    if any(_part(pod, *steps) for steps in _CLAIMS_OF_POD):
        yield f'node "{node}" can not create pods that name resource claims'
    found = [one.resource for one in references(pod)]
    found += ["serviceaccounts"] if _part(pod, "spec", "serviceAccount") else []
    if found:
        yield f'node "{node}" can not create pods that reference {found[0]}'
    for owner in _part(pod, "metadata", "ownerReferences") or ():
        if owner.get("kind") != "Node" or owner.get("name") != node:
            yield f'node "{node}" can only create pods that are owned by itself or by nobody'


def _pod_update(change: Change, node: str) -> Complaints:
    old, new = change.old_document, change.document
    if change.subresource != "status":
        yield f'node "{node}" can only create and delete mirror pods and update the status of pods'
    for steps in (
        ("status", "resourceClaimStatuses"),
        ("status", "extendedResourceClaimStatus"),
        ("spec",),
        ("metadata", "labels"),
        ("metadata", "ownerReferences"),
    ):
        if _part(old, *steps) != _part(new, *steps):
            yield f'node "{node}" cannot update {".".join(steps)} of a pod'


# --- the node itself ---


def _node(change: Change, node: str) -> Complaints:
    if change.name != node:
        yield f'node "{node}" is not allowed to modify node "{change.name}"'
    old, new = change.old_document, change.document
    if change.operation == DELETE:
        # It could come back at once, without the taints that somebody put on it.
        yield f'node "{node}" is not allowed to delete itself'
        return
    for label in sorted(_changed_keys(_part(old, "metadata", "labels"), _part(new, "metadata", "labels"))):
        if not _is_own_label(label):
            yield f'node "{node}" is not allowed to set or change the label `{label}`'
    if _part(old, "metadata", "ownerReferences") != _part(new, "metadata", "ownerReferences"):
        yield f'node "{node}" is not allowed to change who owns it'
    if change.operation == UPDATE and _part(old, "spec", "taints") != _part(new, "spec", "taints"):
        yield f'node "{node}" is not allowed to modify taints'


def _changed_keys(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> set[str]:
    before, after = old or {}, new or {}
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def _is_own_label(label: str) -> bool:
    """Labels of Kubernetes steer where pods go; a node sets only those that say what it is."""
    domain = label.partition("/")[0] if "/" in label else ""
    if domain == _RESERVED or domain.endswith("." + _RESERVED):
        return False
    if not _is_in(domain, _GUARDED):
        return True
    return label in _OWN_LABELS or _is_in(domain, _OWN_LABEL_DOMAINS)


def _is_in(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith("." + parent) for parent in parents)


# --- what names its node ---


def _node_named(change: Change, node: str) -> Complaints:
    for document in (change.old_document, change.document):
        if document is not None and node_name(document) != node:
            what = f"{change.operation} a {change.kind.name} that names it in spec.nodeName"
            yield f'node "{node}" can only {what}'


def _lease(change: Change, node: str) -> Complaints:
    if change.namespace != HEARTBEATS or change.name != node:
        yield f'node "{node}" can only write the lease of its own name in the namespace "{HEARTBEATS}"'


def _named_like_it(change: Change, node: str) -> Complaints:
    if change.name != node:
        yield f'node "{node}" can only write the {change.kind.name} of its own name'


def _never(change: Change, node: str) -> Complaints:
    yield f'node "{node}" does not write objects of this kind'


_TABLE: Mapping[tuple[str, str], Callable[[Change, str], Complaints]] = {
    ("", "Pod"): _pod,
    ("", "Node"): _node,
    ("coordination.k8s.io", "Lease"): _lease,
    ("storage.k8s.io", "CSINode"): _named_like_it,
    (DEVICES, "ResourceSlice"): _node_named,
    ("dray.dev", "Preparation"): _node_named,
    (DEVICES, "ResourceClaim"): _never,
    (DEVICES, "ResourceClaimTemplate"): _never,
    (DEVICES, "DeviceClass"): _never,
    (DEVICES, "DeviceTaintRule"): _never,
    (CLASSIC, "ResourceClaim"): _never,
    (CLASSIC, "ResourceClass"): _never,
}
"""Kinds where a node is confined, whatever roles it was given besides."""


class NodeRule:
    """Refuses what a node may not write."""

    def judge(self, change: Change) -> Extra:
        node = change.request.user.node
        if node is None:
            return NOTHING
        complaints = _TABLE.get((change.kind.group, change.kind.name))
        if complaints is not None:
            for complaint in complaints(change, node):
                raise forbidden(change.kind, change.name, complaint)
        return NOTHING


class PreparationRule:
    """A node prepares what its pods ask for.

    Who prepares a claim keeps its devices from everybody else, and is told when there is no such claim; so a
    node says so only of claims that it may see. What it has in its hands after a restore it may say of any:
    the pod may be gone with the claim, and the ledger judges and answers without looking at either.
    """

    def __init__(self, placed: Placed) -> None:
        self._placed = placed

    def judge(self, change: Change) -> Extra:
        node = change.request.user.node
        if node is None or change.kind is not PREPARATION or change.operation != CREATE:
            return NOTHING
        if change.view.spec.devices:
            return NOTHING
        claim = change.view.spec.claim
        if not self._placed.needs(node, claim.namespace, Reference(DEVICES, "resourceclaims", claim.name)):
            why = (
                f'node "{node}" can only prepare claims of pods bound to it, '
                f"and none of those refers to claim {claim.namespace}/{claim.name}"
            )
            raise forbidden(change.kind, change.name, why)
        return NOTHING
