"""Node restriction: a node writes its own objects, without references that would expose the secrets of
others.

Theory of operation: what a node can read follows from what the pods on it refer to. So a node that could
write such references could read anything. It may therefore create only mirror pods, bound to itself and
without any reference; and it may never set the claims of a pod, neither when the pod is created nor with its
status (CVE-2025-4563). Everything else it writes must name the node, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import starmap
from typing import Any, Final

from dray.api.kinds import get_kind
from dray.server.admission.change import (
    ADMITTED,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionEffects,
    ObjectChange,
    RuleScope,
)
from dray.server.auth.authz.node_authorizer import NODE_LEASE_NAMESPACE, PREPARATION, read_node_name
from dray.server.auth.authz.node_pod_graph import (
    CLASSIC,
    DEVICES,
    NodePodGraph,
    ReferencedObject,
    find_references,
)
from dray.server.http.errors import new_forbidden

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""The annotation of mirror pods, which show what a node runs by itself."""

_RESERVED_DOMAIN = "node-restriction.kubernetes.io"
_GUARDED_DOMAINS = ("kubernetes.io", "k8s.io")
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

_POD_CLAIM_FIELDS = (
    ("spec", "resourceClaims"),
    ("status", "resourceClaimStatuses"),
    ("status", "extendedResourceClaimStatus"),
)

Violations = Iterator[str]


def _get_path(document: Mapping[str, Any] | None, *steps: str) -> Any:
    """Return a part of a document; None where there is none."""
    part: Any = document
    for step in steps:
        part = part.get(step) if isinstance(part, Mapping) else None
    return part or None


# --- pods ---


def _check_pod(change: ObjectChange, node: str) -> Violations:
    if change.operation == CREATE:
        yield from _check_mirror_pod(change.document or {}, node)
        return
    if read_node_name(change.old_document or {}) != node:
        yield f'node "{node}" can only {change.operation} pods bound to itself'
    # A delete with a grace period is a change of the pod, made by the server.
    if change.operation == UPDATE and change.request.call.verb != "delete":
        yield from _check_pod_update(change, node)


def _check_mirror_pod(pod: Mapping[str, Any], node: str) -> Violations:
    if MIRROR_ANNOTATION not in (_get_path(pod, "metadata", "annotations") or {}):
        yield (
            f"pod does not have the annotation `{MIRROR_ANNOTATION}`, "
            f'node "{node}" can only create mirror pods'
        )
    if read_node_name(pod) != node:
        yield f'node "{node}" can only create pods with spec.nodeName set to itself'
    if any(_get_path(pod, *steps) for steps in _POD_CLAIM_FIELDS):
        yield f'node "{node}" can not create pods that name resource claims'
    found = [one.resource for one in find_references(pod)]
    found += ["serviceaccounts"] if _get_path(pod, "spec", "serviceAccount") else []
    if found:
        yield f'node "{node}" can not create pods that reference {found[0]}'
    for owner in _get_path(pod, "metadata", "ownerReferences") or ():
        if owner.get("kind") != "Node" or owner.get("name") != node:
            yield f'node "{node}" can only create pods that are owned by itself or by nobody'


def _check_pod_update(change: ObjectChange, node: str) -> Violations:
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
        if _get_path(old, *steps) != _get_path(new, *steps):
            yield f'node "{node}" cannot update {".".join(steps)} of a pod'


# --- the node itself ---


def _check_node(change: ObjectChange, node: str) -> Violations:
    if change.name != node:
        yield f'node "{node}" is not allowed to modify node "{change.name}"'
    old, new = change.old_document, change.document
    if change.operation == DELETE:
        # It could come back at once, without the taints that somebody put on it.
        yield f'node "{node}" is not allowed to delete itself'
        return
    for label in sorted(
        _find_changed_keys(_get_path(old, "metadata", "labels"), _get_path(new, "metadata", "labels"))
    ):
        if not _is_own_label(label):
            yield f'node "{node}" is not allowed to set or change the label `{label}`'
    if _get_path(old, "metadata", "ownerReferences") != _get_path(new, "metadata", "ownerReferences"):
        yield f'node "{node}" is not allowed to change who owns it'
    if change.operation == UPDATE and _get_path(old, "spec", "taints") != _get_path(new, "spec", "taints"):
        yield f'node "{node}" is not allowed to modify taints'


