"""What a node may ask for: itself, its pods, and what they need.

Theory of operation: a table says for every resource which verbs a node has and when: always, only for itself,
only for pods bound to it, only for what such a pod refers to, only for objects that say they are the node's.
A list or watch cannot be judged object by object, so it must say in a field selector that it wants the node's
own. Whatever is not in the table is not answered here; roles may still allow it. What a node may write *into*
an object is judged later, when the object is known (`noderules`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dray.api.kinds import Kind, known_kind
from dray.server.auth.authz.node_pod_graph import CLASSIC, DEVICES, Placed, Reference
from dray.server.auth.authz.policy_rules import Asked
from dray.server.auth.authz.rbac import Decision
from dray.server.http.requests import User
from dray.server.watch.cache import Cache

OURS = "dray.dev"
HEARTBEATS = "kube-node-lease"
"""The namespace of the leases by which nodes show that they live."""

_READ = frozenset({"get", "list", "watch"})
_CHANGE = frozenset({"get", "update", "patch", "delete"})
_COLLECTIVE = frozenset({"list", "watch", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Question:
    """What a node asks, with what is needed to judge it."""

    node: str
    asked: Asked
    placed: Placed
    cache: Cache


Condition = Callable[[Question], bool]


def _always(question: Question) -> bool:
    return True


def _itself(question: Question) -> bool:
    return question.asked.name == question.node


def _own_lease(question: Question) -> bool:
    asked = question.asked
    return asked.namespace == HEARTBEATS and (asked.name == question.node or asked.verb == "create")


def _own_pod(question: Question) -> bool:
    asked = question.asked
    if asked.verb in _COLLECTIVE:
        return _selects_own(question)
    return question.placed.node_of(asked.namespace, asked.name) == question.node


def _needed(question: Question) -> bool:
    asked = question.asked
    if not asked.name or not asked.namespace:
        return False
    reference = Reference(asked.group, asked.resource, asked.name)
    return question.placed.needs(question.node, asked.namespace, reference)


def _says_own(question: Question) -> bool:
    asked = question.asked
    if asked.verb in _COLLECTIVE:
        return _selects_own(question)
    kind = _NODE_NAMED[asked.group, asked.resource]
    held = question.cache.get(kind, "", asked.name)
    # What is not there belongs to nobody: the node learns so from a 404.
    return held is None or node_name(held.document) == question.node


def _selects_own(question: Question) -> bool:
    own = {f"spec.nodeName={question.node}", f"spec.nodeName=={question.node}"}
    return any(term.strip() in own for term in question.asked.selector.split(","))


def node_name(document: Mapping[str, object]) -> str | None:
    """`spec.nodeName` of a document."""
    spec = document.get("spec")
    name = spec.get("nodeName") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) else None


SLICE, PREPARATION = known_kind(DEVICES, "ResourceSlice"), known_kind(OURS, "Preparation")
_NODE_NAMED: Mapping[tuple[str, str], Kind] = {
    (kind.group, kind.plural): kind for kind in (SLICE, PREPARATION)
}

_CREATE = frozenset({"create"})
_STATUS = frozenset({"get", "update", "patch"})

_TABLE: Mapping[tuple[str, str], tuple[tuple[frozenset[str], Condition], ...]] = {
    ("", "pods"): ((_READ | {"delete"}, _own_pod), (_CREATE, _always)),
    ("", "pods/status"): ((_STATUS, _own_pod),),
    ("", "pods/eviction"): ((_CREATE, _own_pod),),
    ("", "nodes"): (((_CHANGE | _READ) - {"delete"}, _itself), (_CREATE, _always)),
    ("", "nodes/status"): ((_STATUS, _itself),),
    ("", "secrets"): ((_READ, _needed),),
    ("", "configmaps"): ((_READ, _needed),),
    ("", "persistentvolumeclaims"): ((frozenset({"get"}), _needed),),
    ("", "serviceaccounts"): ((frozenset({"get"}), _needed),),
    ("", "serviceaccounts/token"): ((_CREATE, _needed),),
    ("", "services"): ((_READ, _always),),
    ("", "events"): ((frozenset({"create", "update", "patch"}), _always),),
    ("events.k8s.io", "events"): ((frozenset({"create", "update", "patch"}), _always),),
    ("coordination.k8s.io", "leases"): ((_CHANGE | _CREATE, _own_lease),),
    ("node.k8s.io", "runtimeclasses"): ((_READ, _always),),
    ("storage.k8s.io", "csidrivers"): ((_READ, _always),),
    ("storage.k8s.io", "csinodes"): ((_CHANGE, _itself), (_CREATE, _always)),
    ("certificates.k8s.io", "certificatesigningrequests"): ((_READ | _CREATE, _always),),
    ("authentication.k8s.io", "tokenreviews"): ((_CREATE, _always),),
    ("authorization.k8s.io", "subjectaccessreviews"): ((_CREATE, _always),),
    ("authorization.k8s.io", "localsubjectaccessreviews"): ((_CREATE, _always),),
    (DEVICES, "resourceclaims"): ((frozenset({"get"}), _needed),),
    (CLASSIC, "resourceclaims"): ((frozenset({"get"}), _needed),),
    (DEVICES, "resourceslices"): ((_CHANGE | _COLLECTIVE, _says_own), (_CREATE, _always)),
    (OURS, "preparations"): ((_CHANGE | _COLLECTIVE, _says_own), (_CREATE, _always)),
}
"""Verbs of a node on each resource, and when it has them. `create` is judged with the object."""


class NodeAuthorizer:
    """Answers what a node may do as a node."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.placed = Placed(cache)

    def decide(self, user: User, asked: Asked) -> Decision:
        """Whether the node may; a no is only that nothing of a node's rights says yes."""
        node = user.node
        if node is None:
            return Decision(False, "not a node")
        question = Question(node, asked, self.placed, self._cache)
        for verbs, condition in _TABLE.get((asked.group, asked.place), ()):
            if asked.verb in verbs and condition(question):
                return Decision(True, f'allowed to the node "{node}"')
        return Decision(False, _advice(node, asked))


def _advice(node: str, asked: Asked) -> str:
    selectable = (asked.group, asked.resource) in {*_NODE_NAMED, ("", "pods")}
    if selectable and asked.verb in _COLLECTIVE and not asked.subresource:
        return f"a node asks for its own with fieldSelector=spec.nodeName={node}"
    return "a node sees and writes what is its own, and sees what its pods refer to"
