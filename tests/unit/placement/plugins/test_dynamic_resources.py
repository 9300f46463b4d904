"""The plugin for devices: who reaches what, who is preferred, what is remembered."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dray.placement.framework import PreFilterResult, normalize_min_max, normalize_to_max
from dray.placement.profile import PLUGINS, Normalization, PlacementOptions
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.scheduling_cycle import Placement, Unschedulable, find_rejections, place_pod
from tests.brute import builders as make
from tests.unit.placement.claim_objects import (
    CLASS,
    claim,
    cluster,
    devices_only,
    having,
    models,
    rather,
    wanting,
)


def test_a_pod_without_claims_is_none_of_its_business() -> None:
    plugin, _ = devices_only()
    assert plugin.pre_filter(wanting(), cluster({"a": models("x")})) is None


def test_a_claim_that_every_node_reaches_excludes_none() -> None:
    plugin, _ = devices_only()
    assert plugin.pre_filter(wanting(having(claim(), "net/d0")), cluster({"a": ()})) is None


def test_a_claim_with_devices_narrows_the_nodes() -> None:
    plugin, profile = devices_only()
    subject = wanting(having(claim(), "b/d0", where="b"), having(claim(name="d"), "net/d0"))
    snapshot = cluster({"a": models("x"), "b": models("x"), "c": models("x")})
    result = plugin.pre_filter(subject, snapshot)
    assert isinstance(result, PreFilterResult)
    assert result.node_names == frozenset({"b"})
    assert result.score is None
    found = place_pod(snapshot, subject, profile)
    assert isinstance(found, Placement)
    assert (found.node_state.name, found.allocations) == ("b", ())


def test_two_claims_with_devices_on_different_nodes_have_none_in_reach() -> None:
    _, profile = devices_only()
    subject = wanting(having(claim(), "a/d0", where="a"), having(claim(name="d"), "b/d0", where="b"))
    found = place_pod(cluster({"a": (), "b": ()}), subject, profile)
    assert isinstance(found, Unschedulable)
    assert {name for each in found.rejected for name in each.nodes} == {"a", "b"}
    assert Signal(Topic.CLAIM, "ml/c") in found.wake_signals
    assert Signal(Topic.NODES) in found.wake_signals


def test_a_selector_by_labels_reaches_the_nodes_that_have_them_now() -> None:
    plugin, _ = devices_only()
    held = having(claim(), "rack/d0")
    assert held.status.allocation is not None
    where = make.labelled({"rack": "1"})
    status = replace(held.status, allocation=replace(held.status.allocation, node_selector=where))
    subject = wanting(replace(held, status=status))
    inside, outside = cluster({"a": ()}, labels={"rack": "1"}), cluster({"a": ()}, labels={"rack": "2"})
    for snapshot, names in ((inside, frozenset("a")), (outside, frozenset()), (inside, frozenset("a"))):
        result = plugin.pre_filter(subject, snapshot)
        assert isinstance(result, PreFilterResult)
        assert result.node_names == names


def test_what_could_help_is_devices_nodes_classes_and_claims() -> None:
    _, profile = devices_only()
    found = place_pod(cluster({"a": ()}), wanting(claim()), profile)
    assert isinstance(found, Unschedulable)
    assert found.wake_signals == {
        Signal(Topic.DEVICES),
        Signal(Topic.NODES),
        Signal(Topic.CLASS, "any"),
        Signal(Topic.CLAIM, "ml/c"),
    }


def test_a_fault_of_the_claim_concerns_the_whole_cluster() -> None:
    plugin, _ = devices_only()
    asked = claim(make.request("r", device_class="missing"))
    verdict = plugin.pre_filter(wanting(asked), cluster({"a": models("x")}))
    assert isinstance(verdict, PluginRejection)
    assert "missing" in verdict.reason
    assert Signal(Topic.CLASS, "missing") in verdict.wake_signals


def test_a_faulty_device_rejects_only_its_node() -> None:
    _, profile = devices_only()
    asked = claim(make.request("r", 1, "attr:gpu.example/model=x"))
    snapshot = cluster({"a": models(""), "b": models("x")})
    found = place_pod(snapshot, wanting(asked), profile)
    assert isinstance(found, Placement)
    assert found.node_state.name == "b"
    (refused,) = find_rejections(snapshot, wanting(asked), profile)
    assert refused.nodes == ("a",)
    assert refused.rejection.reason == "a device cannot be judged for claim ml/c"


# --- scores ---


def scores(snapshot_models: dict[str, tuple[str, ...]], *claims: object) -> dict[str, int]:
    plugin, _ = devices_only()
    snapshot = cluster({name: models(*found) for name, found in snapshot_models.items()})
    result = plugin.pre_filter(wanting(*claims), snapshot)  # type: ignore[arg-type]
    assert isinstance(result, PreFilterResult)
    assert result.score is not None
    return {name: result.score(state) for name, state in snapshot.node_states.items()}


@pytest.mark.req("K4816-066")
def test_a_first_choice_earns_eight_and_every_further_one_less() -> None:
    order = [str(number) for number in range(8)]
    asked = claim(rather("r", *order))
    assert scores({name: (name,) for name in order}, asked) == dict(
        zip(order, (8, 7, 6, 5, 4, 3, 2, 1), strict=True)
    )


@pytest.mark.req("K4816-067")
def test_the_score_adds_up_all_requests_of_all_claims() -> None:
    one = claim(rather("r", "x", "y"), rather("s", "x", "y"), make.request("t"))
    two = claim(rather("r", "y", "x"), name="d")
    found = scores({"a": ("x", "x", "y", "y"), "b": ("x", "y", "y", "y")}, one, two)
    assert found == {"a": 8 + 8 + 8, "b": 8 + 7 + 8}


@pytest.mark.req("K4816-068")
def test_several_devices_of_one_alternative_earn_once() -> None:
    two = make.first_of("r", ("x", make.asking(2, "attr?:gpu.example/model=x")), ("y", make.asking(1)))
    assert scores({"a": ("x", "x"), "b": ("x", "y")}, claim(two)) == {"a": 8, "b": 7}


@pytest.mark.req("K4816-064", "K4816-069", "K4816-070")
def test_scores_lie_between_the_worst_and_the_best_and_are_nothing_in_a_tie() -> None:
    assert normalize_min_max([8, 7, 4]) == [100, 75, 0]
    assert normalize_min_max([8, 8]) == [0, 0]
    assert normalize_to_max([8, 4]) == [100, 50]
    assert PlacementOptions().device_normalizer is normalize_min_max
    assert PlacementOptions(normalization=Normalization.MAX).device_normalizer is normalize_to_max


@pytest.mark.req("K4816-071")
def test_the_score_counts_twice() -> None:
    assert PLUGINS["DynamicResources"].weight == 2


@pytest.mark.req("K4816-072")
def test_claims_that_have_their_devices_are_not_scored() -> None:
    plugin, _ = devices_only()
    held = having(claim(rather("r", "x", "y")), "a/d0", where="a")
    result = plugin.pre_filter(wanting(held), cluster({"a": models("x")}))
    assert isinstance(result, PreFilterResult)
    assert result.score is None


def test_without_alternatives_no_node_is_preferred() -> None:
    plugin, _ = devices_only()
    result = plugin.pre_filter(wanting(claim()), cluster({"a": models("x")}))
    assert isinstance(result, PreFilterResult)
    assert result.score is None


# --- what is remembered ---


def test_pods_that_ask_the_same_are_searched_for_once_per_shape() -> None:
    plugin, profile = devices_only()
    snapshot = cluster({"a": models("x"), "b": models("x"), "c": models("x", "x")})
    for number in range(5):
        place_pod(snapshot, wanting(claim(name=f"c{number}"), name=f"p{number}"), profile, rotation=number)
    assert sum(plugin.searches.ending_counts.values()) == 2


def test_a_class_that_changed_is_asked_anew() -> None:
    _, profile = devices_only()
    snapshot = cluster({"a": models("x")})
    assert isinstance(place_pod(snapshot, wanting(claim()), profile), Placement)
    never = replace(CLASS, spec=replace(CLASS.spec, selectors=make.selectors("never")))
    changed = snapshot.apply_changes(snapshot.inventory.replace_classes((never,)), {})
    assert isinstance(place_pod(changed, wanting(claim()), profile), Unschedulable)
    assert isinstance(place_pod(snapshot, wanting(claim()), profile), Placement)
