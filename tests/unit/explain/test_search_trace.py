"""The trace of a search, and the order of reports."""

from __future__ import annotations

import importlib

import msgspec
import pytest

from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import normalize_claims
from dray.allocator.search.backtracking import STEP_BUDGET, search
from dray.allocator.search.trace import DeadEnd, Exhausted, GaveUp, Solved
from dray.api.resource import ResourceClaim
from dray.errors import UnanswerableClaimError
from dray.explain import (
    DiagnosisVerdict,
    NodeOutcome,
    diagnose,
    diagnose_fault,
    render_text,
    search_trace,
    summarize,
)
from dray.explain.diagnosis import ClaimFault, Diagnosis
from dray.explain.search_trace import SearchTrace, trace_search
from tests.unit.explain.cluster import Cluster, attribute, claim, first_of, memory, request
from tests.unit.explain.situations import SITUATIONS

diagnose_module = importlib.import_module("dray.explain.diagnoser")


def trace_first_node(
    cluster: Cluster, *claims: ResourceClaim, max_steps: int = STEP_BUDGET, detailed_steps: int = 1000
) -> SearchTrace:
    inventory = cluster.inventory
    allocation_request = normalize_claims(claims, inventory.classes.get)
    return trace_search(
        allocation_request, inventory.get_node_view(cluster.nodes[0]).shape, max_steps, detailed_steps
    )


NUMA = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1")


def test_refusals_come_from_the_trace_of_the_search(monkeypatch):
    marked = Refusal(RefusalReason.CAPACITY_MISSING, "marked")

    def mark_refusals(*args, **more):
        for event in search(*args, **more):
            if isinstance(event, DeadEnd):
                event = msgspec.structs.replace(event, refused=tuple((i, marked) for i, _ in event.refused))
            yield event

    monkeypatch.setattr(search_trace, "search", mark_refusals)
    cluster = Cluster().node("node-a", "gpu-0 numa=1\ngpu-1 numa=1\ngpu-2 numa=0")
    [report] = cluster.diagnose(claim(request(count=3), same="numa"), hints=0).node_reports
    [refused] = [outcome.why for outcome in report.attempts[0].devices if outcome.why is not None]
    assert (refused.reason, refused.name) == (RefusalReason.CAPACITY_MISSING, "marked")


def test_the_furthest_dead_end_is_kept_not_the_first():
    [dead_end] = trace_first_node(NUMA, claim(request(count=3), same="numa")).furthest
    assert [pick.candidate for pick in dead_end.picks] == [1, 2]
    assert dead_end.point.device_index == 2


def test_pruning_sees_less_but_answers_the_same(monkeypatch):
    monkeypatch.setattr("dray.allocator.search.backtracking.PRUNING_THRESHOLD", 0)
    asked = claim(request(count=3), same="numa")
    detailed, pruned = trace_first_node(NUMA, asked), trace_first_node(NUMA, asked, detailed_steps=0)
    assert type(detailed.ending) is type(pruned.ending) is Exhausted
    assert pruned.furthest[0].point.device_index < detailed.furthest[0].point.device_index


def test_dead_ends_of_all_alternatives_are_kept():
    asked = first_of("gpu", a={"where": [attribute("numa", 7)]}, b={"where": [attribute("numa", 8)]})
    dead_ends = trace_first_node(NUMA, claim(asked)).furthest
    assert [dead_end.point.alternative.name for dead_end in dead_ends] == ["gpu/a", "gpu/b"]


def test_dead_ends_of_alternatives_have_the_same_picks():
    """`one` gets further after p, `two` after q; a report of both would describe no state of the search."""
    lines = "p size=x numa=0\nq size=x numa=1\nr size=y numa=0\ns size=z numa=1"
    two = {
        name: {"count": 2, "where": [attribute("size", size)]} for name, size in (("one", "y"), ("two", "z"))
    }
    asked = claim(request("a", where=[attribute("size", "x")]), first_of("b", **two), same="numa")
    dead_ends = trace_first_node(Cluster().node("node-a", lines), asked).furthest
    assert [(dead_end.point.alternative.name, dead_end.point.device_index) for dead_end in dead_ends] == [
        ("b/one", 1),
        ("b/two", 0),
    ]
    assert {dead_end.picks[0].candidate for dead_end in dead_ends} == {0}


