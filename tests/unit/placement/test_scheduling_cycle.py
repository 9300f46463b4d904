"""One cycle: who is asked, who wins, who is told what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dray.placement import scheduling_cycle
from dray.placement.framework import Phase, PreFilterResult, keep_scores
from dray.placement.pending_pod import PendingPod
from dray.placement.profile import SchedulerProfile, WeightedPlugin
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.scheduling_cycle import (
    Placement,
    PluginTimer,
    RejectedNodes,
    Unschedulable,
    compute_feasible_target,
    find_rejections,
    place_pod,
)
from dray.placement.snapshot import ClusterSnapshot, NodeState
from tests.unit.placement.pods_and_nodes import asking, node, node_state, pending_pod, snapshot_of

WHO = pending_pod(asking())
NO = PluginRejection("Stub", "no", frozenset({Signal(Topic.RESOURCES)}))


@dataclass
class Stub:
    """A plugin that thinks what it is told to."""

    thinks: PreFilterResult | PluginRejection | None
    name: str = "Stub"

    def pre_filter(
        self, _subject: PendingPod, _snapshot: ClusterSnapshot
    ) -> PreFilterResult | PluginRejection | None:
        return self.thinks


def profile(
    *thoughts: PreFilterResult | PluginRejection | None, weights: tuple[int, ...] = ()
) -> SchedulerProfile:
    stubs = [Stub(each, f"Stub{at}") for at, each in enumerate(thoughts)]
    rows = [WeightedPlugin(stub, weights[at] if weights else 1) for at, stub in enumerate(stubs)]
    return SchedulerProfile(tuple(rows))


def chosen(snapshot: ClusterSnapshot, rules: SchedulerProfile, turns: int = 1) -> list[str]:
    names = []
    for turn in range(turns):
        found = place_pod(snapshot, WHO, rules, rotation=turn)
        assert isinstance(found, Placement)
        names.append(found.node_state.name)
    return names


def refusing(*names: str) -> Callable[[NodeState], PluginRejection | None]:
    return lambda place_: NO if place_.name in names else None


def test_the_first_verdict_about_the_whole_cluster_ends_it() -> None:
    asked = []
    late = PreFilterResult(filter=lambda place_: asked.append(place_))
    found = place_pod(snapshot_of(node("a")), WHO, profile(None, NO, late))
    assert isinstance(found, Unschedulable)
    assert found.rejected == (RejectedNodes(NO),)
    assert asked == []


def test_without_opinions_every_node_will_do_in_turn() -> None:
    assert sorted(chosen(snapshot_of(node("a"), node("b"), node("c")), profile(None), 3)) == ["a", "b", "c"]


def test_an_empty_cluster_has_no_node_and_waits_for_one() -> None:
    found = place_pod(snapshot_of(), WHO, profile(PreFilterResult(filter=refusing())))
    assert isinstance(found, Unschedulable)
    assert found.rejected == ()
    assert found.wake_signals == {Signal(Topic.NODES)}
    assert not found.retry


def test_nodes_that_are_alike_are_asked_about_once() -> None:
    asked: Counter[str] = Counter()

    def count(place_: NodeState) -> PluginRejection | None:
        asked[place_.name] += 1
        return None

    snapshot = snapshot_of(*[node(f"n{number}") for number in range(10)], node("other", unschedulable=True))
    place_pod(snapshot, WHO, profile(PreFilterResult(filter=count)))
    assert asked.total() == 2
    asked.clear()
    place_pod(snapshot, WHO, profile(PreFilterResult(filter=count, by_node=True)))
    assert asked.total() == 11


def test_nodes_excluded_by_name_get_a_reason() -> None:
    elsewhere = PluginRejection("Stub0", "elsewhere")
    rules = profile(
        PreFilterResult(frozenset("ab"), elsewhere),
        PreFilterResult(frozenset("bc"), NO),
        PreFilterResult(filter=refusing("b")),
    )
    snapshot = snapshot_of(*map(node, "abcd"))
    found = place_pod(snapshot, WHO, rules)
    assert isinstance(found, Unschedulable)
    told = {each.rejection: each.nodes for each in found.rejected}
    # `b` is refused by the filter and `a` by the second result, with the same words.
    assert told == {elsewhere: ("c", "d"), NO: ("a", "b")}


def test_a_name_that_is_no_node_is_ignored() -> None:
    assert chosen(snapshot_of(node("a")), profile(PreFilterResult(frozenset({"a", "ghost"}), NO))) == ["a"]


def test_every_node_counts_for_the_first_filter_that_rejects_it() -> None:
    second = PluginRejection("Stub1", "second")
    rules = profile(
        PreFilterResult(filter=refusing("a"), by_node=True),
        PreFilterResult(filter=lambda place_: second, by_node=True),
    )
    found = place_pod(snapshot_of(node("a"), node("b")), WHO, rules)
    assert isinstance(found, Unschedulable)
    assert {each.rejection.reason: each.nodes for each in found.rejected} == {"no": ("a",), "second": ("b",)}


def test_scores_are_weighed_and_the_best_wins() -> None:
    one = PreFilterResult(score=lambda place_: {"a": 50, "b": 0}[place_.name], by_node=True)
    two = PreFilterResult(score=lambda place_: {"a": 0, "b": 30}[place_.name], by_node=True)
    snapshot = snapshot_of(node("a"), node("b"))
    assert set(chosen(snapshot, profile(one, two), 2)) == {"a"}
    assert set(chosen(snapshot, profile(one, two, weights=(1, 2)), 2)) == {"b"}
    assert set(chosen(snapshot, profile(one, two, weights=(0, 1)), 2)) == {"b"}


def test_spreading_sees_only_what_is_left() -> None:
    seen: list[list[int]] = []

    def spread(scores: object) -> object:
        seen.append(list(scores))  # type: ignore[call-overload]
        return keep_scores(scores)  # type: ignore[arg-type]

    values = {"a": 1, "b": 2, "c": 3}
    scoring = PreFilterResult(score=lambda place_: values[place_.name], normalize_scores=spread, by_node=True)  # type: ignore[arg-type]
    snapshot = snapshot_of(node("a"), node("b"), node("c", unschedulable=True))
    assert chosen(snapshot, profile(PreFilterResult(filter=refusing("c")), scoring)) == ["b"]
    assert [sorted(each) for each in seen] == [[1, 2]]


def test_reserve_is_called_for_the_chosen_node_only() -> None:
    asked: list[str] = []

    def reserve(place_: NodeState) -> tuple[()]:
        asked.append(place_.name)
        return ()

    best = PreFilterResult(score=lambda place_: int(place_.name == "b"), by_node=True, reserve=reserve)
    assert chosen(snapshot_of(node("a"), node("b")), profile(best)) == ["b"]
    assert asked == ["b"]


def test_one_rejection_is_enough_to_retry() -> None:
    again = PluginRejection("Stub", "given up", retry=True)
    rules = profile(PreFilterResult(filter=lambda place_: again if place_.name == "a" else NO, by_node=True))
    found = place_pod(snapshot_of(node("a"), node("b")), WHO, rules)
    assert isinstance(found, Unschedulable)
    assert found.retry
    assert found.wake_signals == NO.wake_signals


def test_refusals_look_at_every_node_although_one_would_do() -> None:
    told = find_rejections(
        snapshot_of(node("a"), node("b")), WHO, profile(PreFilterResult(filter=refusing("a"), by_node=True))
    )
    assert [(each.rejection, each.nodes) for each in told] == [(NO, ("a",))]
    assert find_rejections(snapshot_of(node("a")), WHO, profile(NO)) == (RejectedNodes(NO),)


def test_filtering_many_different_nodes_ends_when_enough_are_found() -> None:
    snapshot = snapshot_of(*[node(f"n{number:03}", {"cpu": str(number + 1)}) for number in range(400)])
    asked: set[str] = set()

    def count(place_: NodeState) -> PluginRejection | None:
        asked.add(place_.name)
        return None

    place_pod(snapshot, WHO, profile(PreFilterResult(filter=count)), rotation=0)
    first = set(asked)
    assert len(first) == compute_feasible_target(400)
    place_pod(snapshot, WHO, profile(PreFilterResult(filter=count)), rotation=200)
    assert asked - first  # it starts elsewhere next time


def test_enough_is_what_kubernetes_finds_enough() -> None:
    assert [compute_feasible_target(count) for count in (1, 100, 400, 1000, 5000, 20_000)] == [
        100,
        100,
        188,
        420,
        500,
        1000,
    ]
    assert scheduling_cycle.MIN_FEASIBLE_NODES == 100


def test_the_stopwatch_hears_of_each_plugin_and_phase() -> None:
    spent: list[tuple[str, Phase]] = []
    ticks = iter(range(100))
    watch = PluginTimer(lambda: float(next(ticks)), lambda name, phase, _took: spent.append((name, phase)))
    both = PreFilterResult(filter=refusing(), score=lambda _place: 1)
    place_pod(snapshot_of(node("a"), node("b", unschedulable=True)), WHO, profile(both, None), timer=watch)
    assert Counter(spent) == {
        ("Stub0", Phase.PRE_FILTER): 1,
        ("Stub1", Phase.PRE_FILTER): 1,
        ("Stub0", Phase.FILTER): 2,
        ("Stub0", Phase.SCORE): 1,
    }


def test_a_node_state_has_its_node() -> None:
    here = node_state(node("a"), asking(cpu="1"))
    assert (here.name, here.requests.get("cpu")) == ("a", 10**9)
