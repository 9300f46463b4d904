"""Classic claims in the scheduler: when a pod waits, where it may go, what is written, what is given back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.classic import ClassicResourceClaim
from dray.placement.classic_negotiation import (
    MAX_NODES,
    ClassicClaimsReady,
    ProposeNodes,
    RequestReallocation,
    ReserveClassic,
    UnreserveClassic,
    WaitForDrivers,
    apply_action,
    build_node_window,
)
from dray.placement.framework import PreFilterResult
from dray.placement.pending_pod import PendingPod
from dray.placement.plugins.classic_resources import NAME, ClassicResources, decide_next_step, post_filter
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.values.node_selectors import build_node_name_selector
from tests.unit.placement.classic_objects import allocated, classic, node_state, pending_pod, proposed

req = pytest.mark.req
ON_CLAIM = frozenset({Signal(Topic.CLAIM, "ns/c")})


def result(*claims: ClassicResourceClaim) -> Any:
    return ClassicResources().pre_filter(pending_pod(*claims), None)  # type: ignore[arg-type]


def refusals(who: PendingPod, *names: str) -> dict[str, PluginRejection]:
    """Which nodes the plugin refuses."""
    said = ClassicResources().pre_filter(who, None)  # type: ignore[arg-type]
    if said is None:
        return {}
    assert isinstance(said, PreFilterResult)
    assert said.filter is not None
    found = {name: said.filter(node_state(name)) for name in names}
    return {name: verdict for name, verdict in found.items() if verdict is not None}


# --- PreFilter ---


@req("K3063-107")
def test_a_pod_waits_for_an_immediate_claim():
    text = "claim ns/c is not allocated yet; its driver does so without waiting for a pod"
    assert result(classic(mode="Immediate")) == PluginRejection(NAME, text, ON_CLAIM)
    assert result(allocated(mode="Immediate")) is None


@pytest.mark.parametrize("mode", ["Immediate", "Delayed"])
def test_a_pod_waits_while_its_claim_is_freed_or_deleted(mode):
    freed = result(classic(mode=mode, phase="Reallocate"))
    assert (freed.reason, freed.wake_signals) == (
        "claim ns/c is being freed by its driver, to be allocated again",
        ON_CLAIM,
    )
    assert result(allocated(mode=mode, deleted=True)).reason == "claim ns/c is being deleted"


def test_a_claim_that_is_the_pods_already_may_be_on_its_way_out():
    assert result(allocated(users=("p",), deleted=True)) is None


@req("K3063-169")
def test_pods_without_classic_claims_are_none_of_its_business():
    assert result() is None
    assert decide_next_step(pending_pod(), ["a"], "a") == ClassicClaimsReady()


# --- Filter ---


@req("K3063-108", "K3063-090")
def test_an_allocated_claim_keeps_to_its_nodes():
    refused = refusals(pending_pod(allocated(node="a")), "a", "b")
    assert refused == {
        "b": PluginRejection(
            NAME,
            "claim ns/c is allocated, and not available on this node",
            frozenset({*ON_CLAIM, Signal(Topic.NODES)}),
        )
    }


@req("K3063-089", "K3063-090")
def test_both_places_of_the_nodes_are_read():
    before_it_moved = classic(
        phase="Allocated",
        scheduling={"driver": {"availableOnNodes": build_node_name_selector("a").to_document()}},
    )
    assert refusals(pending_pod(before_it_moved), "a", "b").keys() == {"b"}
    assert refusals(pending_pod(allocated()), "a", "b") == {}


@req("K3063-036")
def test_an_immediate_claim_on_the_wrong_node_has_a_reason():
    (verdict,) = refusals(pending_pod(allocated(node="a", mode="Immediate")), "b").values()
    assert verdict.reason == (
        "claim ns/c was allocated before this pod was known, and is not available on this node"
    )


@req("K3063-089", "K3063-109", "K3063-110", "K3063-112", "K3063-161")
def test_a_pending_claim_refuses_only_what_its_driver_declined():
    claim = proposed(declined=("a",), availableOnNodes={"nodeSelectorTerms": [_rack("1")]})
    said = result(claim)
    told = {
        name: said.filter(node_state(name, rack=rack))
        for name, rack in (("a", "1"), ("b", "1"), ("c", "2"), ("new", "1"))
    }
    assert {name: verdict and verdict.reason for name, verdict in told.items()} == {
        "a": "the driver of claim ns/c cannot allocate it for this node",
        "b": None,
        "c": "claim ns/c cannot be made available on this node",
        "new": None,
    }
    assert result(classic()) is None


def _rack(number: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "rack", "operator": "In", "values": [number]}]}


def test_what_was_declined_is_over_once_the_claim_is_allocated():
    claim = classic(phase="Allocated", scheduling={"driver": {"unsuitableNodes": ["a"]}})
    assert refusals(pending_pod(claim), "a") == {}


@req("K3063-113")
def test_every_claim_that_refuses_a_node_is_remembered():
    who = pending_pod(allocated("x", "a"), allocated("y", "b"), allocated("z"))
    refused = refusals(who, "a", "b", "c")
    blamed = {
        name: sorted(signal.about for signal in verdict.wake_signals if signal.about)
        for name, verdict in refused.items()
    }
    assert blamed == {"a": ["ns/y"], "b": ["ns/x"], "c": ["ns/x", "ns/y"]}


# --- PreScore and Reserve ---


@req("K3063-069", "K3063-083", "K3063-085", "K3063-111", "K3063-119")
def test_a_pending_claim_gets_the_proposed_nodes_and_the_selected_one():
    claim = classic()
    step = decide_next_step(pending_pod(claim), ["b", "a", "c"], "b")
    assert step == WaitForDrivers(
        (ProposeNodes(claim, ("b", "a", "c"), "b"),),
        PluginRejection(NAME, "waiting for the driver of claim ns/c to allocate it for node b", ON_CLAIM),
    )
    status = apply_action(step.actions[0]).status
    assert status.scheduling is not None
    assert status.scheduling.scheduler.selected_node == "b"
    assert status.scheduling.scheduler.potential_nodes == ("b", "a", "c")


def test_a_proposal_leaves_the_drivers_part_alone():
    claim = proposed("a", selected="a", declined=("a",))
    step = decide_next_step(pending_pod(claim), ["b"], "b")
    assert isinstance(step, WaitForDrivers)
    scheduling = apply_action(step.actions[0]).status.scheduling
    assert scheduling is not None
    assert scheduling.driver == claim.status.scheduling.driver  # type: ignore[union-attr]


@req("K3063-118")
def test_nothing_is_written_twice():
    claim = proposed("b", "a", selected="b")
    for order in (["b", "a"], ["a", "b"]):
        step = decide_next_step(pending_pod(claim), order, order[0])
        assert isinstance(step, WaitForDrivers)
        assert step.actions == ()
        assert step.rejection.reason == "waiting for the driver of claim ns/c to allocate it for node b"


def test_the_node_that_was_asked_for_stays_while_it_will_do():
    step = decide_next_step(pending_pod(proposed("a", "b", selected="a")), ["c", "b", "a"], "c")
    assert isinstance(step, WaitForDrivers)
    assert [(each.potential_nodes, each.selected_node) for each in step.actions] == [(("a", "b", "c"), "a")]


@req("K3063-040")
def test_another_node_is_asked_for_when_the_driver_declined():
    step = decide_next_step(pending_pod(proposed("a", "b", selected="a", declined=("a",))), ["b"], "b")
    assert isinstance(step, WaitForDrivers)
    assert [(each.potential_nodes, each.selected_node) for each in step.actions] == [(("a", "b"), "b")]


@req("K3063-152")
def test_a_node_the_driver_gave_up_is_asked_for_again_or_another():
    """The driver unset the node without declining it."""
    step = decide_next_step(pending_pod(proposed("a", "b")), ["b", "a"], "b")
    assert isinstance(step, WaitForDrivers)
    assert step.actions[0].selected_node == "b"


def told(*claims: ClassicResourceClaim, nodes: list[str]) -> tuple[dict[str, str], str]:
    """Which claim is asked for which node, with the words the pod gets."""
    step = decide_next_step(pending_pod(*claims), nodes, nodes[0])
    assert isinstance(step, WaitForDrivers)
    assert {each.potential_nodes for each in step.actions} <= {tuple(sorted(nodes)), ("a", "b", "c")}
    return {each.claim.metadata.name: each.selected_node for each in step.actions}, step.rejection.reason


def test_of_several_claims_one_without_declined_nodes_goes_first_and_alone():
    new = (classic("x"), classic("y"), allocated("z"))
    wanted, text = told(*new, nodes=["a", "b"])
    assert wanted == {"x": "a", "y": ""}
    assert text == "waiting for the driver of claim ns/x to allocate it for node a"
    step = decide_next_step(pending_pod(*new), ["a", "b"], "a")
    assert isinstance(step, WaitForDrivers)
    assert step.rejection.wake_signals == {Signal(Topic.CLAIM, "ns/x"), Signal(Topic.CLAIM, "ns/y")}


def test_a_claim_whose_driver_is_at_work_is_waited_for():
    busy, idle = proposed("a", "b", selected="b", name="x"), proposed("a", "b", name="y", declined=("c",))
    assert told(busy, idle, nodes=["a", "b"]) == (
        {},
        "waiting for the driver of claim ns/x to allocate it for node b",
    )


def test_when_the_first_is_allocated_the_next_is_asked():
    waiting = (proposed("a", "b", name="y"), proposed("a", "b", name="z"))
    wanted, _ = told(allocated("x", "a"), *waiting, nodes=["a"])
    assert wanted == {"y": "a", "z": ""}


def test_a_node_that_is_no_longer_selected_is_unset():
    stale = proposed("a", "b", "c", name="x", selected="a", declined=("a",))
    wanted, _ = told(stale, classic("y"), nodes=["b", "c"])
    assert wanted == {"x": "", "y": "b"}


@req("K3063-037", "K3063-080", "K3063-120", "K3063-121")
def test_a_pod_is_ready_when_all_its_claims_are_allocated():
    ours, free, pending = allocated("x", users=("p",)), allocated("y", "a"), classic("z")
    who = pending_pod(ours, free)
    assert decide_next_step(who, ["a"], "a") == ClassicClaimsReady((ReserveClassic(free, who.pod),))
    assert isinstance(decide_next_step(pending_pod(ours, free, pending), ["a"], "a"), WaitForDrivers)


@req("K3063-120", "K3063-122")
def test_to_reserve_adds_the_pod_and_to_unreserve_removes_it():
    who, shared = pending_pod(), allocated(users=("other",), userLimit=2)
    held = apply_action(ReserveClassic(shared, who.pod))
    assert [user.uid for user in held.status.reserved_for] == ["other", "p"]
    assert apply_action(ReserveClassic(held, who.pod)) == held
    assert apply_action(UnreserveClassic(held, who.pod)) == shared


# --- PostFilter ---


def blaming(*names: str) -> list[PluginRejection]:
    return [PluginRejection(NAME, "no", frozenset({Signal(Topic.CLAIM, f"ns/{name}")})) for name in names]


@req("K3063-041", "K3063-081", "K3063-114", "K3063-115")
@pytest.mark.parametrize(
    ("claim", "goes"),
    [
        (allocated(node="a"), True),
        (allocated(node="a", users=("p",)), True),
        (allocated(node="a", users=("other",)), False),
        (allocated(node="a", mode="Immediate"), False),
        (allocated(node="a", deleted=True), False),
        (proposed("a", declined=("a",)), False),
    ],
    ids=["free", "our own", "in use", "immediate", "deleted", "pending"],
)
def test_what_is_given_back_when_nothing_fits(claim, goes):
    assert post_filter(pending_pod(claim), blaming("c")) == ((RequestReallocation(claim),) if goes else ())


def test_what_is_given_back_has_no_users_and_waits_for_its_driver():
    claim = allocated(node="a", users=("p",))
    freed = apply_action(RequestReallocation(claim))
    assert (freed.status.phase, freed.status.reserved_for) == ("Reallocate", ())
    assert freed.status.available_on_nodes == claim.status.available_on_nodes


def test_only_claims_that_kept_the_pod_from_a_node_are_given_back():
    who = pending_pod(allocated("x", "a"), allocated("y", "a"))
    assert post_filter(who, []) == ()
    assert post_filter(who, [PluginRejection("NodeResourcesFit", "no", ON_CLAIM)]) == ()
    assert [each.claim.metadata.name for each in post_filter(who, blaming("y"))] == ["y"]


@req("K3063-116")
def test_one_of_several_is_picked_by_the_turn():
    who = pending_pod(*(allocated(name, "a") for name in "xyz"))
    picked = [post_filter(who, blaming("x", "y", "z"), turn) for turn in range(4)]
    assert [[each.claim.metadata.name for each in one] for one in picked] == [["x"], ["y"], ["z"], ["x"]]


@req("K3063-117")
def test_nothing_more_is_given_back_while_one_is_being_freed():
    who = pending_pod(allocated("x", "a"), classic("y", phase="Reallocate"))
    assert post_filter(who, blaming("x")) == ()


def test_filter_and_post_filter_agree():
    """Two claims on different nodes keep the pod from all of them; either may go."""
    who = pending_pod(allocated("x", "a"), allocated("y", "b"))
    verdicts = refusals(who, "a", "b").values()
    assert len(post_filter(who, verdicts, 0) + post_filter(who, verdicts, 1)) == 2


# --- the window ---

names = st.lists(st.integers(0, 400).map(lambda n: f"n{n:03}"), unique=True, min_size=1, max_size=300)


@given(names, names, st.lists(st.integers(0, 400).map(lambda n: f"n{n:03}"), unique=True, max_size=128))
def test_a_window_is_small_and_has_a_node_that_would_do(feasible, before, declined):
    would_do = [name for name in feasible if name not in declined] or feasible[:1]
    told = build_node_window(
        would_do, would_do[0], before[:MAX_NODES], [n for n in declined if n not in would_do]
    )
    assert len(told) <= MAX_NODES
    assert len(set(told)) == len(told)
    assert set(told) & set(would_do)


@req("K3063-185")
@pytest.mark.parametrize("good", [0, 127, 128, 500, 999])
def test_a_resource_on_one_node_of_a_thousand_is_found(good):
    """The driver answers for the nodes it is asked about, and remembers no others."""
    nodes = [f"n{number:03}" for number in range(1000)]
    claim, turns = classic(), 0
    while True:
        declined = claim.status.scheduling.driver.unsuitable_nodes if claim.status.scheduling else ()
        feasible = [name for name in nodes if name not in declined]
        step = decide_next_step(pending_pod(claim), feasible, feasible[0])
        assert isinstance(step, WaitForDrivers)
        (action,) = step.actions
        assert len(action.potential_nodes) <= MAX_NODES
        if action.selected_node == nodes[good]:
            break
        asked = action.potential_nodes
        bad = tuple(name for name in asked if name != nodes[good])
        claim = proposed(*asked, selected=action.selected_node, declined=bad)
        turns += 1
    assert turns <= 9