def test_an_undone_pick_has_its_cause():
    trace = trace_first_node(NUMA, claim(request(count=2), same="numa"))
    assert isinstance(trace.ending, Solved)
    [((_, candidate), point)] = trace.undo_causes[0, 0].items()
    assert (candidate, point.device_index) == (0, 1)


def test_causes_after_other_picks_are_dropped():
    lines = "a numa=0 size=x\nb numa=1 size=x\nc numa=1 size=y\nd numa=1 size=x"
    asked = [request("one"), request("two"), request("three", where=[attribute("size", "y")])]
    trace = trace_first_node(Cluster().node("node-a", lines), claim(*asked, same="numa"))
    assert isinstance(trace.ending, Solved)
    assert set(trace.undo_causes) == {(0, 0)} | ({(1, 0)} & set(trace.undo_causes))
    assert all(candidate != 0 for (_, candidate) in trace.undo_causes.get((1, 0), {}))


def test_skipped_are_the_alternatives_on_the_final_path():
    asked = first_of("gpu", a={"where": [attribute("numa", 7)]}, b={"where": [attribute("numa", 1)]})
    trace = trace_first_node(NUMA, claim(asked))
    assert [dead_end.point.alternative.name for dead_end in trace.skipped[0]] == ["gpu/a"]


def test_without_enough_steps_the_search_runs_as_in_the_allocator():
    lines = "\n".join(f"gpu-{i} numa={i % 4}" for i in range(24))
    trace = trace_first_node(
        Cluster().node("node-a", lines), claim(request(count=7), same="numa"), detailed_steps=10
    )
    assert isinstance(trace.ending, Exhausted)
    assert trace.furthest


def test_a_search_that_runs_out_of_steps_is_given_up():
    trace = trace_first_node(NUMA, claim(request(count=3), same="numa"), max_steps=2)
    assert isinstance(trace.ending, GaveUp)


@pytest.mark.parametrize("name", SITUATIONS)
def test_pruned_traces_give_the_same_verdict(name, monkeypatch):
    detailed = SITUATIONS[name]()
    monkeypatch.setattr(diagnose_module, "MAX_DETAILED_TRACES", 0)
    pruned = SITUATIONS[name]()
    assert pruned.verdict == detailed.verdict
    assert {(report.outcome, node) for report in pruned.node_reports for node in report.nodes} == {
        (report.outcome, node) for report in detailed.node_reports for node in report.nodes
    }
    assert render_text(pruned)
    assert summarize(pruned)


def test_a_pruned_trace_has_the_obstacle(monkeypatch):
    monkeypatch.setattr(diagnose_module, "MAX_DETAILED_TRACES", 0)
    asked = claim(
        request("a"),
        first_of("b", many={"count": 4, "where": [attribute("numa", 1)]}, three={"count": 3}),
        same="numa",
    )
    found = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1\ngpu-2 numa=1").diagnose(asked)
    assert found.verdict is DiagnosisVerdict.REFUSED
    obstacles = [a.obstacle.reason for report in found.node_reports for a in report.attempts if a.obstacle]
    assert set(obstacles) <= {RefusalReason.TOO_FEW, RefusalReason.CONSTRAINT}


# --- the order of reports ---


def order(diagnosis: Diagnosis) -> list[str]:
    return [report.nodes[0] for report in diagnosis.node_reports]


def test_a_node_that_found_more_is_closer():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0\ngpu-1").node("c")
    assert order(cluster.diagnose(claim(request(count=3)))) == ["b", "a", "c"]


def test_a_node_that_satisfied_more_requests_is_closer():
    asked = [
        request("first", where=[attribute("size", "x")]),
        request("second", where=[attribute("size", "y")]),
    ]
    cluster = Cluster().node("a", "gpu-0 size=y").node("b", "gpu-0 size=x")
    assert order(cluster.diagnose(claim(*asked))) == ["b", "a"]


def test_a_device_that_failed_a_later_rule_is_closer():
    cluster = Cluster().node("a", "gpu-0 size=y").node("b", "gpu-0 size=x held=ml/old")
    cluster.node("c", "gpu-0 size=x taint=a/b:NoSchedule")
    assert order(cluster.diagnose(claim(request(where=[attribute("size", "x")])))) == ["c", "b", "a"]


