"""The node authorizer: a node may access itself, its pods, and what they refer to.

Theory of operation: a table has for every resource the verbs of a node and their condition: always, only for
itself, only for pods bound to it, only for what such a pod refers to, only for objects that name the node. A
list or watch cannot be checked object by object, so its field selector must restrict it to the node's own
objects. Resources that are not in the table are not decided here; roles may still allow them. What a node may
write *into* an object is checked later, when the object is known (`restriction.node_restriction`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dray.api.kinds import Kind, get_kind
from dray.server.auth.authz.node_pod_graph import CLASSIC, DEVICES, NodePodGraph, ReferencedObject
from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.auth.authz.rbac import AccessDecision
from dray.server.http.requests import RequestUser
from dray.server.watch.cache import WatchCache

DRAY_GROUP = "dray.dev"
NODE_LEASE_NAMESPACE = "kube-node-lease"
"""The namespace of the heartbeat leases of nodes."""

_READ_VERBS = frozenset({"get", "list", "watch"})
_CHANGE_VERBS = frozenset({"get", "update", "patch", "delete"})
_COLLECTION_VERBS = frozenset({"list", "watch", "deletecollection"})


@dataclass(frozen=True, slots=True)
class NodeAccessRequest:
    """A request of a node, with what is needed to decide it."""

    node: str
    attributes: AccessAttributes
    pod_graph: NodePodGraph
    cache: WatchCache


AccessCondition = Callable[[NodeAccessRequest], bool]


def _is_always_allowed(request: NodeAccessRequest) -> bool:
    return True


def _is_itself(request: NodeAccessRequest) -> bool:
    return request.attributes.name == request.node


def _is_own_lease(request: NodeAccessRequest) -> bool:
    attributes = request.attributes
    return attributes.namespace == NODE_LEASE_NAMESPACE and (
        attributes.name == request.node or attributes.verb == "create"
    )


def _is_own_pod(request: NodeAccessRequest) -> bool:
    attributes = request.attributes
    if attributes.verb in _COLLECTION_VERBS:
        return _is_own_selection(request)
    return request.pod_graph.get_node(attributes.namespace, attributes.name) == request.node


def _is_referenced(request: NodeAccessRequest) -> bool:
    attributes = request.attributes
    if not attributes.name or not attributes.namespace:
        return False
    reference = ReferencedObject(attributes.group, attributes.resource, attributes.name)
    return request.pod_graph.has_reference(request.node, attributes.namespace, reference)


def _is_own_object(request: NodeAccessRequest) -> bool:
    attributes = request.attributes
    if attributes.verb in _COLLECTION_VERBS:
        return _is_own_selection(request)
    kind = _NODE_NAME_KINDS[attributes.group, attributes.resource]
    stored = request.cache.get(kind, "", attributes.name)
    # An object that does not exist belongs to nobody: the node gets a 404.
    return stored is None or read_node_name(stored.document) == request.node


def _is_own_selection(request: NodeAccessRequest) -> bool:
    own = {f"spec.nodeName={request.node}", f"spec.nodeName=={request.node}"}
    return any(term.strip() in own for term in request.attributes.selector.split(","))


def read_node_name(document: Mapping[str, object]) -> str | None:
    """Return `spec.nodeName` of a document."""
    spec = document.get("spec")
    name = spec.get("nodeName") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) else None


SLICE, PREPARATION = get_kind(DEVICES, "ResourceSlice"), get_kind(DRAY_GROUP, "Preparation")
_NODE_NAME_KINDS: Mapping[tuple[str, str], Kind] = {
    (kind.group, kind.plural): kind for kind in (SLICE, PREPARATION)
}

_CREATE_VERBS = frozenset({"create"})
_STATUS_VERBS = frozenset({"get", "update", "patch"})

_NODE_RULES: Mapping[tuple[str, str], tuple[tuple[frozenset[str], AccessCondition], ...]] = {
    ("", "pods"): ((_READ_VERBS | {"delete"}, _is_own_pod), (_CREATE_VERBS, _is_always_allowed)),
    ("", "pods/status"): ((_STATUS_VERBS, _is_own_pod),),
    ("", "pods/eviction"): ((_CREATE_VERBS, _is_own_pod),),
    ("", "nodes"): (
        ((_CHANGE_VERBS | _READ_VERBS) - {"delete"}, _is_itself),
        (_CREATE_VERBS, _is_always_allowed),
    ),
    ("", "nodes/status"): ((_STATUS_VERBS, _is_itself),),
    ("", "secrets"): ((_READ_VERBS, _is_referenced),),
    ("", "configmaps"): ((_READ_VERBS, _is_referenced),),
    ("", "persistentvolumeclaims"): ((frozenset({"get"}), _is_referenced),),
    ("", "serviceaccounts"): ((frozenset({"get"}), _is_referenced),),
    ("", "serviceaccounts/token"): ((_CREATE_VERBS, _is_referenced),),
    ("", "services"): ((_READ_VERBS, _is_always_allowed),),
    ("", "events"): ((frozenset({"create", "update", "patch"}), _is_always_allowed),),
    ("events.k8s.io", "events"): ((frozenset({"create", "update", "patch"}), _is_always_allowed),),
    ("coordination.k8s.io", "leases"): ((_CHANGE_VERBS | _CREATE_VERBS, _is_own_lease),),
    ("node.k8s.io", "runtimeclasses"): ((_READ_VERBS, _is_always_allowed),),
    ("storage.k8s.io", "csidrivers"): ((_READ_VERBS, _is_always_allowed),),
    ("storage.k8s.io", "csinodes"): ((_CHANGE_VERBS, _is_itself), (_CREATE_VERBS, _is_always_allowed)),
    ("certificates.k8s.io", "certificatesigningrequests"): (
        (_READ_VERBS | _CREATE_VERBS, _is_always_allowed),
    ),
    ("certificates.k8s.io", "podcertificaterequests"): ((frozenset({"list", "watch"}), _is_own_selection),),
    ("authentication.k8s.io", "tokenreviews"): ((_CREATE_VERBS, _is_always_allowed),),
    ("authorization.k8s.io", "subjectaccessreviews"): ((_CREATE_VERBS, _is_always_allowed),),
    ("authorization.k8s.io", "localsubjectaccessreviews"): ((_CREATE_VERBS, _is_always_allowed),),
    (DEVICES, "resourceclaims"): ((frozenset({"get"}), _is_referenced),),
    (CLASSIC, "resourceclaims"): ((frozenset({"get"}), _is_referenced),),
    (DEVICES, "resourceslices"): (
        (_CHANGE_VERBS | _COLLECTION_VERBS, _is_own_object),
        (_CREATE_VERBS, _is_always_allowed),
    ),
    # A right to nothing: each request inside is authorized by itself.
    (DRAY_GROUP, "transactions"): ((_CREATE_VERBS, _is_always_allowed),),
    (DRAY_GROUP, "preparations"): (
        (_CHANGE_VERBS | _COLLECTION_VERBS, _is_own_object),
        (_CREATE_VERBS, _is_always_allowed),
    ),
}
"""Verbs of a node on each resource, and their condition. `create` is checked with the object."""


class NodeAuthorizer:
    """Decides what a node may do because it is a node."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self.pod_graph = NodePodGraph(cache)

    def authorize(self, user: RequestUser, attributes: AccessAttributes) -> AccessDecision:
        """Decide whether the node may do it; a refusal only means that no right of a node allows it."""
        node = user.node_name
        if node is None:
            return AccessDecision(False, "not a node")
        question = NodeAccessRequest(node, attributes, self.pod_graph, self._cache)
        for verbs, condition in _NODE_RULES.get((attributes.group, attributes.qualified_resource), ()):
            if attributes.verb in verbs and condition(question):
                return AccessDecision(True, f'allowed to the node "{node}"')
        return AccessDecision(False, _explain_denial(node, attributes))


def _explain_denial(node: str, attributes: AccessAttributes) -> str:
    selectable = (attributes.group, attributes.resource) in {*_NODE_NAME_KINDS, ("", "pods")}
    if selectable and attributes.verb in _COLLECTION_VERBS and not attributes.subresource:
        return f"a node asks for its own with fieldSelector=spec.nodeName={node}"
    return "a node sees and writes what is its own, and sees what its pods refer to"
