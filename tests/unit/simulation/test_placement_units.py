"""Pods of manifests and their claims: the same rules as in the live scheduler, case by case."""

from __future__ import annotations

import pytest

from dray.claims.claim_names import get_namespaced_name
from dray.claims.pod_claims import PodClaimLookup
from dray.placement.pending_pod import PendingPod, resolve_pending_pod
from dray.simulation.bundle import Bundle
from dray.simulation.placement_units import BundleClaims
from tests.unit.simulation.cluster_text import bundle, claim, owned_by, pod

DELETED = "  deletionTimestamp: 2026-01-01T00:00:00Z\n"
RECORDED = "status:\n  resourceClaimStatuses:\n  - {name: t, resourceClaimName: c}\n"


def reserved(*consumers: str) -> str:
    listed = "".join(f"  - {{resource: pods, {consumer}}}\n" for consumer in consumers)
    return f"status:\n  reservedFor:\n{listed}"


def with_uid(text: str, uid: str = "u") -> str:
    """The pod as a server returns it."""
    return text.replace("  name: x\n", f"  name: x\n  uid: {uid}\n")


def deleted(text: str) -> str:
    return text.replace("  name: c\n", f"  name: c\n{DELETED}")


OTHERS = [f"name: p{i}, uid: u{i}" for i in range(255)]
NAMED, FROM_TEMPLATE = with_uid(pod("x", claims="c")), with_uid(pod("x", templates="t", extra=RECORDED))
CASES: dict[str, tuple[str, str, bool]] = {
    "a named claim": (claim("c", "gpu"), NAMED, True),
    "a deleted claim": (deleted(claim("c", "gpu")), NAMED, False),
    "a deleted claim reserved for the pod": (
        deleted(claim("c", "gpu", status=reserved("name: x, uid: u"))),
        NAMED,
        True,
    ),
    "a deleted claim reserved for an earlier pod of this name": (
        deleted(claim("c", "gpu", status=reserved("name: x, uid: earlier"))),
        NAMED,
        False,
    ),
    "a deleted claim reserved for another kind of consumer of this name": (
        deleted(claim("c", "gpu", status=reserved("name: x, uid: j").replace("pods", "jobs"))),
        NAMED,
        False,
    ),
    "as many consumers as a claim can have": (
        claim("c", "gpu", status=reserved(*OTHERS, "name: other, uid: v")),
        NAMED,
        False,
    ),
    "as many consumers as a claim can have, the pod among them": (
        claim("c", "gpu", status=reserved(*OTHERS, "name: x, uid: u")),
        NAMED,
        True,
    ),
    "as many consumers as a claim can have, an earlier pod of this name among them": (
        claim("c", "gpu", status=reserved(*OTHERS, "name: x, uid: earlier")),
        NAMED,
        False,
    ),
    "a recorded claim of the pod": (owned_by(claim("c", "gpu"), "x", "u"), FROM_TEMPLATE, True),
    "a recorded claim of nobody": (claim("c", "gpu"), FROM_TEMPLATE, False),
    "a recorded claim of an earlier pod of this name": (
        owned_by(claim("c", "gpu"), "x", "earlier"),
        FROM_TEMPLATE,
        False,
    ),
    "a pod and a consumer without uids": (
        deleted(claim("c", "gpu", status=reserved("name: x, uid: ''"))),
        pod("x", claims="c"),
        True,
    ),
}


def look_up(cluster: Bundle) -> PodClaimLookup:
    known = {get_namespaced_name(each.metadata): each for each in cluster.claims}
    return PodClaimLookup(lambda namespace, name: known.get((namespace, name)))


@pytest.mark.parametrize("case", CASES)
def test_manifests_and_the_scheduler_resolve_claims_alike(case: str) -> None:
    claims, waiting, usable = CASES[case]
    cluster = bundle(claims + waiting)
    (asking,) = cluster.pods
    unit = BundleClaims(cluster).build_pod_unit(asking)
    live = resolve_pending_pod(asking, look_up(cluster))
    if usable:
        assert isinstance(live, PendingPod)
        assert (unit.claims, unit.obstacle) == (live.claims, "")
    else:
        assert not isinstance(live, PendingPod)
        assert unit.obstacle == live.reason


def test_a_claim_of_an_earlier_pod_is_not_used_for_a_template() -> None:
    """It belongs to a pod that is gone, and the garbage collector deletes it."""
    made = owned_by(claim("old", "gpu"), "x", "earlier", entry="t")
    cluster = bundle(made + with_uid(pod("x", templates="t")))
    unit = BundleClaims(cluster).build_pod_unit(cluster.pods[0])
    assert unit.obstacle == "entry `t`: ResourceClaimTemplate `default/t` is not among the manifests"
