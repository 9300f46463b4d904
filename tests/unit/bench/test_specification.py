"""The lines of the specification about cost are measured; those that need no cluster are tried here."""

from __future__ import annotations

import pytest

from bench.scheduler.workloads import WORKLOADS
from bench.specification import clusters, searches
from bench.specification.__main__ import main, pick_lines, render_line
from bench.specification.lines import LINES
from bench.specification.timing import Figure, measure_micros
from dray.api import limits
from dray.gates import GateSet
from tests.meta.requirements import Requirement

IDS = {line.id for line in LINES}


def list_figures(found):
    return {figure.what: figure.value for figure in found}


def list_requests(workload):
    assert workload.template is not None
    return workload.template["spec"]["spec"]["devices"]["requests"]


def test_every_line_is_a_requirement_with_its_own_sentence(requirements: tuple[Requirement, ...]):
    assert len(IDS) == len(LINES) == 12
    assert len({line.sentence for line in LINES}) == len(LINES)
    if requirements:
        assert {row.id for row in requirements} >= IDS


@pytest.mark.req("K4816-081")
def test_a_workload_asks_for_the_first_that_is_available():
    found = [work for work in WORKLOADS if work.template and "firstAvailable" in str(work.template)]
    assert [len(list_requests(work)[0]["firstAvailable"]) for work in found] == [2]
    assert clusters.find_workload("FirstAvailable/") is found[0]


@pytest.mark.req("K5075-140")
def test_workloads_consume_capacity_of_shared_devices():
    found = [work for work in WORKLOADS if work.name.startswith("ConsumableCapacity/")]
    assert len(found) == 3
    for work in found:
        assert list_requests(work)[0]["exactly"]["capacity"] == {"requests": {"bandwidth": "2500M"}}
        assert all(device["allowMultipleAllocations"] for device in work.slices(0)[0]["spec"]["devices"])
    assert clusters.find_workload("ConsumableCapacity/half") in found


@pytest.mark.req("K4816-122")
def test_median_and_99th_percentile_are_measured_for_one_to_eight_alternatives():
    found = list_figures(searches.measure_alternatives(2))
    assert limits.ALTERNATIVES_PER_REQUEST == 8
    assert list(found) == [f"alternatives: {n}, {p}" for n in range(1, 9) for p in ("p50", "p99")]
    assert all(value > 0 for value in found.values())


@pytest.mark.req("K5075-170")
def test_the_sum_of_consumed_capacity_is_measured_for_claims_times_devices(monkeypatch):
    monkeypatch.setattr(searches, "CLAIM_COUNTS", (1, 30))
    found = [figure.what for figure in searches.measure_aggregation(1)]
    sweep = [f"{claims} claims on {devices} devices, p50" for claims in (1, 30) for devices in (10, 100)]
    assert [what for what in found if "1,000" not in what and " more" not in what] == sweep


@pytest.mark.req("K5773-010")
def test_sorting_is_measured_without_and_with_priorities():
    found = list(list_figures(searches.measure_sorting(1)))
    assert [what for what in found if what.endswith("pools of a node, p50")] == [
        "80 slices, no priorities: pools of a node, p50",
        "80 slices, a priority each: pools of a node, p50",
    ]


@pytest.mark.req("K5491-031")
def test_lists_are_measured_up_to_the_limit_of_a_device():
    found = list_figures(searches.measure_lists(1))
    assert f"lists of {limits.ATTRIBUTE_VALUES_PER_DEVICE} values, p50" in found
    assert "one value, not a list, p50" in found


@pytest.mark.req("K5491-049")
@pytest.mark.parametrize(("devices", "count"), [(4, 2), (8, 3), (16, 4), (12, 6)])
def test_a_search_without_solution_takes_as_many_steps_with_lists_as_with_single_values(devices, count):
    single = searches.count_worst_steps(devices, count, 0)
    assert single > devices - count
    for length in (1, 2, limits.ATTRIBUTE_VALUES_PER_DEVICE):
        assert searches.count_worst_steps(devices, count, length) == single


def test_classes_claims_of_a_pod_and_claims_of_a_cluster_are_measured(monkeypatch):
    monkeypatch.setattr(searches, "ALLOCATED_COUNTS", (0, 10))
    found = list(list_figures(searches.measure_classes_and_claims(1)))
    for what in ("classes in the cluster: 20", "claims of a pod: 8", "allocated claims in the cluster: 10"):
        assert f"{what}, p99" in found


def test_sizes_are_those_of_the_json_text():
    assert list_figures(searches.measure_sizes(1))["flag of a device"] == len(
        ',"allowMultipleAllocations":true'
    )


def test_priorities_of_slices_and_pools_differ_between_nodes():
    (first,), (second,) = clusters.build_prioritized_slices(1), clusters.build_prioritized_slices(2)
    for document in (first, second):
        assert document["spec"]["priority"] == document["spec"]["pool"]["priority"]
    assert first["spec"]["priority"] != second["spec"]["priority"]


def test_without_claims_all_gates_are_off():
    gates = GateSet.parse(clusters.WITHOUT)
    assert not gates.is_enabled("DynamicResourceAllocation")


def test_each_time_the_work_is_built_anew_and_only_the_work_is_timed():
    order = []

    def build_work():
        order.append("built")
        return lambda: order.append("worked")

    assert len(measure_micros(build_work, 3)) == 3
    assert order == ["built", "worked"] * 3


def test_a_line_is_printed_with_its_figures(capsys):
    line = LINES[0]
    text = render_line(line, [Figure("pods", 3.0, ""), Figure("time", 1234.56, "ms")])
    assert text.splitlines()[0] == f"{line.id}  {line.sentence}"
    assert [row.split() for row in text.splitlines()[1:]] == [["pods", "3"], ["time", "1,234.6", "ms"]]
    assert main(["--only", "K5075-168"]) == 0
    assert capsys.readouterr().out.startswith("K5075-168  Size estimates hold")


def test_an_unknown_line_is_refused_by_name():
    assert pick_lines(None) == list(LINES)
    with pytest.raises(SystemExit, match="no line `K1-001`"):
        pick_lines(["K1-001"])
