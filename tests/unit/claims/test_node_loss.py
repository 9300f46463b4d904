"""What a lost node had, and why some of it is not free."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.core import Pod, PodStatus
from dray.api.meta import ObjectMeta
from dray.api.resource import ConsumerReference, ResourceClaim, ResourceClaimStatus
from dray.claims.claim_names import FINALIZER
from dray.claims.node_loss import (
    ClaimedDevice,
    NodeLossState,
    RetainedDevice,
    find_affected_devices,
    find_retained_devices,
    parse_ledger_entries,
)

LOST = "lost"
STAKE = ClaimedDevice("gpu/pool/gpu-0", "default/c", "c-uid")


def held(nodes: tuple[str, ...] = (), *, quarantined: bool = False) -> ClaimedDevice:
    return ClaimedDevice(STAKE.device, STAKE.claim, STAKE.uid, nodes, quarantined)


def user(name: str, resource: str = "pods", group: str = "") -> ConsumerReference:
    return ConsumerReference(api_group=group, resource=resource, name=name, uid=f"{name}-uid")


def claim(*users: ConsumerReference, finalizers: tuple[str, ...] = (FINALIZER,)) -> ResourceClaim:
    metadata = ObjectMeta(namespace="default", name="c", uid="c-uid", finalizers=finalizers)
    return ResourceClaim(metadata=metadata, status=ResourceClaimStatus(reserved_for=users))


def pod(name: str, phase: str) -> Pod:
    metadata = ObjectMeta(namespace="default", name=name, uid=f"{name}-uid")
    return Pod(metadata=metadata, status=PodStatus(phase=phase))


def state_of(*claims: ResourceClaim, phase: str = "Failed") -> NodeLossState:
    known = {each.metadata.uid: each for each in claims}
    return NodeLossState(LOST, known, {"p-uid": pod("p", phase)})


def test_affected_are_devices_that_the_node_or_one_of_its_pods_has() -> None:
    prepared = ClaimedDevice("d0", "default/gone", "gone-uid", (LOST,), True)
    of_pod = ClaimedDevice("d1", "default/c", "c-uid")
    ledger = [
        ClaimedDevice("d3", "default/z", "z-uid", ("other",)),
        of_pod,
        prepared,
        ClaimedDevice("d2", "x/y", "y-uid"),
    ]
    assert find_affected_devices(ledger, state_of(claim(user("p")))) == [prepared, of_pod]
    assert find_affected_devices(ledger, state_of(claim(user("q")))) == [prepared]


def test_the_ledger_is_read_from_the_status_of_the_server() -> None:
    holder: dict[str, Any] = {"claim": "a/b", "uid": "u", "share": "", "amounts": {}, "nodes": ["n"]}
    entry = {"device": "d", "holders": [holder | {"quarantined": True}]}
    assert parse_ledger_entries([entry, {"device": "e", "holders": [], "unreadable": "x"}]) == [
        ClaimedDevice("d", "a/b", "u", ("n",), True)
    ]


CASES: dict[str, tuple[ClaimedDevice, NodeLossState, bool, str]] = {
    "the node has it again": (held((LOST,)), state_of(claim(user("p"))), False, "has it prepared again"),
    "another node has it": (held(("other",), quarantined=True), state_of(), True, "node other has it"),
    "the claim is gone": (held(), state_of(), False, "the claim is gone"),
    "a pod elsewhere uses it, too": (
        held(("other",)),
        state_of(claim(user("p"), user("q"))),
        True,
        "reserved for pod q",
    ),
    "a group uses it": (
        held(),
        state_of(claim(user("g", "podgroups", "scheduling.example.com"))),
        True,
        "reserved for podgroups g",
    ),
    "many use it": (
        held(),
        state_of(claim(*(user(name) for name in "uvwxyz"))),
        True,
        "reserved for pod u, pod v, pod w and 3 more",
    ),
    "its pod ended": (held(), state_of(claim(user("p"))), False, "still reserved for pod p, which ended"),
    "its pod came again": (
        held(),
        state_of(claim(user("p")), phase="Pending"),
        False,
        "came to node lost again",
    ),
    "nobody uses it": (held(), state_of(claim()), False, "reserved for nobody, and is about to be released"),
    "it was allocated by hand": (held(), state_of(claim(finalizers=())), True, "allocated the claim by hand"),
}


@pytest.mark.parametrize("case", CASES)
def test_why_a_device_is_not_free(case: str) -> None:
    now, around, rightly, words = CASES[case]
    (found,) = find_retained_devices([STAKE], [now], around)
    assert (found.claimed, found.expected) == (now, rightly)
    assert words in found.why


def test_a_device_that_another_claim_has_by_now_is_free_of_the_claim() -> None:
    taken = ClaimedDevice(STAKE.device, "default/next", "next-uid", ("other",))
    found: list[RetainedDevice] = find_retained_devices([STAKE], [taken], state_of())
    assert found == []
