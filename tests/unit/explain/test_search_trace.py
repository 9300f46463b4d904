"""Listening to a search, and the order of stories."""

from __future__ import annotations

import importlib

import pytest

from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import normalize_claims
from dray.allocator.search.backtracking import STEP_BUDGET
from dray.allocator.search.trace import Exhausted, GaveUp, Solved
from dray.api.resource import ResourceClaim
from dray.errors import UnanswerableClaimError
from dray.explain import DiagnosisVerdict, NodeOutcome, diagnose, diagnose_fault, render_text, summarize
from dray.explain.diagnosis import ClaimFault, Diagnosis
from dray.explain.search_trace import SearchTrace, trace_search
from tests.unit.explain.cluster import Cluster, attribute, claim, first_of, memory, request
from tests.unit.explain.situations import SITUATIONS

diagnose_module = importlib.import_module("dray.explain.diagnoser")


def told(
    cluster: Cluster, *claims: ResourceClaim, budget: int = STEP_BUDGET, patience: int = 1000
) -> SearchTrace:
    stock = cluster.stock
    ask = normalize_claims(claims, stock.classes.get)
    return trace_search(ask, stock.get_node_view(cluster.nodes[0]).shape, budget, patience)


NUMA = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1")


def test_the_furthest_dead_end_is_kept_not_the_first():
    [halt] = told(NUMA, claim(request(count=3), same="numa")).furthest
    assert [pick.candidate for pick in halt.picks] == [1, 2]
    assert halt.point.device_index == 2


def test_pruning_sees_less_but_answers_the_same(monkeypatch):
    monkeypatch.setattr("dray.allocator.search.backtracking.PRUNING_THRESHOLD", 0)
    asked = claim(request(count=3), same="numa")
    patient, quick = told(NUMA, asked), told(NUMA, asked, patience=0)
    assert type(patient.ending) is type(quick.ending) is Exhausted
    assert quick.furthest[0].point.device_index < patient.furthest[0].point.device_index


def test_alternatives_are_told_together():
    asked = first_of("gpu", a={"where": [attribute("numa", 7)]}, b={"where": [attribute("numa", 8)]})
    halts = told(NUMA, claim(asked)).furthest
    assert [halt.point.alternative.name for halt in halts] == ["gpu/a", "gpu/b"]


def test_alternatives_are_told_behind_the_same_picks():
    """`one` comes further behind p, `two` behind q; a story of both would be about no place at all."""
    lines = "p size=x numa=0\nq size=x numa=1\nr size=y numa=0\ns size=z numa=1"
    two = {
        name: {"count": 2, "where": [attribute("size", size)]} for name, size in (("one", "y"), ("two", "z"))
    }
    asked = claim(request("a", where=[attribute("size", "x")]), first_of("b", **two), same="numa")
    halts = told(Cluster().node("node-a", lines), asked).furthest
    assert [(halt.point.alternative.name, halt.point.device_index) for halt in halts] == [
        ("b/one", 1),
        ("b/two", 0),
    ]
    assert {halt.picks[0].candidate for halt in halts} == {0}


def test_what_was_tried_and_left_has_its_fate():
    tale = told(NUMA, claim(request(count=2), same="numa"))
    assert isinstance(tale.ending, Solved)
    [((_, candidate), point)] = tale.undo_causes[0, 0].items()
    assert (candidate, point.device_index) == (0, 1)


def test_fates_behind_other_picks_are_forgotten():
    lines = "a numa=0 size=x\nb numa=1 size=x\nc numa=1 size=y\nd numa=1 size=x"
    asked = [request("one"), request("two"), request("three", where=[attribute("size", "y")])]
    tale = told(Cluster().node("node-a", lines), claim(*asked, same="numa"))
    assert isinstance(tale.ending, Solved)
    assert set(tale.undo_causes) == {(0, 0)} | ({(1, 0)} & set(tale.undo_causes))
    assert all(candidate != 0 for (_, candidate) in tale.undo_causes.get((1, 0), {}))


def test_left_behind_are_the_alternatives_on_the_final_path():
    asked = first_of("gpu", a={"where": [attribute("numa", 7)]}, b={"where": [attribute("numa", 1)]})
    tale = told(NUMA, claim(asked))
    assert [halt.point.alternative.name for halt in tale.skipped[0]] == ["gpu/a"]


def test_impatience_falls_back_to_the_search_as_the_allocator_runs_it():
    lines = "\n".join(f"gpu-{i} numa={i % 4}" for i in range(24))
    tale = told(Cluster().node("node-a", lines), claim(request(count=7), same="numa"), patience=10)
    assert isinstance(tale.ending, Exhausted)
    assert tale.furthest


def test_a_budget_that_runs_out_is_said():
    tale = told(NUMA, claim(request(count=3), same="numa"), budget=2)
    assert isinstance(tale.ending, GaveUp)


@pytest.mark.parametrize("name", SITUATIONS)
def test_stories_in_short_come_to_the_same_verdict(name, monkeypatch):
    patient = SITUATIONS[name]()
    monkeypatch.setattr(diagnose_module, "MAX_DETAILED_TRACES", 0)
    quick = SITUATIONS[name]()
    assert quick.verdict == patient.verdict
    assert {(story.outcome, node) for story in quick.node_reports for node in story.nodes} == {
        (story.outcome, node) for story in patient.node_reports for node in story.nodes
    }
    assert render_text(quick)
    assert summarize(quick)


