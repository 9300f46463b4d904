"""A node accesses its own objects and those its pods refer to, and cannot extend its access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import pytest

from dray.server.auth.authz.node_pod_graph import NodePodGraph, ReferencedObject, find_references
from dray.server.auth.authz.policy_rules import AccessAttributes
from tests.unit.server.auth.cluster_state import (
    DEVICES,
    AccessChecks,
    ClusterState,
    allocated,
    claim,
    node,
    person,
    pod,
    slice_of,
    thing,
)

N1 = node("n1")
MIRROR = {"kubernetes.io/config.mirror": "hash"}

MINE = pod(
    "mine",
    "a",
    "n1",
    uid="u-mine",
    spec={
        "serviceAccountName": "robot",
        "imagePullSecrets": [{"name": "pull"}],
        "resourceClaims": [
            {"name": "x", "resourceClaimName": "shared"},
            {"name": "t", "resourceClaimTemplateName": "template"},
            {"name": "old", "template": {"spec": {}}},
        ],
        "volumes": [
            {"name": "s", "secret": {"secretName": "disk"}},
            {"name": "c", "configMap": {"name": "config"}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "data"}},
            {
                "name": "j",
                "projected": {"sources": [{"secret": {"name": "joined"}}, {"configMap": {"name": "joint"}}]},
            },
        ],
        "containers": [
            {
                "name": "c",
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "two", "key": "k"}}},
                ],
                "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "every"}}],
            }
        ],
    },
    status={
        "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "mine-t-abc"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "mine-extended"},
    },
)
THEIRS = pod(
    "theirs", "a", "n2", spec={"resourceClaims": [{"name": "x", "resourceClaimName": "secret-claim"}]}
)


@pytest.fixture(scope="module")
def checks() -> Iterator[AccessChecks]:
    there = [slice_of("d.example.com", name, f"slice-{name}") for name in ("n1", "n2")]
    words = [preparation(name) for name in ("n1", "n2")]
    with ClusterState([MINE, THEIRS, *there, *words, slice_of("d.example.com", None, "slice-all")]) as world:
        yield AccessChecks(world)


def preparation(on: str, claim_name: str = "shared", namespace: str = "a") -> dict[str, Any]:
    spec = {"nodeName": on, "claim": {"namespace": namespace, "name": claim_name, "uid": "u"}}
    return thing("dray.dev/v1alpha1", "Preparation", f"word-{on}", spec=spec)


# --- what it sees ---


def test_what_a_pod_refers_to():
    assert set(find_references(MINE)) == {
        ReferencedObject("", "serviceaccounts", "robot"),
        *(ReferencedObject("", "secrets", name) for name in ("pull", "disk", "joined", "one", "all")),
        *(ReferencedObject("", "configmaps", name) for name in ("config", "joint", "two", "every")),
        ReferencedObject("", "persistentvolumeclaims", "data"),
        *(ReferencedObject(group, "resourceclaims", "shared") for group in (DEVICES, "cdi.k8s.io")),
        *(ReferencedObject(group, "resourceclaims", "mine-t-abc") for group in (DEVICES, "cdi.k8s.io")),
        *(ReferencedObject(group, "resourceclaims", "mine-extended") for group in (DEVICES, "cdi.k8s.io")),
        ReferencedObject("cdi.k8s.io", "resourceclaims", "mine-old"),
    }


@pytest.mark.parametrize(
    ("asked", "yes"),
    [
        (AccessAttributes("get", DEVICES, "resourceclaims", "", "a", "shared"), True),
        (AccessAttributes("get", DEVICES, "resourceclaims", "", "a", "mine-t-abc"), True),
        (AccessAttributes("get", "cdi.k8s.io", "resourceclaims", "", "a", "mine-old"), True),
        (AccessAttributes("get", DEVICES, "resourceclaims", "", "a", "secret-claim"), False),
        (AccessAttributes("get", DEVICES, "resourceclaims", "", "b", "shared"), False),
        (AccessAttributes("get", DEVICES, "resourceclaims", "status", "a", "shared"), False),
        (AccessAttributes("list", DEVICES, "resourceclaims", "", "a"), False),
        (AccessAttributes("watch", DEVICES, "resourceclaims"), False),
        (AccessAttributes("get", "", "secrets", "", "a", "disk"), True),
        (AccessAttributes("watch", "", "secrets", "", "a", "disk"), True),
        (AccessAttributes("list", "", "secrets", "", "a"), False),
        (AccessAttributes("get", "", "secrets", "", "a", "nobody-needs"), False),
        (AccessAttributes("get", "", "pods", "", "a", "mine"), True),
        (AccessAttributes("get", "", "pods", "", "a", "theirs"), False),
        (AccessAttributes("list", "", "pods"), False),
        (AccessAttributes("list", "", "pods", selector="spec.nodeName=n1"), True),
        (AccessAttributes("watch", "", "pods", selector="status.phase!=Failed,spec.nodeName=n1"), True),
        (AccessAttributes("list", "", "pods", selector="spec.nodeName=n2"), False),
        (AccessAttributes("list", "", "pods", selector="spec.nodeName!=n1"), False),
        (AccessAttributes("list", "", "pods", selector="spec.nodeName=n1x"), False),
        (AccessAttributes("list", "", "pods", selector="metadata.name=spec.nodeName=n1x"), False),
        (AccessAttributes("get", "", "nodes", name="n1"), True),
        (AccessAttributes("get", "", "nodes", name="n2"), False),
        (AccessAttributes("list", "", "nodes"), False),
        (AccessAttributes("patch", "", "nodes", name="n1"), True),
        (AccessAttributes("delete", "", "nodes", name="n1"), False),
        (AccessAttributes("patch", "", "nodes", "status", name="n1"), True),
        (AccessAttributes("patch", "", "nodes", "status", name="n2"), False),
        (AccessAttributes("get", DEVICES, "resourceslices", name="slice-n1"), True),
        (AccessAttributes("get", DEVICES, "resourceslices", name="slice-n2"), False),
        (AccessAttributes("get", DEVICES, "resourceslices", name="slice-all"), False),
        (AccessAttributes("list", DEVICES, "resourceslices"), False),
        (AccessAttributes("deletecollection", DEVICES, "resourceslices"), False),
        (AccessAttributes("deletecollection", DEVICES, "resourceslices", selector="spec.nodeName=n1"), True),
        (AccessAttributes("list", DEVICES, "resourceslices", selector="spec.nodeName=n2"), False),
        (AccessAttributes("get", "dray.dev", "preparations", name="word-n1"), True),
        (AccessAttributes("delete", "dray.dev", "preparations", name="word-n2"), False),
        (AccessAttributes("update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n1"), True),
        (AccessAttributes("update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n2"), False),
        (AccessAttributes("update", "coordination.k8s.io", "leases", "", "kube-system", "n1"), False),
        (AccessAttributes("create", "", "serviceaccounts", "token", "a", "robot"), True),
        (AccessAttributes("create", "", "serviceaccounts", "token", "a", "admin"), False),
        (AccessAttributes("create", "", "pods", "binding", "a", "mine"), False),
        (AccessAttributes("create", "", "pods", "eviction", "a", "mine"), True),
        (AccessAttributes("create", "", "pods", "eviction", "a", "theirs"), False),
        (AccessAttributes("create", DEVICES, "resourceclaims", "", "a"), False),
        (AccessAttributes("get", path="/metrics"), False),
    ],
)
def test_a_node_accesses_only_its_own_objects(checks, asked, yes):
    assert checks.access.allows(N1, asked) is yes


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (AccessAttributes("list", "", "pods"), "a node asks for its own with fieldSelector=spec.nodeName=n1"),
        (
            AccessAttributes("get", "", "secrets", "", "a", "x"),
            "a node sees and writes what is its own, and sees what",
        ),
    ],
)
def test_a_refusal_explains_what_a_node_may_access(checks, asked, words):
    decision = checks.access.authorize(N1, asked)
    assert not decision.allowed
    assert decision.reason.startswith('User "system:node:n1" cannot')
    assert words in decision.reason


def test_a_node_needs_both_the_name_and_the_group(checks):
    for user in (node("n1"), N1):
        assert checks.access.allows(user, AccessAttributes("get", "", "pods", "", "a", "mine"))
    for groups in (("system:authenticated",), ()):
        user = type(N1)("system:node:n1", groups)
        assert not checks.access.allows(user, AccessAttributes("get", "", "pods", "", "a", "mine"))
    assert not checks.access.allows(
        type(N1)("n1", ("system:nodes",)), AccessAttributes("get", "", "pods", "", "a", "mine")
    )


def test_access_of_a_node_ends_with_its_pods():
    asked = AccessAttributes("get", DEVICES, "resourceclaims", "", "a", "shared")
    twin = deepcopy(MINE)
    twin["metadata"]["name"] = "twin"
    with ClusterState(roles=False) as world:
        access = AccessChecks(world).access
        assert not access.allows(N1, asked)
        world.put(MINE, twin)
        assert access.allows(N1, asked)
        world.delete(twin)
        assert access.allows(N1, asked)
        world.put(pod("mine", "a", "n2", spec={"resourceClaims": MINE["spec"]["resourceClaims"]}))
        assert not access.allows(N1, asked)
        assert access.allows(node("n2"), asked)
        world.delete(MINE)
        assert not access.allows(node("n2"), asked)


def test_nothing_is_remembered_of_pods_that_are_gone():
    with ClusterState(roles=False) as world:
        placed = NodePodGraph(world.cache)
        world.put(MINE, THEIRS)
        world.delete(MINE)
        world.delete(THEIRS)
        assert vars(placed) == {"_pods": {}, "_references": {}}


REFERRING_STATES: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"labels": {"a": "b"}}},
    {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    {"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}},
    {"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made anew"}]}},
    {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "extended"}}},
    {"spec": {"ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "s"}}]}]}},
    {"spec": {"volumes": [{"secret": {"secretName": "s"}}], "imagePullSecrets": "malformed"}},
    {"spec": {"nodeName": "n2"}},
    {"spec": {"nodeName": ""}},
)


@pytest.mark.parametrize("containers", [MINE["spec"]["containers"], [{"env": [{"value": "secretKeyRef"}]}]])
def test_after_every_change_the_graph_has_what_the_pods_refer_to(containers):
    base = with_(MINE, spec={"containers": containers})
    with ClusterState(roles=False) as world:
        graph = NodePodGraph(world.cache)
        for before, after in product(REFERRING_STATES, repeat=2):
            for state in (before, after, before):
                document = with_(base, **state)
                world.put(document)
                node_name = document["spec"]["nodeName"]
                mentioned = tuple(dict.fromkeys(find_references(document)))
                expected = {("a", "mine"): (node_name, mentioned)} if node_name else {}
                assert vars(graph)["_pods"] == expected
                wanted = Counter(("a", one) for one in mentioned)
                assert vars(graph)["_references"] == ({node_name: wanted} if node_name else {})


# --- what it writes ---


def with_(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The document with fields of `metadata`, `spec` or `status` replaced."""
    changed = deepcopy(document)
    for part, fields in changes.items():
        changed[part] = {**changed.get(part, {}), **fields}
    return changed