def test_a_device_that_comes_nearer_to_a_selector_is_closer():
    cluster = (
        Cluster().node("a", "gpu-0 memory:16Gi").node("b", "gpu-0 memory:40Gi").node("c", "gpu-0 memory:24Gi")
    )
    assert order(cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))) == ["b", "c", "a"]


def test_a_node_that_cannot_be_evaluated_is_not_the_closest():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0 memory:40Gi")
    assert order(cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))) == ["b", "a"]


def test_fewer_refusals_are_closer_and_then_the_name_decides():
    cluster = Cluster().node("a", "gpu-0 held=ml/x\ngpu-1 held=ml/x").node("c", "gpu-0 held=ml/x")
    cluster.node("b", "gpu-0 size=x held=ml/x")
    assert order(cluster.diagnose(claim())) == ["b", "c", "a"]


def test_a_node_that_fits_comes_first_and_the_better_alternative_before_the_name():
    found = SITUATIONS["better_alternative_elsewhere"]()
    assert order(found) == ["node-b", "node-a"]
    assert found.best is found.node_reports[0]
    assert [report.rank for report in found.node_reports] == [0, 1]


def test_the_order_of_nodes_does_not_matter():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0\ngpu-1").node("c").node("d", "gpu-0")
    forward = cluster.diagnose(claim(request(count=3)))
    cluster.nodes.reverse()
    assert cluster.diagnose(claim(request(count=3))) == forward


def test_one_node_that_cannot_be_evaluated_does_not_affect_the_others():
    cluster = Cluster().node("a", "gpu-0").node("b", "gpu-0 size=x")
    found = cluster.diagnose(claim(request(where=[attribute("size", "x")])))
    assert found.verdict is DiagnosisVerdict.FITS
    assert [report.outcome for report in found.node_reports] == [NodeOutcome.FITS, NodeOutcome.FAULTED]


# --- faults of claims ---


def test_a_fault_found_before_the_search_becomes_a_diagnosis():
    field = "spec.devices.requests[0].exactly.adminAccess"
    fault = UnanswerableClaimError("asks for admin access: no", claim="ml/gpus", field=field)
    assert str(fault) == f"claim ml/gpus: {field}: asks for admin access: no"
    found = diagnose_fault(fault, [claim()], pod="ml/train")
    assert found.fault == ClaimFault(claim="ml/gpus", field=field, text="asks for admin access: no")
    assert render_text(found).startswith("Pod ml/train can never run as it is\n\n  claim ml/gpus: spec.")


def test_a_fault_says_which_claim_and_which_request_whatever_they_are_called():
    with pytest.raises(UnanswerableClaimError) as raised:
        normalize_claims([claim(request("a: b", of="gone"))], Cluster().inventory.classes.get)
    found = diagnose_fault(raised.value)
    assert found.fault == ClaimFault(
        claim="ml/gpus", field="request `a: b`", text="device class `gone` does not exist"
    )


def test_a_fault_in_other_words_is_kept_as_it_is():
    found = diagnose_fault(UnanswerableClaimError("claim x: something: else"), [claim()])
    assert found.fault == ClaimFault(claim="", field="", text="claim x: something: else")
    assert render_text(found) == "Claim ml/gpus can never be allocated as it is\n\n  claim x: something: else"


def test_a_report_does_not_depend_on_evaluations_for_other_requests():
    """Hints evaluate more devices than the search did; a second diagnosis must be equal."""
    cluster = Cluster().node("node-a", "gpu-0\ngpu-1 size=large\ngpu-2 size=small")
    asked = claim(first_of("gpu", many={"count": 4}, large={"where": [attribute("size", "large")]}))
    inventory = cluster.inventory
    first = diagnose(inventory, [asked], cluster.nodes)
    assert first.node_reports[0].outcome is NodeOutcome.FAULTED
    for options in inventory.get_node_view(cluster.nodes[0]).shape.candidate_sets.values():
        options.evaluate_all()
    assert diagnose(inventory, [asked], cluster.nodes) == first
