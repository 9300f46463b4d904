"""Searches that take long: slices, limits, what is remembered of those that were given up."""

from __future__ import annotations

import pytest

from dray.allocator.search.resumable import TimeLimit
from dray.allocator.search.trace import Exhausted, GaveUp, Solved
from dray.placement.device_searches import MAX_TIME_FACTOR, RUNNING_SEARCHES, DeviceQuery, DeviceSearches
from dray.placement.plugins.dynamic_resources import DynamicResources
from dray.placement.profile import SchedulerProfile
from dray.placement.rejections import Signal, Topic
from dray.placement.scheduling_cycle import Placement, Unschedulable, place_pod
from tests.brute import builders as make
from tests.unit.placement.claim_objects import claim, cluster, devices_only, models, wanting


class Ticking:
    """A clock that goes on by a second whenever it is read: every event of a search takes one."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return float(self.reads)


def limited(seconds: float, at_once: float = float("inf")) -> tuple[DynamicResources, SchedulerProfile]:
    """The plugin with searches that may take so many events each, and ten times as many for one pod."""
    return devices_only(DeviceSearches(TimeLimit(Ticking(), seconds), at_once))


MANY = claim(make.request("r", 30))
"""Thirty devices: a search of some thirty events."""
THIRTY = models(*"x" * 30)


def question_of(plugin: DynamicResources) -> DeviceQuery:
    (question,) = plugin._queries.values()
    return question


def events_until_found() -> int:
    """How long the search for `MANY` takes by a ticking clock."""
    plugin, profile = limited(10_000)
    assert isinstance(place_pod(cluster({"a": THIRTY}), wanting(MANY), profile), Placement)
    return int(plugin.searches.total_seconds)


# --- limits ---


def test_a_given_up_search_reports_how_far_it_got_and_gets_more_time_next() -> None:
    plugin, profile = limited(10)
    snapshot = cluster({"a": THIRTY})
    first = place_pod(snapshot, wanting(MANY), profile)
    assert isinstance(first, Unschedulable)
    assert first.retry
    assert not first.unfinished
    (refused,) = first.rejected
    words = refused.rejection.reason
    assert words.startswith("the search for devices for claim ml/c was given up after 1")
    assert words.endswith(" of 30 devices found; it is tried again, with more time")
    second = place_pod(snapshot, wanting(MANY, attempts=2), profile)
    assert isinstance(second, Placement)
    assert plugin.searches.ending_counts == {"GaveUp": 1, "Solved": 1}


def test_a_give_up_is_paid_once() -> None:
    plugin, profile = limited(10)
    snapshot = cluster({"a": THIRTY})
    place_pod(snapshot, wanting(MANY), profile)
    paid = plugin.searches.total_seconds
    other = claim(make.request("r", 30), name="other")
    for number in range(5):
        again = place_pod(snapshot, wanting(other, name=f"p{number}"), profile)
        assert isinstance(again, Unschedulable)
    assert plugin.searches.total_seconds == paid
    assert plugin.searches.ending_counts == {"GaveUp": 1}


def test_more_patience_continues_the_search_that_was_given_up() -> None:
    whole = events_until_found()
    plugin, profile = limited(10)
    snapshot = cluster({"a": THIRTY})
    ends = [place_pod(snapshot, wanting(MANY, attempts=tries), profile) for tries in range(4)]
    assert isinstance(ends[-1], Placement)
    # Some readings of the clock more, for beginning and ending each part; not the work of 10 + 20 + 40.
    assert plugin.searches.total_seconds < whole + 20


def test_after_the_last_doubling_a_give_up_waits_for_changes() -> None:
    plugin, profile = limited(1)
    snapshot = cluster({"a": THIRTY})
    found = None
    for tries in range(6):
        found = place_pod(snapshot, wanting(MANY, attempts=tries), profile)
    assert isinstance(found, Unschedulable)
    assert not found.retry
    assert Signal(Topic.DEVICES) in found.wake_signals
    assert "a longer --search-timeout gives it more time" in found.rejected[0].rejection.reason
    assert (
        plugin.searches.compute_time_budget(3) == plugin.searches.compute_time_budget(1000) == MAX_TIME_FACTOR
    )
    paid = plugin.searches.total_seconds
    place_pod(snapshot, wanting(MANY, attempts=100), profile)
    assert plugin.searches.total_seconds == paid


def test_a_pod_has_a_limit_for_all_shapes_together_and_tries_the_others_next_time() -> None:
    _, profile = limited(10)
    # Of each node the first alternative is more than anybody has time for; the last one is easy.
    few = make.first_of("r", ("many", make.asking(30)), ("one", make.asking(1)))
    hard = {f"hard-{number:02}": models(*"x" * (30 + number)) for number in range(14)}
    snapshot = cluster({**hard, "easy": models("x")})
    ends = [place_pod(snapshot, wanting(claim(few), attempts=0), profile) for _ in range(3)]
    first = ends[0]
    assert isinstance(first, Unschedulable)
    assert first.retry
    unseen = [each for each in first.rejected if "were not searched for" in each.rejection.reason]
    assert [len(each.nodes) > 1 for each in unseen] == [True]
    assert {name for each in first.rejected for name in each.nodes} == snapshot.node_states.keys()
    last = ends[-1]
    assert isinstance(last, Placement)
    assert last.node_state.name == "easy"


def test_work_of_the_attempt_so_far_counts() -> None:
    plugin, profile = limited(10)
    found = place_pod(cluster({"a": THIRTY}), wanting(MANY, worked=100.0), profile)
    assert isinstance(found, Unschedulable)
    assert plugin.searches.total_seconds == 0
    assert "were not searched for" in found.rejected[0].rejection.reason


# --- slices ---


def test_what_does_not_end_in_one_decision_goes_on_elsewhere() -> None:
    plugin, profile = limited(1000, at_once=5)
    snapshot = cluster({"a": THIRTY})
    first = place_pod(snapshot, wanting(MANY), profile)
    assert isinstance(first, Unschedulable)
    assert first.unfinished
    assert first.rejected[0].rejection.reason == "devices for claim ml/c are still being searched for"
    searches, question = plugin.searches, question_of(plugin)
    assert searches.unfinished == 1
    slices = []
    while (worked := searches.run_next(3)) is not None:
        slices.append(worked)
    assert {asked for asked, _ in slices} == {question}
    assert len(slices) > 3
    assert [type(ending).__name__ for _, ending in slices[-2:]] == ["NoneType", "Solved"]
    assert isinstance(place_pod(snapshot, wanting(MANY), profile), Placement)


def test_one_decision_has_so_much_time_for_all_shapes_together() -> None:
    plugin, profile = limited(1000, at_once=30)
    snapshot = cluster({f"n{number}": models(*"x" * (30 + number)) for number in range(12)})
    found = place_pod(snapshot, wanting(MANY), profile)
    assert isinstance(found, Unschedulable)
    assert plugin.searches.unfinished == 12
    # A third of it for each of the first, and nothing but a wish for the others.
    assert len(plugin.searches._running) < 6
    assert plugin.searches.total_seconds < 50


def test_a_search_that_goes_on_is_given_up_when_its_time_is_over() -> None:
    plugin, profile = limited(15, at_once=5)
    place_pod(cluster({"a": THIRTY}), wanting(MANY), profile)
    endings = []
    while (worked := plugin.searches.run_next(3)) is not None:
        endings.append(worked[1])
    assert isinstance(endings[-1], GaveUp)
    assert endings[-1].seconds >= 15
    assert endings[:-1] == [None] * (len(endings) - 1)


def test_a_node_that_fits_is_taken_while_others_are_searched() -> None:
    plugin, profile = limited(1000, at_once=2)
    snapshot = cluster({"a": models(*"x" * 60), "b": THIRTY})
    question = plugin.get_query(wanting(MANY), snapshot)
    plugin.searches.run_search(question, snapshot.node_states["b"].shape, 1000, 1000)
    found = place_pod(snapshot, wanting(MANY), profile)
    assert isinstance(found, Placement)
    assert found.node_state.name == "b"


def test_ranked_nodes_are_decided_when_all_are_known() -> None:
    few = claim(make.first_of("r", ("many", make.asking(30)), ("one", make.asking(1))))
    plugin, profile = limited(1000, at_once=2)
    snapshot = cluster({"big": THIRTY, "small": models("x")})
    question = plugin.get_query(wanting(few), snapshot)
    plugin.searches.run_search(question, snapshot.node_states["small"].shape, 1000, 1000)
    assert place_pod(snapshot, wanting(few), profile).unfinished  # type: ignore[union-attr] # if not, it fails here
    while plugin.searches.run_next(10) is not None:
        pass
    found = place_pod(snapshot, wanting(few), profile)
    assert isinstance(found, Placement)
    assert found.node_state.name == "big"


def test_questions_take_turns() -> None:
    plugin, profile = limited(1000, at_once=1)
    snapshot = cluster({"a": models(*"x" * 31), "b": models(*"x" * 32)})
    other = claim(make.request("s", 30), name="d")
    place_pod(snapshot, wanting(MANY), profile)
    place_pod(snapshot, wanting(other, name="q"), profile)
    first, second = plugin._queries.values()
    order = []
    while (worked := plugin.searches.run_next(5)) is not None:
        order.append((worked[0], worked[1] is not None))
    assert [question for question, _ in order[:4]] == [first, second, first, second]
    assert [ended for _, ended in order].count(True) == 4


def test_a_hard_shape_does_not_keep_a_pod_from_an_easy_one() -> None:
    plugin, _ = limited(1_000_000, at_once=1)
    snapshot = cluster({"hard": models(*"x" * 31), "easy": THIRTY, "other": models(*"x" * 32)})
    searches, question = plugin.searches, plugin.get_query(wanting(MANY), snapshot)
    hard, easy, other = (snapshot.node_states[name].shape for name in ("hard", "easy", "other"))
    searches.run_search(question, hard, 20, 1_000_000)
    for shape in (hard, easy, other):
        searches.schedule_search(question, shape, 1_000_000)
    turns = []
    while searches.run_next(2) is not None:
        turns.append(question.current)
    # The one that had most work comes last, whoever was wanted first.
    assert isinstance(hard.endings[question], Solved)
    assert turns.index(hard) > turns.index(easy)
    assert turns.index(hard) > turns.index(other)


def test_a_forgotten_query_is_not_searched() -> None:
    plugin, profile = limited(1000, at_once=1)
    place_pod(cluster({"a": THIRTY}), wanting(MANY), profile)
    plugin.searches.forget_query(question_of(plugin))
    assert plugin.searches.unfinished == 0
    assert plugin.searches.run_next(1) is None


def test_only_so_many_searches_are_kept() -> None:
    plugin, profile = limited(1, at_once=100_000)
    snapshot = cluster({f"n{number}": models(*"x" * (30 + number)) for number in range(10)})
    for number in range(RUNNING_SEARCHES.max_entries):
        asked = claim(make.request(f"r{number}", 30), name="c")
        place_pod(snapshot, wanting(asked), profile)
    assert len(plugin.searches._running) <= RUNNING_SEARCHES.max_entries


@pytest.mark.parametrize("kind", [Exhausted, Solved])
def test_answers_hold_whatever_the_patience(kind: type) -> None:
    plugin, profile = limited(1000)
    snapshot = cluster({"a": models("x") if kind is Exhausted else THIRTY})
    place_pod(snapshot, wanting(MANY), profile)
    shape = snapshot.node_states["a"].shape
    assert isinstance(plugin.searches.get_ending(question_of(plugin), shape, 1e9), kind)
