"""The work budget of an explanation: pauses, limits, and searches that were given up before."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import count

from dray.allocator.search.resumable import TimeLimit
from dray.allocator.search.trace import GaveUp
from dray.explain import (
    Diagnosis,
    DiagnosisVerdict,
    NodeOutcome,
    WorkBudget,
    diagnose,
    diagnose_stepwise,
    run_to_end,
    summarize,
)
from dray.explain.work_budget import PAUSE_INTERVAL
from tests.unit.explain.cluster import Cluster, claim, request

hints_module = importlib.import_module("dray.explain.remedies.hints")

FULL = Cluster().node("node-a", "\n".join(f"gpu-{n} numa={n}" for n in range(12)))
HARD = claim(request(count=8), same="numa")


def ticking(step: float = 1.0):
    """A clock that advances whenever it is read."""
    numbers = count()
    return lambda: step * next(numbers)


def run_counting_pauses(steps, between=lambda: None):
    """The result of steps, and the number of pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value, pauses
        pauses += 1
        between()


def diagnose_hard_claim(work_budget: WorkBudget, **more) -> Diagnosis:
    return diagnose(FULL.inventory, [HARD], FULL.nodes, work_budget=work_budget, **more)


def test_an_explanation_pauses_within_a_search():
    steps = diagnose_stepwise(
        FULL.inventory, [HARD], FULL.nodes, work_budget=WorkBudget(TimeLimit(ticking(), 1e9)), hints=0
    )
    found, pauses = run_counting_pauses(steps)
    assert found.verdict is DiagnosisVerdict.REFUSED
    # A reading of this clock is longer than a slice, so there is a pause after every event.
    assert pauses > 10


def test_a_search_that_takes_too_long_is_given_up():
    found = diagnose_hard_claim(WorkBudget(TimeLimit(ticking(), 3.0)), hints=0)
    (report,) = found.node_reports
    assert found.verdict is DiagnosisVerdict.UNKNOWN
    assert report.outcome is NodeOutcome.GAVE_UP
    assert report.seconds >= 3
    assert report.wanted == 8
    assert "gave up after 3 s of work, with at most 1 of 8 devices found" in summarize(found)


def test_pauses_do_not_count():
    now = [0.0]

    def pass_an_hour():
        now[0] += 3600

    work_budget = WorkBudget(TimeLimit(lambda: now[0], 1.0))
    found, _ = run_counting_pauses(
        diagnose_stepwise(FULL.inventory, [HARD], FULL.nodes, work_budget=work_budget, hints=3), pass_an_hour
    )
    assert found.verdict is DiagnosisVerdict.REFUSED
    assert found.hints == diagnose(FULL.inventory, [HARD], FULL.nodes).hints


def test_a_search_that_was_given_up_is_not_repeated():
    cluster = Cluster().node("node-a", "\n".join(f"gpu-{n} numa={n}" for n in range(60)))
    asked = [claim(request(count=8), same="numa")]
    before = GaveUp(123, 4.0, 5, 8)
    work = []

    def run(work_budget: Callable[[TimeLimit], WorkBudget]) -> Diagnosis:
        clock = ticking()
        found = run_to_end(
            diagnose_stepwise(
                cluster.inventory,
                asked,
                cluster.nodes,
                work_budget=work_budget(TimeLimit(clock, 1e9)),
                hints=0,
            )
        )
        work.append(clock())
        return found

    assert run(WorkBudget).verdict is DiagnosisVerdict.REFUSED
    # The search without pruning ends within its steps: its result is certain.
    assert (
        run(lambda limit: WorkBudget(limit, find_given_up=lambda _: before)).verdict
        is DiagnosisVerdict.REFUSED
    )
    short = run(lambda limit: WorkBudget(limit, max_steps=3, find_given_up=lambda _: before))
    assert short.node_reports[0].seconds == 4.0
    assert short.node_reports[0].most_found == 5
    assert work[2] < work[0]


def test_hints_without_time_are_left_out(monkeypatch):
    tried = []
    real = hints_module.try_change

    def try_change(change, node, work_budget):
        tried.append(change.text)
        found = yield from real(change, node, work_budget)
        return found

    monkeypatch.setattr(hints_module, "try_change", try_change)
    whole = diagnose_hard_claim(WorkBudget())
    assert whole.hints
    many = len(tried)
    tried.clear()
    assert diagnose_hard_claim(WorkBudget(TimeLimit(ticking(), 4.0))).hints == ()
    assert len(tried) < many


def test_many_devices_are_described_in_small_steps():
    cluster = Cluster().node("node-a", "\n".join(f"gpu-{n} held=ml/old" for n in range(3 * PAUSE_INTERVAL)))
    steps = diagnose_stepwise(cluster.inventory, [claim()], cluster.nodes, hints=0)
    found, pauses = run_counting_pauses(steps)
    assert len(found.node_reports[0].attempts[0].devices) == 3 * PAUSE_INTERVAL
    assert pauses == 3 + 1  # one more after the whole node


def test_many_nodes_are_grouped_in_small_steps():
    cluster = Cluster()
    for number in range(PAUSE_INTERVAL + 1):
        cluster.node(f"node-{number}", f"gpu-0 held=ml/old-{number}")
    _, pauses = run_counting_pauses(diagnose_stepwise(cluster.inventory, [claim()], cluster.nodes, hints=0))
    assert pauses == 1 + 1  # they are alike: one report, and a pause after it