def test_a_story_in_short_says_what_is_lacking(monkeypatch):
    monkeypatch.setattr(diagnose_module, "MAX_DETAILED_TRACES", 0)
    asked = claim(
        request("a"),
        first_of("b", many={"count": 4, "where": [attribute("numa", 1)]}, three={"count": 3}),
        same="numa",
    )
    found = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1").ask(asked)
    assert found.verdict is DiagnosisVerdict.REFUSED
    obstacles = [a.obstacle.reason for story in found.node_reports for a in story.attempts if a.obstacle]
    assert set(obstacles) <= {RefusalReason.TOO_FEW, RefusalReason.CONSTRAINT}


# --- the order of stories ---


def order(diagnosis: Diagnosis) -> list[str]:
    return [story.nodes[0] for story in diagnosis.node_reports]


def test_who_found_more_is_closer():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0\ngpu-1").node("c")
    assert order(cluster.ask(claim(request(count=3)))) == ["b", "a", "c"]


def test_who_satisfied_more_requests_is_closer():
    asked = [
        request("first", where=[attribute("size", "x")]),
        request("second", where=[attribute("size", "y")]),
    ]
    cluster = Cluster().node("a", "gpu-0 size=y").node("b", "gpu-0 size=x")
    assert order(cluster.ask(claim(*asked))) == ["b", "a"]


def test_a_device_that_failed_a_later_rule_is_closer():
    cluster = Cluster().node("a", "gpu-0 size=y").node("b", "gpu-0 size=x held=ml/old")
    cluster.node("c", "gpu-0 size=x taint=a/b:NoSchedule")
    assert order(cluster.ask(claim(request(where=[attribute("size", "x")])))) == ["c", "b", "a"]


def test_a_device_that_comes_nearer_to_a_selector_is_closer():
    cluster = (
        Cluster().node("a", "gpu-0 memory:16Gi").node("b", "gpu-0 memory:40Gi").node("c", "gpu-0 memory:24Gi")
    )
    assert order(cluster.ask(claim(request(where=[memory(">=", "80Gi")])))) == ["b", "c", "a"]


def test_a_node_that_cannot_be_judged_is_not_the_closest():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0 memory:40Gi")
    assert order(cluster.ask(claim(request(where=[memory(">=", "80Gi")])))) == ["b", "a"]


def test_fewer_refusals_are_closer_and_then_the_name_decides():
    cluster = Cluster().node("a", "gpu-0 held=ml/x\ngpu-1 held=ml/x").node("c", "gpu-0 held=ml/x")
    cluster.node("b", "gpu-0 size=x held=ml/x")
    assert order(cluster.ask(claim())) == ["b", "c", "a"]


def test_a_node_that_fits_comes_first_and_the_better_alternative_before_the_name():
    found = SITUATIONS["better_alternative_elsewhere"]()
    assert order(found) == ["node-b", "node-a"]
    assert found.best is found.node_reports[0]
    assert [story.rank for story in found.node_reports] == [0, 1]


def test_the_order_of_nodes_does_not_matter():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0\ngpu-1").node("c").node("d", "gpu-0")
    forward = cluster.ask(claim(request(count=3)))
    cluster.nodes.reverse()
    assert cluster.ask(claim(request(count=3))) == forward


def test_one_node_that_cannot_be_judged_does_not_spoil_the_others():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0 size=x")
    found = cluster.ask(claim(request(where=[attribute("size", "x")])))
    assert found.verdict is DiagnosisVerdict.FITS
    assert [story.outcome for story in found.node_reports] == [NodeOutcome.FITS, NodeOutcome.FAULTED]


# --- faults from elsewhere ---


def test_a_fault_of_the_door_becomes_a_diagnosis():
    field = "spec.devices.requests[0].exactly.adminAccess"
    fault = UnanswerableClaimError("asks for admin access: no", claim="ml/gpus", field=field)
    assert str(fault) == f"claim ml/gpus: {field}: asks for admin access: no"
    found = diagnose_fault(fault, [claim()], pod="ml/train")
    assert found.fault == ClaimFault(claim="ml/gpus", field=field, text="asks for admin access: no")
    assert render_text(found).startswith("Pod ml/train can never run as it is\n\n  claim ml/gpus: spec.")


def test_a_fault_says_which_claim_and_which_request_whatever_they_are_called():
    with pytest.raises(UnanswerableClaimError) as raised:
        normalize_claims([claim(request("a: b", of="gone"))], Cluster().stock.classes.get)
    found = diagnose_fault(raised.value)
    assert found.fault == ClaimFault(
        claim="ml/gpus", field="request `a: b`", text="device class `gone` does not exist"
    )


def test_a_fault_in_other_words_is_kept_as_it_is():
    found = diagnose_fault(UnanswerableClaimError("claim x: something: else"), [claim()])
    assert found.fault == ClaimFault(claim="", field="", text="claim x: something: else")
    assert render_text(found) == "Claim ml/gpus can never be allocated as it is\n\n  claim x: something: else"


def test_a_story_does_not_depend_on_what_was_judged_for_others():
    """Hints look further than the search did; asked again, the story must not have grown."""
    cluster = Cluster().node("node-a", "gpu-0\ngpu-1 size=large\ngpu-2 size=small")
    asked = claim(first_of("gpu", many={"count": 4}, large={"where": [attribute("size", "large")]}))
    stock = cluster.stock
    first = diagnose(stock, [asked], cluster.nodes)
    assert first.node_reports[0].outcome is NodeOutcome.FAULTED
    for options in stock.get_node_view(cluster.nodes[0]).shape.candidate_sets.values():
        options.evaluate_all()
    assert diagnose(stock, [asked], cluster.nodes) == first