FENCE = {"key": "node.kubernetes.io/out-of-service", "value": "fenced", "effect": "NoExecute"}
MIRROR_POD = pod("static-n1", "a", "n1", annotations=MIRROR)
SLICE, OTHER_SLICE = slice_of("d.example.com", "n1"), slice_of("d.example.com", "n2")
NODE = thing(
    "v1", "Node", "n1", labels={"zone": "z"}, spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}
)
FENCED_NODE = with_(NODE, spec={"taints": [FENCE]})
LEASE = thing("coordination.k8s.io/v1", "Lease", "n1", "kube-node-lease", spec={})
CLAIM = claim("shared", "a", allocated("d.example.com"))
CLAIM_STATUS = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "secret-claim"}]}
SPARE = [{"name": "x", "resourceClaimName": "secret-claim"}]

ALLOWED = {
    "create a mirror pod": (None, MIRROR_POD),
    "create a mirror pod it owns": (
        None,
        with_(MIRROR_POD, metadata={"ownerReferences": [{"kind": "Node", "name": "n1"}]}),
    ),
    "delete a pod on it": (MINE, None),
    "tell the status of a pod on it": (MINE, with_(MINE, status={"phase": "Running"}), "status"),
    "create itself": (None, NODE),
    "give itself a label of its own": (NODE, with_(NODE, metadata={"labels": {"zone": "z", "rack": "7"}})),
    "give itself a label that says what it is": (
        NODE,
        with_(NODE, metadata={"labels": {"zone": "z", "kubernetes.io/arch": "amd64"}}),
    ),
    "tell its status": (NODE, with_(NODE, status={"phase": "x"}), "status"),
    "publish a slice": (None, SLICE),
    "change its slice": (SLICE, with_(SLICE, metadata={"labels": {"a": "b"}})),
    "delete its slice": (SLICE, None),
    "give its word": (None, preparation("n1")),
    "give its word for a claim from a template": (None, preparation("n1", "mine-t-abc")),
    "give its word for a claim of an extended resource": (None, preparation("n1", "mine-extended")),
    "take its word back": (preparation("n1"), None),
    "take its word back when the pod is gone": (preparation("n1", "long-gone"), None),
    "renew its lease": (None, LEASE),
    "tell an event": (None, thing("v1", "Event", "e", "a")),
}