def _find_changed_keys(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> set[str]:
    before, after = old or {}, new or {}
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def _is_own_label(label: str) -> bool:
    """Return whether a node may set a label: labels of Kubernetes steer scheduling, except those on what a
    node is.
    """
    domain = label.partition("/")[0] if "/" in label else ""
    if domain == _RESERVED_DOMAIN or domain.endswith("." + _RESERVED_DOMAIN):
        return False
    if not _is_in_domain(domain, _GUARDED_DOMAINS):
        return True
    return label in _OWN_LABELS or _is_in_domain(domain, _OWN_LABEL_DOMAINS)


def _is_in_domain(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith("." + parent) for parent in parents)


# --- objects that name their node ---


def _check_node_name(change: ObjectChange, node: str) -> Violations:
    for document in (change.old_document, change.document):
        if document is not None and read_node_name(document) != node:
            what = f"{change.operation} a {change.kind.name} that names it in spec.nodeName"
            yield f'node "{node}" can only {what}'


def _check_lease(change: ObjectChange, node: str) -> Violations:
    if change.namespace != NODE_LEASE_NAMESPACE or change.name != node:
        yield (
            f'node "{node}" can only write the lease of its own name '
            f'in the namespace "{NODE_LEASE_NAMESPACE}"'
        )


def _check_same_name(change: ObjectChange, node: str) -> Violations:
    if change.name != node:
        yield f'node "{node}" can only write the {change.kind.name} of its own name'


def _refuse_write(change: ObjectChange, node: str) -> Violations:
    yield f'node "{node}" does not write objects of this kind'


_CHECKS: Mapping[tuple[str, str], Callable[[ObjectChange, str], Violations]] = {
    ("", "Pod"): _check_pod,
    ("", "Node"): _check_node,
    ("coordination.k8s.io", "Lease"): _check_lease,
    ("storage.k8s.io", "CSINode"): _check_same_name,
    (DEVICES, "ResourceSlice"): _check_node_name,
    ("dray.dev", "Preparation"): _check_node_name,
    (DEVICES, "ResourceClaim"): _refuse_write,
    (DEVICES, "ResourceClaimTemplate"): _refuse_write,
    (DEVICES, "DeviceClass"): _refuse_write,
    (DEVICES, "DeviceTaintRule"): _refuse_write,
    (CLASSIC, "ResourceClaim"): _refuse_write,
    (CLASSIC, "ResourceClass"): _refuse_write,
}
"""Kinds in which a node is restricted, whatever roles it has."""


class NodeRestrictionRule:
    """Refuses what a node may not write."""

    scopes: Final = (RuleScope(tuple(starmap(get_kind, _CHECKS))),)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        node = change.request.user.node_name
        if node is None:
            return ADMITTED
        check = _CHECKS[change.kind.group, change.kind.name]
        for complaint in check(change, node):
            raise new_forbidden(change.kind, change.name, complaint)
        return ADMITTED


class PreparationWriteRule:
    """Restricts the preparations of a node to claims of its pods.

    A preparation keeps the devices of a claim from everybody else, and its refusal discloses whether the
    claim exists; so a node may report only claims that it may see. After a restore it may report any claim it
    still has prepared: the pod may be gone with the claim, and the ledger decides without looking at either.
    """

    scopes: Final = (RuleScope((PREPARATION,), (CREATE,)),)

    def __init__(self, pod_graph: NodePodGraph) -> None:
        self._pod_graph = pod_graph

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        node = change.request.user.node_name
        if node is None or change.operation != CREATE:
            return ADMITTED
        if change.view.spec.devices:
            return ADMITTED
        claim = change.view.spec.claim
        if not self._pod_graph.has_reference(
            node, claim.namespace, ReferencedObject(DEVICES, "resourceclaims", claim.name)
        ):
            why = (
                f'node "{node}" can only prepare claims of pods bound to it, '
                f"and none of those refers to claim {claim.namespace}/{claim.name}"
            )
            raise new_forbidden(change.kind, change.name, why)
        return ADMITTED