REFUSED = {
    # S-03, CVE-2025-4563
    "create a pod that mirrors nothing": (None, with_(MIRROR_POD, metadata={"annotations": {}})),
    "create a mirror pod elsewhere": (None, with_(MIRROR_POD, spec={"nodeName": "n2"})),
    "create a mirror pod without a node": (None, pod("static", "a", annotations=MIRROR)),
    "create a mirror pod with another's claim": (None, with_(MIRROR_POD, spec={"resourceClaims": SPARE})),
    "create a mirror pod with a template": (
        None,
        with_(MIRROR_POD, spec={"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}),
    ),
    "create a mirror pod with claim statuses": (None, with_(MIRROR_POD, status=CLAIM_STATUS)),
    "create a mirror pod with a secret": (
        None,
        with_(MIRROR_POD, spec={"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
    ),
    "create a mirror pod with an account": (None, with_(MIRROR_POD, spec={"serviceAccountName": "admin"})),
    "create a mirror pod with an account, spelt as once": (
        None,
        with_(MIRROR_POD, spec={"serviceAccount": "admin"}),
    ),
    "create a mirror pod for another owner": (
        None,
        with_(MIRROR_POD, metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}),
    ),
    "give a pod another's claim with its status": (MINE, with_(MINE, status=CLAIM_STATUS), "status"),
    "give a pod a claim status": (MIRROR_POD, with_(MIRROR_POD, status=CLAIM_STATUS), "status"),
    "take a claim status away": (MINE, with_(MINE, status={"resourceClaimStatuses": []}), "status"),
    "give a pod a claim": (MIRROR_POD, with_(MIRROR_POD, spec={"resourceClaims": SPARE})),
    "give a pod a claim with its status": (
        MIRROR_POD,
        with_(MIRROR_POD, spec={"resourceClaims": SPARE}),
        "status",
    ),
    "change a pod": (MINE, with_(MINE, metadata={"annotations": {"a": "b"}})),
    "change the labels of a pod": (MINE, with_(MINE, metadata={"labels": {"a": "b"}}), "status"),
    "tell the status of a pod elsewhere": (THEIRS, with_(THEIRS, status={"phase": "Failed"}), "status"),
    "delete a pod elsewhere": (THEIRS, None),
    "bind a pod": (pod("free", "a"), pod("free", "a", "n1"), "binding"),
    "publish a slice of another node": (None, OTHER_SLICE),
    "publish a slice of all nodes": (None, slice_of("d.example.com", None)),
    "change a slice of another node": (OTHER_SLICE, with_(OTHER_SLICE, metadata={"labels": {"a": "b"}})),
    "take a slice of another node": (OTHER_SLICE, with_(OTHER_SLICE, spec={"nodeName": "n1"})),
    "give its slice to another node": (SLICE, with_(SLICE, spec={"nodeName": "n2"})),
    "delete a slice of another node": (OTHER_SLICE, None),
    "give another's word": (None, preparation("n2")),
    "take another's word back": (preparation("n2"), None),
    # Who prepares a claim keeps its devices from everybody, and would learn of any claim whether it is there.
    "give its word for another's claim": (None, preparation("n1", "secret-claim")),
    "give its word for a claim of another namespace": (None, preparation("n1", namespace="b")),
    "give a pod another's claim for an extended resource": (
        MINE,
        with_(MINE, status={"extendedResourceClaimStatus": {"resourceClaimName": "secret-claim"}}),
        "status",
    ),
    "create a mirror pod with a claim for an extended resource": (
        None,
        with_(MIRROR_POD, status={"extendedResourceClaimStatus": {"resourceClaimName": "secret-claim"}}),
    ),
    "create another node": (None, thing("v1", "Node", "n2")),
    "change another node": (
        thing("v1", "Node", "n2"),
        thing("v1", "Node", "n2", labels={"a": "b"}),
        "status",
    ),
    "delete another node": (thing("v1", "Node", "n2"), None),
    "give itself a reserved label": (
        NODE,
        with_(NODE, metadata={"labels": {"zone": "z", "node-restriction.kubernetes.io/safe": "true"}}),
    ),
    "give itself a label of the system": (
        None,
        with_(NODE, metadata={"labels": {"node-role.kubernetes.io/control-plane": ""}}),
    ),
    "give itself an owner": (NODE, with_(NODE, metadata={"ownerReferences": [{"kind": "Pod", "name": "p"}]})),
    "take its taints away": (NODE, with_(NODE, spec={"taints": []})),
    "take its fence away": (FENCED_NODE, with_(FENCED_NODE, spec={"taints": []})),
    "take its fence away with its status": (FENCED_NODE, with_(FENCED_NODE, spec={"taints": []}), "status"),
    # and come back without the taints that others put on it
    "delete itself": (FENCED_NODE, None),
    "live for another": (None, with_(LEASE, metadata={"name": "n2"})),
    "hold a lease of the system": (None, with_(LEASE, metadata={"namespace": "kube-system"})),
    # claims and what they are made from
    "create a claim": (None, claim("new", "a")),
    "change a claim": (CLAIM, with_(CLAIM, metadata={"labels": {"a": "b"}})),
    "free a claim": (CLAIM, with_(CLAIM, status={"allocation": None}), "status"),
    "delete a claim": (CLAIM, None),
    "create a class": (None, thing(f"{DEVICES}/v1", "DeviceClass", "gpu")),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_node_may(checks, what):
    assert checks.refuses(N1, *ALLOWED[what]) is None


@pytest.mark.parametrize("what", REFUSED)
def test_a_node_may_not(checks, what):
    failure = checks.refuses(N1, *REFUSED[what])
    assert failure is not None
    assert failure.code == 403
    assert 'node "n1"' in failure.message


@pytest.mark.parametrize("what", ["change a pod", "publish a slice of another node", "create another node"])
def test_node_restriction_does_not_apply_to_other_users(checks, what):
    assert checks.refuses(person("root", "system:masters"), *REFUSED[what]) is None
